"""The one task that watches some rooms: alarms, reports to observers, and their own shutdown."""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._records import Settlement

logger = logging.getLogger("turnstop")

Observer: TypeAlias = Callable[[Settlement], object]


@attrs.define(order=True)
class Alarm:
    """Something that is due at `when` on Trio's clock; `ring` is None once it is called off."""

    when: float
    number: int
    ring: Callable[[], None] | None = attrs.field(order=False)

    def call_off(self) -> None:
        """Let go of the callback now; the empty alarm leaves the heap when it is due."""
        self.ring = None


@attrs.define(eq=False)
class Watch:
    """A task of its own, so that a bound holds whatever a turn's own tasks do.

    Deadlines of stops are here, and not on cancel scopes, for two reasons: a scope bounds only
    code that lets itself be cancelled, and most stops end long before any deadline, which then
    has cost one push on a heap.
    """

    observers: list[Observer]
    _alarms: list[Alarm] = attrs.field(factory=list, init=False)
    _count: int = attrs.field(default=0, init=False)
    _reports: deque[Settlement] = attrs.field(factory=deque, init=False)
    _until: float = attrs.field(default=-math.inf, init=False)
    _parked: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _over: bool = attrs.field(default=False, init=False)

    def alarm(self, when: float, ring: Callable[[], None]) -> Alarm:
        """Have `ring` called by the watcher at `when` (Trio's clock, absolute)."""
        self._count += 1
        alarm = Alarm(when, self._count, ring)
        heapq.heappush(self._alarms, alarm)
        if when < self._until:
            self._wake()
        return alarm

    def report(self, settlement: Settlement) -> None:
        """Have the observers told, by the watcher: nobody else's step runs their code."""
        if self.observers:
            self._reports.append(settlement)
            self._wake()

    def close(self) -> None:
        """There will be no more alarms: end once the reports are delivered."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    @enable_ki_protection
    async def run(self, shut: Callable[[], None]) -> None:
        """Watch until `close`.

        **Cancellation:** calls `shut` in the step in which it arrives, and goes on watching.
        """
        try:
            await self._run()
        finally:
            shut()
            with trio.CancelScope(shield=True):
                await self._run()

    async def _run(self) -> None:
        while True:
            self._deliver()
            self._ring()
            if self._over and not self._reports:
                return
            self._until = self._alarms[0].when if self._alarms else math.inf
            with trio.CancelScope(deadline=self._until):
                await self._park()

    async def _park(self) -> None:
        self._parked = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._until = -math.inf

    def _ring(self) -> None:
        now = trio.current_time()
        while self._alarms and self._alarms[0].when <= now:
            ring = heapq.heappop(self._alarms).ring
            if ring is not None:
                ring()

    @trio.lowlevel.disable_ki_protection
    def _tell(self, observer: Observer, settlement: Settlement) -> None:
        observer(settlement)

    def _deliver(self) -> None:
        while self._reports:
            settlement = self._reports.popleft()
            for observer in tuple(self.observers):
                try:
                    self._tell(observer, settlement)
                except Exception:
                    self.observers.remove(observer)
                    logger.exception("an observer raised and is dropped: %r", observer)


def observers_of(given: Sequence[Observer]) -> list[Observer]:
    """Check that what was given as observers can be called."""
    for observer in given:
        if not callable(observer):
            raise TypeError(f"an observer is called with each settlement: {observer!r} cannot be")
    return list(given)
