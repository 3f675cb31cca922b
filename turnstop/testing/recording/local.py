"""A function that records how it is called and cancelled, and does what it is ordered."""

from __future__ import annotations

import math

import attrs
import trio

from ...abc import Silenced
from ...adapters.local import Work as Turn
from ...events import Ask, Text
from .._probe import Work

__all__ = ["RecordingFunction"]


@attrs.define(eq=False)
class _Orders:
    send: trio.MemorySendChannel[tuple[str, str]]
    receive: trio.MemoryReceiveChannel[tuple[str, str]]
    turn: Turn


@attrs.define(eq=False)
class RecordingFunction:
    """An async function for `open_local`.

    Attributes:
        works: its calls.
        obeys_after: seconds that it takes to end once it is cancelled; None: it does not end.
    """

    works: list[Work] = attrs.field(factory=list, init=False)
    obeys_after: float | None = attrs.field(default=0.0, init=False)
    _orders: dict[Work, _Orders] = attrs.field(factory=dict, init=False)
    _deaf: list[trio.CancelScope] = attrs.field(factory=list, init=False)

    async def __call__(self, turn: Turn) -> None:
        """Work until ordered or cancelled.

        **Cancellation:** is obeyed after `obeys_after` seconds.
        """
        now = trio.current_time()
        session = turn.session = turn.session or f"session-{len(self.works) + 1}"
        work = Work(turn.turn_id, str(turn.content), str(session), now, now)
        self.works.append(work)
        self._orders[work] = _Orders(*trio.open_memory_channel[tuple[str, str]](math.inf), turn)
        try:
            await self._obey(work)
        except (trio.Cancelled, Silenced):
            work.told_at.append(trio.current_time())
            # Swallowed where it finishes in spite of it, as real functions do.
            if not await self._dawdle(work):
                raise
        finally:
            work.ended_at = trio.current_time()

    async def _obey(self, work: Work) -> None:
        orders = self._orders[work]
        async for verb, text in orders.receive:
            if verb == "say":
                orders.turn.emit(Text(text))
            elif verb == "ask":
                await self._ask(work, orders.turn)
            elif verb == "fail":
                raise RuntimeError(f"ordered to fail: {work.text}")
            else:
                return

    async def _ask(self, work: Work, turn: Turn) -> None:
        try:
            work.replies.append(await turn.ask(Ask("q1", "approval", "may I?", ("yes", "no"))))
        except Silenced:
            work.replies.append("silenced")
            raise

    async def _dawdle(self, work: Work) -> bool:
        """Whether it was ordered to finish before it obeyed."""
        after = math.inf if self.obeys_after is None else self.obeys_after
        with trio.CancelScope(shield=True, deadline=trio.current_time() + after) as scope:
            self._deaf.append(scope)
            await self._obey(work)
        return not scope.cancelled_caught

    async def order(self, work: Work, verb: str, text: str) -> None:
        """Have a call say, ask, finish or fail; return once it has.

        **Cancellation:** the order stands.
        """
        self._orders[work].send.send_nowait((verb, text))
        await trio.sleep(0.001)

    def let_go(self) -> None:
        """End what goes on in spite of its cancellation; from now on it obeys at once."""
        self.obeys_after = 0.0
        for scope in self._deaf:
            scope.cancel()
