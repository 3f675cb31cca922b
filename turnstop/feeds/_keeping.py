"""What feeds have in common: what they say of an id that comes again, and how long they know it."""

from __future__ import annotations

__all__ = ["REMEMBERED", "IdTaken", "to_plain"]

REMEMBERED = 10_000
"""How many of the messages that have finished last a feed knows the ids of, over all rooms."""
_REASON = 4000


class IdTaken(ValueError):
    """The room has an unfinished message with this id, and that says something else.

    Attributes:
        room: the conversation.
        id: what was to be the message's id.
    """

    def __init__(self, room: str, id: str) -> None:
        super().__init__(f"{room!r} has another message {id!r}: give this one an id of its own")
        self.room = room
        self.id = id


def to_plain(reason: str) -> str:
    """The beginning of a reason, as text that any file takes: it may say what an agent has said."""
    return reason[:_REASON].encode("utf-8", "backslashreplace").decode()
