"""What comes in, and what the inbox says of it: the contract for whoever keeps messages."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs

__all__ = ["Claim", "Control", "ControlKind", "Feed", "Message", "Standing"]


@attrs.frozen
class Message:
    """Something for a room's agent to work on.

    Attributes:
        room: the conversation.
        id: unique in its room.
        content: what the turn is given.
        attempt: how often it was handled before, and failed; what a stop cut short is not counted.
        synthetic: it was made here and is in no feed.
    """

    room: str
    id: str
    content: Any = attrs.field(repr=False)
    attempt: int = 0
    synthetic: bool = False


class ControlKind(enum.Enum):
    """What a person pressed."""

    STOP = "stop"
    """End the turn, keep its message for PLAY, and pause the room."""
    INTERRUPT = "interrupt"
    """End the turn; its message counts as handled."""
    PLAY = "play"
    """Go on with the room: what a stop has left is handled anew."""


@attrs.frozen
class Control:
    """A person's wish, for a room or for all.

    Attributes:
        room: None: every room.
        turn_id: only where this turn is the one that is being worked on.
        id: two of one kind, for one room and turn, with one id are one, however often it comes;
            None: each is its own.
        reason: free text, kept in the settlement.
        source: free text: where it came from.
    """

    kind: ControlKind
    room: str | None = None
    turn_id: str | None = None
    id: str | None = None
    reason: str = ""
    source: str = ""

    @property
    def key(self) -> Hashable | None:
        """What two that are one have in common; None where it is its own."""
        return None if self.id is None else (self.kind, self.room, self.turn_id, self.id)


class Claim(enum.Enum):
    """What a feed says to a message being handled now."""

    MINE = "mine"
    """It may be handled, here and by nobody else."""
    FINISHED = "finished"
    """It is finished already."""
    BUSY = "busy"
    """Somebody else handles it."""
    PAUSED = "paused"
    """Its room is paused, which may not have been known here."""


@attrs.frozen
class Standing:
    """How a room stands in its feed.

    Attributes:
        paused: a STOP was applied, and no PLAY since.
        waiting: it has messages that are not finished.
    """

    paused: bool = False
    waiting: bool = False


class Feed(Protocol):
    """Keeps messages until they are finished.

    Each method may be called for several rooms at once, and for one room once at a time. One that
    raises is called again, later and later, so that it may be told the same twice; but a
    `trio.ClosedResourceError` or a `trio.EndOfChannel` ends `serve_rooms`. A ValueError, TypeError
    or OverflowError is taken to be about what it was given: after ten of them, about a minute, it
    is not called again for that. `receive` and `rooms` are always.
    """

    async def receive(self) -> Message | Control:
        """Wait for the next message or control that somebody has posted.

        **Cancellation:** loses nothing.
        """
        ...

    async def rooms(self) -> Mapping[str, Standing]:
        """The rooms that have unfinished messages, or are paused; and how each stands.

        Asked once, at the beginning: nothing is being handled. A room is paused too where a STOP
        was posted for it, and nobody has received that.

        **Cancellation:** changes nothing.
        """
        ...

    async def next(self, room: str) -> Message | Literal[Claim.PAUSED] | None:
        """The room's oldest message that is not finished; None where there is none.

        `Claim.PAUSED` where there is one, and the room is paused.

        **Cancellation:** changes nothing.
        """
        ...

    async def claim(self, message: Message) -> Claim:
        """Ask whether the message may be handled.

        **Cancellation:** it may have been claimed: `release` follows.
        """
        ...

    async def release(self, message: Message) -> None:
        """It was not handled, and is unfinished as before; this was no attempt.

        **Cancellation:** it may stay claimed, as after a crash.
        """

    async def acknowledge(self, message: Message) -> None:
        """The message is finished. May be said more than once.

        **Cancellation:** it is finished, or not; it is said once more.
        """

    async def fail(self, message: Message, reason: str) -> bool:
        """It was handled and failed. Whether it is tried again is the feed's to decide, and to say.

        Args:
            reason: an error's type and what it says: at most some 4000 characters, fit for UTF-8.

        **Cancellation:** it has failed, or not; it is said once more.
        """
        ...

    async def refuse(self, message: Message, reason: str) -> None:
        """It came at a wrong time: it is finished, unless it is being handled by now.

        **Cancellation:** it is refused, or not.
        """

    async def applied(self, control: Control, rooms: Sequence[str]) -> None:
        """The control was applied to these rooms: after STOP they are paused, until PLAY.

        To none, where it has found none, or had been applied before: it is not to come again.

        Told in the order in which controls were applied, one at a time. It came from `receive`, or
        from elsewhere. Where this has failed for long, what others have overtaken since is left
        out: rooms that another has stopped or resumed, and what did not come from `receive`.

        **Cancellation:** it is known as applied, or not; it is told once more.
        """
