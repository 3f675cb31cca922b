"""The remote half of a turn: its facts, and what is due after each. `_turn` has the essay."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import attrs
import trio

from ._account import Account
from ._calls import Call, Late, Reaping, offers, unprotected
from ._ending import End, Ending, How, Verdict, check_end
from ._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ._gate import Gate
from ._house import ANNOUNCED_WITHIN, Announcer, Entry, Orphan, find_address
from ._records import Settlement, StopRequest
from .abc import Request, current_turn

logger = logging.getLogger("turnstop")

# A cancelled call that unwinds at once is gone within a few passes of the scheduler, in which no
# time goes by; what is still there then is named as a survivor.
PASSES = 10


class _TurnId(str):
    """A turn's id in an object of the turn's own: another room may have a turn of the same name."""

    __slots__ = ()


@attrs.define(eq=False)
class Life(Account):
    """One remote turn from start to settlement.

    Attributes:
        gate: what it says, and to whom.
        due: when its alarm rings, or rang (Trio's clock); None where none is wanted.
        phase: 1 to 3 while it is being stopped, or what it left is looked for; else 0.
    """

    gate: Gate = attrs.field(init=False)
    due: float | None = attrs.field(default=None, init=False)
    _context: Context | None = attrs.field(default=None, init=False)
    phase: int = attrs.field(default=0, init=False)
    _lingering: bool = attrs.field(default=False, init=False)
    _verdict: Verdict | None = attrs.field(default=None, init=False)
    _entry: Entry | None = attrs.field(default=None, init=False)
    _announcer: Announcer | None = attrs.field(default=None, init=False)
    _announcing: tuple[trio.CancelScope, ...] = attrs.field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        self.gate = Gate(self, self.house.tally)
        # It began before there was a block.
        self._life.called = isinstance(self.content, Orphan)

    @property
    def began(self) -> bool:
        """Whether its block was entered."""
        return self._context is not None

    # What happens to it.

    def begin(self) -> None:
        """The block is entered: start the remote turn."""
        self._context = copy_context()
        self._context.run(current_turn.set, _TurnId(self.turn_id))
        if isinstance(self.content, Orphan):
            self._entry = self.content.entry
            self._hands_on = self.door is not None and self.door.session is None
        elif not self.house.announces:
            # Else a file would have it without its address, and nobody could tell whether it was
            # sent: a disk that fails is not waited for.
            self._admit()
        self._spawn(self._live, "turnstop life")

    def _admit(self) -> None:
        if self._entry is None and (journal := self.house.journal) is not None:
            self._entry = journal.admit(self.house.backend_name, self.room, self.turn_id)

    def stop(self, request: StopRequest) -> None:
        """Note who asks, and have the backend told; a turn that never began is settled at once."""
        self.request, self._asked_wall = request, time.time()
        if self._entry is not None:
            self._entry.note_asked(request)
        self._begin_stop()

    def _begin_stop(self) -> None:
        self.since = trio.current_time()
        if not self._life.called:
            self._settle()
            return
        self.phase = 1
        self.house.watch.set_first(self, self.since + self.house.budget.cancel_within)
        if self._remote is not None:
            self._spawn(self._do_cancel, "turnstop cancel")
        for scope in self._announcing:
            scope.cancel()

    def overflow(self) -> None:
        self._backlog_error = BackendError(
            "reader too slow: the turn was stopped. Read its events without waiting on each, "
            "or stop it when they are not wanted"
        )
        self._errors += (self._backlog_error,)
        self.block.ask(StopRequest("backlog", "reader too slow"))

    def _reveal(self, remote: Any) -> None:
        if not hasattr(remote, "follow"):
            raise BackendMisbehaved(f"start() returned {remote!r}, which is no remote turn")
        assert self.door is not None
        # Whatever goes wrong from here on, it is known, and told to stop.
        self._remote, self._life.name = remote, "follow"
        if self.since is not None:
            self._spawn(self._do_cancel, "turnstop cancel")
        if not isinstance(self.content, Orphan):
            self.door.previous = None
        self._hand_on()
        self._admit()
        if self._entry is not None and (address := find_address(remote)) is not None:
            self._entry.note_address(address)

    def _note_sent(self) -> None:
        if self._sent_at is None:
            self._sent_at = trio.current_time()
            self._advance()

    def _note_end(self, end: End | None, error: BaseException | None) -> None:
        self._life.over = True
        if error is not None:
            self._errors += (error,)
        if self._verdict is not None:
            return
        self._end, self._error = end, error
        if end is not None and end.how is How.FAILED and self._cancel is None:
            error = BackendError(end.detail or "the backend says that the turn failed")
            self._errors += (error,)
        if end is not None or self._gone:
            self._ended_at = trio.current_time()
        if self.since is None:
            self._note_end_unasked(end, error)
        self._advance()

    def _note_end_unasked(self, end: End | None, error: BaseException | None) -> None:
        if error is None or isinstance(error, Exception):
            self.gate.finish(error)
            if error is not None and self.gate.reader is None:
                self.block.halt()
        # An exception is not an end: the backend is told all the same.
        if end is None and self._remote is not None and not self._gone:
            self._begin_stop()

    # What is due.

    def _advance(self) -> None:
        if self._verdict is not None:
            return
        failed = self._life.over and self._end is None
        if self._life.over and not (failed and self._remote is not None and not self._gone):
            self._conclude()
        elif self._cancel is not None and self._cancel_had_its_turn(failed):
            if self._kill is None and offers(self._remote, "kill"):
                self._start_kill()
            elif failed and (self._kill is None or self._kill.over):
                self._conclude()

    def _cancel_had_its_turn(self, failed: bool) -> bool:
        assert self._cancel is not None
        if self.phase == 2:
            return self._cancel.over or self._cancel.given_up or self._sent_at is not None
        return failed and self._cancel.over

    def ring(self) -> None:
        if self.phase == 1:
            self._enter_phase_two()
            if self._cancel is not None:
                self._cancel.give_up()
            self._advance()
        elif self._verdict is None:
            self._conclude()
        else:
            self._wrap_up()
        if self._lingering and self.settlement is None:
            self._spawn(self._linger, "turnstop settlement")

    def _enter_phase_two(self) -> None:
        assert self.since is not None
        self.phase = 2
        budget = self.house.budget
        self.house.watch.set_later(self, self.since + budget.cancel_within + budget.kill_within)

    def _bound_is_over(self) -> bool:
        # The watcher need not have rung: both may be due in the same pass.
        budget = self.house.budget
        bound = budget.cancel_within + budget.kill_within
        return self.since is not None and trio.current_time() >= self.since + bound

    def _start_kill(self) -> None:
        self._kill = call = Call("kill")
        self._spawn(partial(self._do_kill, call), "turnstop kill")

    def _conclude(self) -> None:
        """The ending is known from here on; what is left of the bound is for leftovers."""
        self._verdict = self._judge()
        if self._announcer is not None:
            self._announcer.tell = None
        if self.since is None and self._error is None:
            self._settle()
        elif offers(self._remote, "leftovers"):
            for call in (self._cancel, self._kill):
                if call is not None and call.alive:
                    call.give_up()
            self.phase = 3
            due = trio.current_time() + self.house.budget.kill_within
            self.house.watch.set_later(self, due)
            self._reaping = reaping = Reaping(self._remote, self.house.sweep)
            self._spawn(partial(self._do_reap, reaping), "turnstop leftovers")
        else:
            self._wrap_up()

    def _wrap_up(self) -> None:
        if self._alive():
            self._lingering = True
        else:
            self._settle()

    # The tasks.

    async def _live(self) -> None:
        if self.settlement is not None:
            # It was stopped in the pass in which its block was entered.
            self.house.stragglers.pop(self._life, None)
            return
        end: End | None = None
        error: BaseException | None = None
        late: Any = None
        self._life.called = True
        try:
            with self._life.scope:
                remote = await unprotected(*self._opening())
                if self._verdict is not None or self._bound_is_over():
                    late = remote
                else:
                    self._reveal(remote)
                    end = check_end(await unprotected(remote.follow, self.gate))
        except Exception as raised:
            error = raised
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._note_end(end, error)
            if late is None:
                self.house.stragglers.pop(self._life, None)
        if late is not None:
            await self._stop_late(late)
            self.house.stragglers.pop(self._life, None)
        else:
            await self._see_out()

    def _opening(self) -> tuple[Callable[..., Awaitable[Any]], object]:
        if isinstance(self.content, Orphan):
            return self._attaching(self.content)
        return self.house.backend.start, self._make_request()

    def _make_request(self) -> Request[object]:
        assert self.door is not None
        told = (self.room, self.turn_id, self.content, self.door.session, self.door.previous)
        if self.house.journal is None:
            return Request(*told)
        self._announcer = Announcer(self._announce)
        return Request(*told, self._announcer)

    def _attaching(self, orphan: Orphan) -> tuple[Callable[..., Awaitable[Any]], object]:
        attach = getattr(self.house.backend, "attach", None)
        if attach is None:
            raise BackendLost("this backend cannot take up what another process has begun")
        if orphan.address is None:
            raise BackendLost("the process was gone before it was known where the turn is")
        return attach, orphan.address

    async def _announce(self, address: str) -> None:
        if self.since is None:
            self._admit()
            assert self._entry is not None
            self._entry.note_address(address)
            with trio.move_on_after(ANNOUNCED_WITHIN) as scope:
                self._announcing += (scope,)
                await self._entry.saved()
        if self.since is not None or self._verdict is not None:
            raise BackendRefused("the turn was stopped before it was sent: nothing began")

    async def _stop_late(self, remote: Any, following: Call | None = None) -> None:
        within, stragglers = self.house.budget.kill_within, self.house.stragglers
        late = Late(
            self.turn_id, remote, within, stragglers, self._spawn, self._note_sent, following
        )
        await late.stop()

    async def _do_cancel(self) -> None:
        # None after the end: the call is made only where there is something to be told of.
        if self._verdict is None:
            self._cancel = Call("cancel")
            await self._attempt(self._cancel, self._note_sent)
        elif self._end is None and not self._gone:
            # Revealed just in time, and the bound was over in the next pass.
            await self._stop_late(self._remote, None if self._life.over else self._life)

    async def _do_kill(self, call: Call) -> None:
        if self._verdict is None:
            await self._attempt(call)

    async def _attempt(self, call: Call, *args: Any) -> None:
        try:
            await call.make(getattr(self._remote, call.name), *args)
        except Exception as error:
            self._errors += (error,)
        finally:
            self._advance()
        await self._see_out()

    async def _do_reap(self, reaping: Reaping) -> None:
        # A program that stood still has the alarm ring first, and then nobody would end the call.
        if self.settlement is not None:
            return
        try:
            await reaping.run()
        except Exception as error:
            self._errors += (error,)
        finally:
            self._wrap_up()
        await self._see_out()

    async def _see_out(self) -> None:
        if self._lingering and self.settlement is None:
            await self._linger()

    async def _linger(self) -> None:
        """The ending is known and calls are still out: give them a moment, then settle."""
        # A call whose answer is here already needs no cancellation.
        await trio.lowlevel.cancel_shielded_checkpoint()
        for call in self._alive():
            call.give_up()
        for _ in range(PASSES):
            if not self._alive():
                break
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._settle()

    def _settle(self) -> None:
        if self.settlement is not None:
            return
        verdict = self._verdict = self._verdict or self._judge()
        stragglers = self._alive() if self.phase else ()
        try:
            self._look_back()
        finally:
            # Whatever an adapter's attribute raised: somebody waits for this.
            settlement = self._note_settlement(verdict, stragglers)
        # Last, for a handler of the log is anybody's code.
        for call in stragglers:
            logger.warning("%s: room %r goes on without it", self._name(call), self.room)
        if not verdict.gone:
            self._warn(settlement)

    def _note_settlement(self, verdict: Verdict, stragglers: Sequence[Call]) -> Settlement:
        self.house.watch.call_off(self)
        backlog = verdict.ending is Ending.FAILED and self._backlog_error
        survivors = self._name_survivors(stragglers) if self.phase else ()
        self.settlement = settlement = self._make_settlement(
            verdict, survivors, self.gate.dropped, trio.current_time()
        )
        self.block.note_settled()
        self.gate.finish(backlog or None)
        self.house.watch.report(settlement)
        if self._entry is not None:
            self._entry.note_settled(settlement)
        if not verdict.gone:
            assert self.door is not None
            self.door.previous = settlement
        return settlement

    def _warn(self, settlement: Settlement) -> None:
        logger.warning(
            "turn %s of room %r is %s, its work may be alive; errors: %s; survivors: %s",
            self.turn_id,
            self.room,
            settlement.ending.value,
            list(settlement.errors),
            list(settlement.survivors),
        )

    def _spawn(self, fn: Callable[[], Awaitable[object]], name: str) -> None:
        assert self._context is not None
        self.house.workers.spawn(self._context, fn, name)
