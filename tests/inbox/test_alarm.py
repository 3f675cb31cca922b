"""The clock that wakes rooms, and what a stop of all of them costs whoever waits for it."""

from __future__ import annotations

import math

import attrs
import trio
from kernel.backend import Recorder, ending, settle

from turnstop._inbox._alarm import Alarm

from .world import STOP, serving


@attrs.define(eq=False)
class Sleeper:
    rings_at: float = math.inf
    woken: list[float] = attrs.field(factory=list)

    def wake(self) -> None:
        self.woken.append(trio.current_time())


async def test_each_is_woken_at_its_time_and_once() -> None:
    alarm, early, late = Alarm(), Sleeper(), Sleeper()
    alarm.set(late, 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.run)
        await settle()
        alarm.set(early, 10)
        await trio.sleep(100)
        assert (early.woken, late.woken) == ([10], [20])
        alarm.set(early, 150)
        alarm.set(late, 150)
        alarm.set(late, 1)
        await trio.sleep(100)
        assert (early.woken, late.woken) == ([10, 150], [20, 100])
        assert not alarm._due
        nursery.cancel_scope.cancel()


async def test_the_earliest_of_its_times_counts() -> None:
    alarm, one = Alarm(), Sleeper()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.run)
        alarm.set(one, 50)
        alarm.set(one, 70)
        alarm.set(one, 30)
        await trio.sleep(100)
        assert one.woken == [30]
        nursery.cancel_scope.cancel()


async def test_who_waits_for_a_stop_of_all_passes_the_scheduler_not_once_for_each_room() -> None:
    class Passes(trio.abc.Instrument):
        count = 0

        def before_io_wait(self, timeout: float) -> None:
            self.count += 1

    passes = Passes()
    async with serving(backend=Recorder(cancel=ending(takes=0.05)), at_once=100) as world:
        for number in range(100):
            world.feed.post(f"r{number}", "work")
        await settle()
        applied = world.press(STOP, None)
        trio.lowlevel.add_instrument(passes)
        assert len(await applied.settled()) == 100
        trio.lowlevel.remove_instrument(passes)
    assert passes.count < 50
