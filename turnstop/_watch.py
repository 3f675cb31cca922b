"""The one task that watches some rooms: alarms, reports to observers, and their own shutdown."""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._records import Settlement

logger = logging.getLogger("turnstop")

Observer: TypeAlias = Callable[[Settlement], object]

# Alarms that are called off are not worth the looking while there are no more than these.
FEW = 32


class Ringable(Protocol):
    """Something that has one alarm at most.

    Attributes:
        due: when its alarm rings, or rang (Trio's clock); None where none is wanted.
    """

    due: float | None

    def ring(self) -> None:
        """Its alarm is due: called by the watcher, in one step."""


@attrs.define(eq=False)
class Watch:
    """A task of its own, so that a bound holds whatever a turn's own tasks do.

    Deadlines of stops are here, and not on cancel scopes, for two reasons: a scope bounds only
    code that lets itself be cancelled, and most stops end long before their deadline, which then
    has cost next to nothing. First alarms all ring the same time after they are set, so that the
    order of a dict is their order; later ones are rare, and go on a heap.
    """

    observers: list[Observer]
    _first: dict[Ringable, None] = attrs.field(factory=dict, init=False)
    _later: list[tuple[float, int, Ringable]] = attrs.field(factory=list, init=False)
    _count: int = attrs.field(default=0, init=False)
    _called_off: int = attrs.field(default=0, init=False)
    _reports: deque[tuple[Observer, Settlement]] = attrs.field(factory=deque, init=False)
    _until: float = attrs.field(default=-math.inf, init=False)
    _parked: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _done: bool = attrs.field(default=False, init=False)

    def set_first(self, who: Ringable, due: float) -> None:
        """Set an alarm that is due as long after now as all that were set with this."""
        who.due = due
        self._first[who] = None
        if due < self._until:
            self._wake()

    def set_later(self, who: Ringable, due: float) -> None:
        """Set any other alarm, in place of the one before."""
        self.call_off(who)
        who.due = due
        self._count += 1
        heapq.heappush(self._later, (due, self._count, who))
        if due < self._until:
            self._wake()

    def call_off(self, who: Ringable) -> None:
        """Nothing rings any more."""
        is_later = who.due is not None and who not in self._first
        self._first.pop(who, None)
        who.due = None
        if is_later:
            self._called_off += 1
            self._throw_out()

    def _throw_out(self) -> None:
        """Keep no turn that is over until the time at which its alarm would have rung."""
        if self._called_off > max(FEW, len(self._later) // 2):
            self._called_off = 0
            self._later = [entry for entry in self._later if entry[2].due == entry[0]]
            heapq.heapify(self._later)

    def report(self, settlement: Settlement) -> None:
        """Have the observers told, by the watcher: nobody else's step runs their code.

        Once the rooms have closed nobody is there to tell them: that is a turn which was never
        entered, and was stopped by itself.
        """
        if self.observers and not self._over:
            self._reports.extend((observer, settlement) for observer in self.observers)
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
                await self._run_on()

    async def _run_on(self) -> None:
        # Each observer can do this once, for it is dropped: no bound depends on their manners.
        try:
            await self._run()
        finally:
            if not self._done:
                await self._run_on()

    async def _run(self) -> None:
        while True:
            # In this order: an alarm that settles a turn leaves a report.
            self._ring()
            self._deliver()
            if self._over and not self._reports:
                self._done = True
                return
            self._until = self._next()
            with trio.CancelScope(deadline=self._until):
                await self._park()

    def _next(self) -> float:
        first = next((who.due for who in self._first if who.due is not None), math.inf)
        return min(first, self._later[0][0]) if self._later else first

    def _ring(self) -> None:
        now = trio.current_time()
        while self._next() <= now:
            if self._later and self._later[0][0] <= now:
                due, _, who = heapq.heappop(self._later)
                if who.due != due:
                    continue
            else:
                who = next(iter(self._first))
                del self._first[who]
            who.ring()

    async def _park(self) -> None:
        self._parked = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    @trio.lowlevel.disable_ki_protection
    def _tell(self, observer: Observer, settlement: Settlement) -> None:
        observer(settlement)

    def _deliver(self) -> None:
        while self._reports:
            observer, settlement = self._reports.popleft()
            if observer not in self.observers:
                continue
            try:
                self._tell(observer, settlement)
            except BaseException as error:
                self.observers.remove(observer)
                if not isinstance(error, Exception):
                    raise
                logger.exception("an observer raised and is dropped: %r", observer)


def observers_of(given: Sequence[Observer]) -> list[Observer]:
    """Check that what was given as observers can be called."""
    for observer in given:
        if not callable(observer):
            raise TypeError(f"an observer is called with each settlement: {observer!r} cannot be")
    return list(given)
