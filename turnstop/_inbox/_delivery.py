"""One message on its way through a handler, and what is to become of it."""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

import attrs
import trio

from .._ending import Ending
from .._errors import RoomsClosed
from .._rooms import Rooms
from .._turn import Turn
from .._unwrap import reraise
from ._feed import Control, ControlKind, Message

__all__ = ["Delivery", "Fate"]

logger = logging.getLogger("turnstop.serve_rooms")


class Fate(enum.Enum):
    """What becomes of a message."""

    HANDLED = "handled"
    """The handler has finished, or its turn has although it was stopped: it is acknowledged."""
    CONSUMED = "consumed"
    """An INTERRUPT cut the handler: it is acknowledged."""
    LEFT = "left"
    """A STOP or the end of the inbox cut the handler: it is released."""
    FAILED = "failed"
    """The handler raised, or took too long; no control came."""


_LONG = 3900


def to_plain(text: str) -> str:
    """What every feed can keep: no lone surrogates, and not too long."""
    more = len(text) - _LONG
    if more > 0:
        text = f"{text[:_LONG]}... ({more} characters more)"
    return text.encode("utf-8", "backslashreplace").decode()


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return "cannot say what it is"


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
    _control: Control | None = None
    _raced: list[Turn] = attrs.field(factory=list)
    _open: bool = True

    @property
    def room(self) -> str:
        return self.message.room

    def turn(self, content: Any = None) -> Turn:
        """A turn that works on this message. Enter it with `async with`.

        After a STOP or an INTERRUPT it is one that was stopped: nothing is sent for it.

        Args:
            content: what the backend is given instead of the message's own content.

        Raises:
            RuntimeError: the message is not being handled any more.
        """
        if not self._open:
            raise RuntimeError(f"{self.message.id} was handled: make its turns in its handler")
        given = self.message.content if content is None else content
        turn = self._rooms.turn(self.room, given)
        self._turns.append(turn)
        if self._control is not None:
            self._race(turn, self._control)
        return turn

    def __repr__(self) -> str:
        return f"<Delivery of {self.message.id} in {self.room!r}>"

    # What the inbox calls.

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """The turns that work on it: those which are not settled, and the last."""
        last = self._turns[-1:]
        return tuple(
            turn.turn_id for turn in self._turns if turn in last or turn.settlement is None
        )

    @property
    def asks(self) -> tuple[str, ...]:
        """The questions of its turns that wait for a person."""
        return tuple(ask for turn in self._turns for ask in turn.asks)

    @property
    def is_interrupted(self) -> bool:
        """Whether an INTERRUPT has decided its fate, so far."""
        return self._control is not None and self._control.kind is ControlKind.INTERRUPT

    def answer(self, ask_id: str, reply: object) -> bool:
        """Give a person's reply to one of `asks`; False where it does not wait any more."""
        return any(turn.answer(ask_id, reply) for turn in self._turns)

    def mark(self, control: Control, turn_ids: Sequence[str]) -> None:
        """A STOP or INTERRUPT came: cancel the handler. The last that comes decides the fate.

        Args:
            turn_ids: the turns whose blocks it found open, and has asked to stop.
        """
        if not self._open:
            return
        if self._control is None:
            for turn in self._turns:
                if turn.turn_id in turn_ids or turn.task is None:
                    self._race(turn, control)
        self._control = control
        self._scope.cancel()

    def _race(self, turn: Turn, control: Control) -> None:
        self._raced.append(turn)
        if turn.task is None:
            # Not entered yet, so that its room does not know it.
            turn.stop(control.reason, control.source)

    async def run(
        self,
        handle: Callable[[Delivery], Awaitable[object]],
        limiter: trio.CapacityLimiter,
        within: float,
    ) -> tuple[Fate, str]:
        """Have it handled; return its fate, and why where it failed.

        Raises:
            RoomsClosed: there will be no more turns.

        **Cancellation:** the handler is cancelled, and its turn settled.
        """
        reason = ""
        try:
            with self._scope as scope:
                async with limiter:
                    scope.deadline = trio.current_time() + within
                    await handle(self)
        except Exception as error:
            reason = self._reason_of(error)
        self._open = False
        if self._control is not None:
            return self._fate_by(self._control, scope.cancelled_caught, bool(reason)), ""
        if (reason or self._is_unfinished) and self._is_ending:
            return Fate.LEFT, ""
        # A handler may swallow what cancels it; but its turn did not finish.
        if scope.cancelled_caught or (scope.cancel_called and self._is_unfinished):
            reason = reason or f"took longer than {within:g} s"
        return (Fate.FAILED if reason else Fate.HANDLED), reason

    def _fate_by(self, control: Control, was_cut: bool, raised: bool) -> Fate:
        """What a control makes of it: nothing where it has lost the race against the work."""
        raced = [turn for turn in self._raced if turn.task is not None]
        if raced:
            # Cut or not, what it reads was said by a turn that finished, or was not.
            was_cut = raced[-1].ending is not Ending.FINISHED
        if not (was_cut or raised):
            return Fate.HANDLED
        return Fate.LEFT if control.kind is ControlKind.STOP else Fate.CONSUMED

    def _reason_of(self, error: Exception) -> str:
        found = error
        while isinstance(found, ExceptionGroup):
            closed = found.subgroup(RoomsClosed)
            found = (found if closed is None else closed).exceptions[0]
        if isinstance(found, RoomsClosed):
            reraise(found)
        # What it says may be what was said to the agent: not for every log.
        name = type(found).__name__
        logger.warning("the handler of %s raised %s", self.message.id, name)
        logger.debug("it was", exc_info=error)
        return to_plain(f"{name}: {_text_of(found)}")

    @property
    def _is_unfinished(self) -> bool:
        """There were turns, and the last has not finished."""
        return bool(self._turns) and self._turns[-1].ending is not Ending.FINISHED

    @property
    def _is_ending(self) -> bool:
        """The inbox ends, or the rooms do: what the handler has made of that is not its work."""
        if trio.current_effective_deadline() == -math.inf:
            return True
        settlement = self._turns[-1].settlement if self._turns else None
        request = None if settlement is None else settlement.request
        return request is not None and request.kind == "closing"
