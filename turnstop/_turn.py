"""One turn, from its queue to its settlement.

How a stop works
================

Nothing here waits for anything else here. A turn is a handful of *facts* (it began, it was
revealed, it was asked to stop, its cancel came back, its follow returned, ...), kept by `Life`.
Each is noted, in one step, by whoever learns it, and after each `Life._advance` looks at all of
them and starts what is due. The tasks make one adapter call each and note how it went:

    _live         start, then follow
    _do_cancel    cancel, started by the stop, or by the reveal where the stop came first
    _do_kill      kill, in phase 2
    _do_reap      leftovers and sweep, in phase 3

Each runs in a shielded scope of its own in the rooms' nursery. An outer cancellation reaches none
of them: the block and the watcher turn it into a stop. Nobody waits for them either, since adapter
code may refuse to die. What bounds a stop is one alarm of the watcher, for the phase it is in:

    phase 1       from the asking, for cancel_within: the reveal, cancel(), the end
    phase 2       only without an end, up to asked + cancel_within + kill_within: kill()
    phase 3       kill_within more, only where the remote turn can list leftovers; also for a turn
                  that was lost with its process, which may have left commands behind

When the ending is known, calls that are still out are cancelled and given a few passes of the
scheduler to come back, in which no time goes by; then the turn is settled, and what has not come
back is a straggler: it is named, and only the exit of open_rooms waits for it.

A stop is one step, in this order. The request is noted first, for all that follows is done in its
name. The canceller is started before the body is cancelled: both run in the next pass, so that the
backend is told whatever the body does on its way out. The gate closes in between, for the body's
cancellation may run code that is not ours.

The block is the other half. Whoever leaves it has stopped the turn, and waits in a way that
neither a cancellation nor Ctrl-C ends: bounded, since the settlement is. Then the room goes to the
next in the queue, in that same step.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._admission import Door
from ._ending import Ending
from ._gate import Gate
from ._house import House, Orphan, refuse_abort
from ._life import Life
from ._receipt import StopReceipt, ask_all
from ._records import OnlyMadeByUs, Settlement, StopRequest, StopVerdict
from ._unwrap import reraise
from .events import Ask, Event


@final
@attrs.define(eq=False, repr=False)
class Turn(metaclass=OnlyMadeByUs):
    """One request, as an async context manager: the room is yours inside the block.

    Made by `Rooms.turn`; iterate over it for its events. Leaving the block for any reason stops
    the turn, if it has not ended, and waits until it is settled.

    Attributes:
        room: the conversation.
        turn_id: names the turn in stops, records and logs.
        settlement: what became of it; None until that is known.

    **Cancellation:** entering: nothing was sent, and the room passes to the next. Inside: the
    turn is stopped. Leaving: waits for the settlement first, within the stop's budget.
    """

    _house: House
    room: str
    turn_id: str
    _content: object
    settlement: Settlement | None = attrs.field(default=None, init=False)
    task: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _life: Life = attrs.field(init=False)
    _gate: Gate = attrs.field(init=False)
    _body: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _door: Door | None = attrs.field(default=None, init=False)
    _halted: bool = attrs.field(default=False, init=False)
    _left: bool = attrs.field(default=False, init=False)
    _leaver: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _event: trio.Event | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._life = Life(self._house, self.room, self.turn_id, self._content, self)
        self._gate = self._life.gate

    # The block.

    @enable_ki_protection
    async def __aenter__(self) -> Self:
        if self._door is not None:
            raise RuntimeError(f"turn {self.turn_id} was entered before: make a new one")
        door = self._house.door(self.room)
        self._door = self._life.door = door
        self.task = trio.lowlevel.current_task()
        try:
            if not door.take_nowait(self):
                # It is at work already: the others may not have begun when it has ended.
                await door.wait(self, first=isinstance(self._content, Orphan))
            # Cancelled by now: the room is for somebody who can use it.
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self.ask(StopRequest("cancelled"))
            self._leave(door)
            raise
        self._body.__enter__()
        if not self._halted:
            self._life.begin()
        return self

    @enable_ki_protection
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        assert self._door is not None
        rest: BaseException | None = None
        try:
            absorbed = self._body.__exit__(exc_type, exc, traceback)
        except BaseException as group:  # raised again below, once the turn is settled
            rest, absorbed = group, False
            if isinstance(exc, BaseExceptionGroup) and exc.subgroup(trio.Cancelled) is None:
                rest = None  # a mere copy: Trio splits any group that meets a cancelled scope
        if self.settlement is None and not self._halted:
            cancelled = trio.current_effective_deadline() == -math.inf
            self.ask(StopRequest("cancelled" if cancelled else "left"))
        if self.settlement is None:
            self._leaver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(refuse_abort)
        elif self._gate.reader is not self.task:
            # A block is a checkpoint once: a body that has read its events was one.
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._leave(self._door)
        if rest is not None:
            reraise(rest)
        if exc is not None and not absorbed:
            return False
        await trio.lowlevel.checkpoint_if_cancelled()
        error = self._gate.take_error()
        if error is not None:
            reraise(error)
        return absorbed

    def _leave(self, door: Door) -> None:
        self._gate.close()
        if self.settlement is not None and self.settlement.dropped != self._gate.dropped:
            self.settlement = attrs.evolve(self.settlement, dropped=self._gate.dropped)
        self._house.leave(door, self)
        # End the cycle of block, life and gate now, and not at some gc.
        del self._life.block, self._gate.owner
        self._left = True

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[object, object, Event]:
        if self._door is None and self.settlement is None:
            raise RuntimeError(f"turn {self.turn_id} says nothing yet: enter it with `async with`")
        return self._gate.next()

    # The face.

    @property
    def ending(self) -> Ending | None:
        """What became of it; None until that is known."""
        return None if self.settlement is None else self.settlement.ending

    @enable_ki_protection
    def stop(self, reason: str = "", source: str = "") -> StopReceipt:
        """Stop this turn. Never waits; may be called before entering, and any number of times.

        Raises:
            RuntimeError: called from another thread.
        """
        self._house.check_thread()
        return ask_all((self,), StopRequest("stop", reason, source), StopVerdict.STALE)

    @property
    def asks(self) -> tuple[str, ...]:
        """The ids of its questions that wait for a person, the oldest first."""
        return self._gate.asks

    def answer(self, ask: Ask | str, reply: object) -> bool:
        """Give a person's reply to an `Ask`, or to its id; False where nobody waits for it."""
        return self._gate.answer(ask if isinstance(ask, str) else ask.id, reply)

    async def wait_settled(self) -> Settlement:
        """Wait for the settlement.

        **Cancellation:** changes nothing about the turn.
        """
        if self.settlement is None:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
            assert self.settlement is not None
        return self.settlement

    def __repr__(self) -> str:
        return f"<Turn {self.turn_id} of {self.room!r}: {self.state}>"

    @property
    def state(self) -> str:
        """One word: `new`, `waiting`, `live`, `stopping`, or the ending once there is one."""
        if self.settlement is not None:
            return self.settlement.ending.value
        if self._life.phase:
            return "stopping"
        if self._door is None:
            return "new"
        return "live" if self._door.holder is self else "waiting"

    # What the kernel calls.

    def ask(self, request: StopRequest) -> StopVerdict:
        """Do all that a stop does, in this step."""
        if self._left:
            return StopVerdict.STALE
        if self._halted or (isinstance(self._content, Orphan) and not self._life.began):
            # One that another process has left is stopped when it has its room: its backend can
            # be told no earlier, and its time would be over before.
            return StopVerdict.JOINED
        self._halted = True
        verdict = StopVerdict.ASKED
        if self.settlement is None:
            if self._life.phase == 0:
                self._life.stop(request)
            else:
                verdict = StopVerdict.JOINED
        self._gate.close()
        # Last: this runs the abort function of whatever the body waits in, which is anybody's.
        self._body.cancel()
        return verdict

    def halt(self) -> None:
        """Cancel the body of a turn that failed and that nobody ever read."""
        self._body.cancel()

    def note_settled(self) -> None:
        """The settlement is known, in this step."""
        self.settlement = self._life.settlement
        if self._event is not None:
            self._event.set()
        if self._leaver is not None:
            trio.lowlevel.reschedule(self._leaver)
