"""A blocking function that records how it is called and stopped, and does what it is ordered."""

from __future__ import annotations

import queue
import time

import attrs
import trio

from ...adapters.local import Stopped, ThreadWork
from ...events import Ask, Text
from .._probe import Work

__all__ = ["RecordingThread"]

TICK = 0.002


@attrs.define(eq=False)
class RecordingThread:
    """A blocking function for `open_local`.

    Attributes:
        works: its calls.
        obeys_after: seconds that it takes to end once it is stopped; None: it does not end.
    """

    works: list[Work] = attrs.field(factory=list, init=False)
    obeys_after: float | None = attrs.field(default=0.0, init=False)
    _orders: dict[Work, queue.SimpleQueue[tuple[str, str]]] = attrs.field(factory=dict, init=False)
    _released: bool = attrs.field(default=False, init=False)

    def __call__(self, turn: ThreadWork) -> None:
        """Work until ordered or stopped."""
        # A thread that is abandoned can ask Trio for nothing, not even for the time.
        now = trio.from_thread.run_sync(trio.current_time)
        offset = now - time.perf_counter()
        session = turn.session = turn.session or f"session-{len(self.works) + 1}"
        work = Work(turn.turn_id, str(turn.content), str(session), now, now)
        self._orders[work] = queue.SimpleQueue()
        self.works.append(work)
        try:
            self._obey(work, turn)
        except Stopped:
            work.told_at.append(time.perf_counter() + offset)
            self._dawdle(work, turn)
        finally:
            work.ended_at = time.perf_counter() + offset

    def _obey(self, work: Work, turn: ThreadWork) -> None:
        while True:
            turn.checkpoint()
            try:
                verb, text = self._orders[work].get(timeout=TICK)
            except queue.Empty:
                continue
            if verb == "say":
                turn.emit(Text(text))
            elif verb == "ask":
                self._ask(work, turn)
            elif verb == "fail":
                raise RuntimeError(f"ordered to fail: {work.text}")
            else:
                return

    def _ask(self, work: Work, turn: ThreadWork) -> None:
        try:
            work.replies.append(turn.ask(Ask("q1", "approval", "may I?", ("yes", "no"))))
        except Stopped:
            work.replies.append("stopped")
            raise

    def _dawdle(self, work: Work, turn: ThreadWork) -> None:
        """Go on for a while; `finish` is obeyed in any case, as is `let_go`."""
        began = time.perf_counter()
        while self.obeys_after is None or time.perf_counter() < began + self.obeys_after:
            if self._released:
                break
            try:
                verb, _ = self._orders[work].get(timeout=TICK)
            except queue.Empty:
                continue
            if verb == "finish":
                return
        turn.checkpoint()

    async def order(self, work: Work, verb: str, text: str) -> None:
        """Have a call say, ask, finish or fail; return once it has, or soon.

        **Cancellation:** the order stands.
        """
        self._orders[work].put((verb, text))
        await trio.sleep(20 * TICK)

    def let_go(self) -> None:
        """End what goes on in spite of its stop."""
        self._released = True
