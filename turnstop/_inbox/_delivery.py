"""One message on its way through a handler, and what is to become of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, final

import attrs
import trio

from .._ending import Ending
from .._errors import RoomsClosed
from .._rooms import Rooms
from .._turn import Turn
from ._feed import ControlKind, Message

__all__ = ["Delivery", "Fate"]


class Fate(enum.Enum):
    """What becomes of a message."""

    HANDLED = "handled"
    """The handler has finished: it is acknowledged."""
    CONSUMED = "consumed"
    """An INTERRUPT came: it is acknowledged."""
    LEFT = "left"
    """A STOP or the end of the inbox came: it is released."""
    FAILED = "failed"
    """The handler raised, or took too long."""


@final
@attrs.define(eq=False, repr=False)
class Delivery:
    """A message that a handler is given.

    Attributes:
        message: what somebody posted.
        room: the conversation.
    """

    message: Message
    _rooms: Rooms[Any]
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _turns: list[Turn] = attrs.field(factory=list)
    _kind: ControlKind | None = None
    _open: bool = True

    @property
    def room(self) -> str:
        return self.message.room

    def turn(self, content: Any = None) -> Turn:
        """A turn that works on this message. Enter it with `async with`.

        Args:
            content: what the backend is given instead of the message's own content.
        """
        given = self.message.content if content is None else content
        turn = self._rooms.turn(self.room, given)
        self._turns.append(turn)
        return turn

    def __repr__(self) -> str:
        return f"<Delivery of {self.message.id} in {self.room!r}>"

    # What the inbox calls.

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """The turns that were made for it."""
        return tuple(turn.turn_id for turn in self._turns)

    @property
    def asks(self) -> tuple[str, ...]:
        """The questions of its turns that wait for a person."""
        return tuple(ask for turn in self._turns for ask in turn.asks)

    def answer(self, ask_id: str, reply: object) -> bool:
        """Give a person's reply to one of `asks`; False where it does not wait any more."""
        return any(turn.answer(ask_id, reply) for turn in self._turns)

    def mark(self, kind: ControlKind) -> None:
        """A STOP or INTERRUPT came: cancel the handler. The last that comes decides the fate."""
        if self._open:
            self._kind = kind
            self._scope.cancel()

    async def run(self, handle: Callable[[Delivery], Any], within: float) -> tuple[Fate, str]:
        """Have it handled; return its fate, and why where it failed.

        Raises:
            RoomsClosed: there will be no more turns.

        **Cancellation:** the handler is cancelled, and its turn settled.
        """
        reason = ""
        with trio.move_on_after(within) as limit:
            try:
                with self._scope:
                    # A control that came before the handler began lets it not begin at all.
                    await trio.lowlevel.checkpoint_if_cancelled()
                    await handle(self)
            except RoomsClosed:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
        self._open = False
        if limit.cancelled_caught:
            reason = f"took longer than {within:g} s"
        return self._fate(reason), reason

    def _fate(self, reason: str) -> Fate:
        # The stop may have lost the race against the work.
        if self._kind is None or any(turn.ending is Ending.FINISHED for turn in self._turns):
            return Fate.FAILED if reason else Fate.HANDLED
        return Fate.LEFT if self._kind is ControlKind.STOP else Fate.CONSUMED
