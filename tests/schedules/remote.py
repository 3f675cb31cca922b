"""A remote turn that does what a script says, and keeps the truth: when work really runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import trio

from turnstop import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from turnstop.abc import Emit, End, How, Proof, Silenced, current_turn
from turnstop.events import Ask, Event, Text, ToolCall

from .ledger import Call, Ledger, Record
from .script import DEAF_FOR, NEVER, Plan

FLOOD = "x" * (4 * 1024 * 1024 + 1)
ERRORS: dict[str, Callable[[str], Exception]] = {
    "refuses": BackendRefused,
    "errs": BackendError,
    "loses": BackendLost,
    "loses_gone": lambda text: BackendLost(text, gone=True),
    "crashes": ValueError,
    "raises": ConnectionResetError,
}


class Remote:
    """One remote turn."""

    def __init__(self, world: Ledger, record: Record) -> None:
        self.world, self.record, self.script = world, record, record.script
        self.id = record.turn.turn_id
        self.session: object = None
        self.acknowledges = self.script.acknowledges
        self.end = self.script.end
        self.visible = self.breaks = NEVER
        self.breaking = self.script.breaks[1]
        self.changed = trio.Event()
        if self.script.kill is not None:
            self.kill = self._kill
        if self.script.leftovers is not None:
            self.leftovers, self.sweep = self._leftovers, self._sweep

    @contextmanager
    def called(self, name: str) -> Generator[Call]:
        record, now = self.record, trio.current_time()
        call = Call(now)
        record.calls.setdefault(name, []).append(call)
        self.world.say(self.id, f"{name}() is called")
        if current_turn.get("nobody") != self.id:
            self.world.blame(self.id, f"{name}(): current_turn is {current_turn.get('nobody')}")
        try:
            yield call
        except BaseException as error:
            call.result = error
            if isinstance(error, trio.Cancelled):
                call.cancelled = min(call.cancelled, trio.current_time())
            raise
        finally:
            call.back = trio.current_time()
            self.world.say(self.id, f"{name}() is over: {call.result!r}")
            if name in ("start", "follow"):
                self._note_outcome(call)

    def _note_outcome(self, call: Call) -> None:
        if isinstance(call.result, End | Exception):
            self.record.outcome, self.record.outcome_at = call.result, call.back
            self.record.outcome_step = self.world.step()

    async def perform(self, plan: Plan, call: Call) -> None:
        """Take the time that the plan says, then raise what it says."""
        try:
            with trio.CancelScope(shield=plan.manner == "deaf"):
                await trio.sleep(plan.lasts)
        except trio.Cancelled:
            call.cancelled = trio.current_time()
            if plan.manner == "spiteful":
                raise OSError(f"{self.id}: no way to leave") from None
            raise
        if plan.outcome in ERRORS:
            if plan.outcome == "loses_gone":
                self._work_ends(trio.current_time())
            raise ERRORS[plan.outcome](f"{self.id}: {plan.outcome}")

    def reveal(self) -> None:
        record, now = self.record, trio.current_time()
        if self.script.session:
            self.session = record.session = f"session of {self.id}"
        record.revealed = now
        self.breaks = now + self.script.breaks[0]
        self.visible = max(now, record.over + self.script.lag)
        if self.end.how is not How.COMPLETED and self.end.proof is Proof.CLAIMED:
            record.over += 1.0  # nothing but a claim: the work goes on for a while

    def undo(self) -> None:
        """A cancelled start cleans up after itself."""
        now = trio.current_time()
        if self.record.began > now:
            self.record.began = NEVER
        self._work_ends(now)

    def _work_ends(self, when: float) -> None:
        self.record.over = min(self.record.over, when)

    def _change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def follow(self, emit: Emit) -> End:
        with self.called("follow") as call:
            if self.script.deaf:
                with trio.move_on_after(DEAF_FOR, shield=True):
                    call.result = await self._follow(emit)
                    return call.result
                raise BackendMisbehaved(f"{self.id}: deaf, and never ended")
            call.result = await self._follow(emit)
            return call.result

    async def _follow(self, emit: Emit) -> End:
        events = list(self.script.events)
        due = trio.current_time() + events[0][0] if events else NEVER
        while True:
            now = trio.current_time()
            if now >= due:
                self._emit(emit, events.pop(0)[1])
                due = now + events[0][0] if events else NEVER
                continue
            if now >= self.visible:
                return self.end
            if now >= self.breaks:
                if self.breaking == "loses_gone":
                    self._work_ends(now)
                raise ERRORS[self.breaking](f"{self.id}: {self.breaking}")
            with trio.CancelScope(deadline=min(due, self.visible, self.breaks)):
                await self.changed.wait()

    def _emit(self, emit: Emit, kind: str) -> None:
        self.world.say(self.id, f"emits {kind}")
        if kind == "ask":
            self.record.asks += 1
            self.world.asker.start_soon(self._ask, emit)
            return
        number = self.record.emitted = self.record.emitted + 1
        if self.session is not None and self.record.turn.settlement is None:
            self.session = self.record.session = f"session of {self.id}, grown to {number}"
        event: Event = ToolCall(f"{self.id}:{number}", "tool", "started")
        if kind == "text":
            event, self.record.merged = Text(f"{self.id}:{number} "), True
        elif kind == "flood":
            # Two of them, since one event of any size is no backlog.
            self.record.emitted += 1
            emit(event)
            event = ToolCall(f"{self.id}:flood", "flood", "running", FLOOD)
        emit(event)

    async def _ask(self, emit: Emit) -> None:
        if self.record.turn.settlement is not None:
            self.record.asks -= 1
            return
        number = self.record.emitted = self.record.emitted + 1
        ask = Ask(f"{self.id}:{number}", "question", "?")
        asked = trio.current_time()
        try:
            reply = await emit.ask(ask)
            if reply != f"reply to {ask.id}":
                self.world.blame(self.id, f"{ask.id} was answered {reply}")
        except Silenced:
            self.record.silenced.append((asked, trio.current_time()))
            if self.record.turn.state == "live" and not self.record.stopped < NEVER:
                self.world.blame(self.id, f"{ask.id} was silenced while the turn is live")
        self.record.asks -= 1

    async def cancel(self, sent: Callable[[], None]) -> None:
        self._check_call("cancel")
        script, record = self.script, self.record
        with self.called("cancel") as call:
            if script.cancel.outcome == "works" and record.work_over(call.at) is False:
                self.world.asker.start_soon(self._take_effect)
            if script.sent < script.cancel.lasts:
                with trio.CancelScope(shield=script.cancel.manner == "deaf"):
                    await trio.sleep(script.sent)
                record.sent = trio.current_time()
                sent()
            await self.perform(script.cancel, call)

    async def _take_effect(self) -> None:
        await trio.sleep(self.script.cancel_takes)
        now, record = trio.current_time(), self.record
        if record.over <= now:
            return
        self.world.say(self.id, "cancel takes effect")
        self.end, self.visible = self.script.told, now + self.script.lag
        if self.end.how is How.COMPLETED or self.end.proof is not Proof.CLAIMED:
            self._work_ends(now)
        self._change()

    async def _kill(self) -> None:
        self._check_call("kill")
        assert self.script.kill is not None
        with self.called("kill") as call:
            await self.perform(self.script.kill, call)
            now = trio.current_time()
            call.result = "killed"
            if self.record.over > now:
                self._work_ends(now)
                self.end = End(How.CANCELLED, Proof.PROCESS)
                self.visible = now + self.script.lag if self.script.after_kill == "ends" else NEVER
                self.breaking = "loses_gone"
                self.breaks = now if self.script.after_kill == "loses" else NEVER
                self._change()

    def _check_call(self, name: str) -> None:
        record = self.record
        if name in record.calls:
            self.world.blame(self.id, f"a second {name}()")
        if isinstance(record.outcome, End):
            self.world.blame(self.id, f"{name}() after the end")
        if record.turn.settlement is not None and "follow" in record.calls:
            self.world.blame(self.id, f"{name}() after the settlement")

    async def _leftovers(self) -> Sequence[object]:
        assert self.script.leftovers is not None
        with self.called("leftovers") as call:
            await self.perform(self.script.leftovers, call)
            call.result = [f"leftover {n} of {self.id}" for n in range(self.script.left)]
            return call.result

    async def _sweep(self, leftovers: Sequence[object]) -> Sequence[object]:
        with self.called("sweep") as call:
            await self.perform(self.script.sweep, call)
            call.result = leftovers if self.script.sweep.outcome == "fails" else []
            return call.result
