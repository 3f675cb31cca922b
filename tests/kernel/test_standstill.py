"""A program that stands still: everything is due at once when it goes on, in any order."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import StopBudget, Turn, open_rooms

from .backend import Act, Recorder


class StandStill(trio.abc.Instrument):
    """Has time go by in the step after which leftovers are looked for."""

    def __init__(self, turn: Turn, clock: MockClock) -> None:
        self.turn, self.clock = turn, clock

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.turn._life.phase == 3:
            trio.lowlevel.remove_instrument(self)
            self.clock.jump(100.0)


# Trio draws which of the two that are due comes first.
@pytest.mark.parametrize("again", range(8))
async def test_leftovers_are_not_looked_for_after_the_settlement(again: int) -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    settled: list[object] = []
    look = Act(takes=1e6, notify=lambda: settled.append(turn.settlement))
    backend = Recorder(leftovers=look)
    async with open_rooms(backend, budget=StopBudget(cancel_within=4, kill_within=2)) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            trio.lowlevel.add_instrument(StandStill(turn, clock))
            await wait_all_tasks_blocked()
            turn.stop()
    assert turn.settlement is not None
    assert settled in ([], [None])
    assert turn.settlement.survivors != ()
