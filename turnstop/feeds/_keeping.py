"""What feeds have in common: ids that come again, reasons, and what controls are about to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from .._inbox import Control, ControlKind, Standing

__all__ = ["REMEMBERED", "IdTaken", "foresee", "to_plain"]

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


def foresee(rooms: Mapping[str, Standing], controls: Iterable[Control]) -> dict[str, Standing]:
    """How rooms in which nothing is handled stand when they have heard these controls."""
    found = dict(rooms)
    for control in controls:
        if control.kind is ControlKind.INTERRUPT or control.turn_id is not None:
            continue
        for room in [*found] if control.room is None else {control.room} & found.keys():
            found[room] = attrs.evolve(found[room], paused=control.kind is ControlKind.STOP)
    return {room: one for room, one in found.items() if one.paused or one.waiting}
