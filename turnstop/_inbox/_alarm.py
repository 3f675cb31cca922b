"""Wakes rooms at their times."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import NoReturn, Protocol, final

import attrs
import trio

__all__ = ["Alarm", "Sleeper"]


class Sleeper(Protocol):
    """What is woken.

    Attributes:
        rings_at: when it is going to be; the alarm keeps it.
    """

    rings_at: float

    def wake(self) -> None:
        """It may be too early: who still sleeps sets the alarm anew."""


@final
@attrs.define(eq=False)
class Alarm:
    """One clock for all rooms.

    With a time limit of its own for each, a third of what an inbox does for each room behind a stop
    of all of them would be for those.
    """

    _due: list[tuple[float, int, Sleeper]] = attrs.field(factory=list)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def set(self, sleeper: Sleeper, when: float) -> None:
        """Wake it at this time, or before."""
        if when >= sleeper.rings_at:
            return
        sleeper.rings_at = when
        heapq.heappush(self._due, (when, next(self._numbers), sleeper))
        self._scope.deadline = min(self._scope.deadline, when)

    async def run(self) -> NoReturn:
        """Wake whoever is due.

        **Cancellation:** nobody is woken any more.
        """
        while True:
            first = self._due[0][0] if self._due else math.inf
            with trio.CancelScope(deadline=first) as self._scope:
                await trio.sleep_forever()
            now = trio.current_time()
            while self._due and self._due[0][0] <= now:
                when, _, sleeper = heapq.heappop(self._due)
                # It may have been set to an earlier time since, and have been woken then.
                if sleeper.rings_at == when:
                    sleeper.rings_at = math.inf
                    sleeper.wake()
