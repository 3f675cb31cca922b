"""Observers, alarms, and the one watcher."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from turnstop import BackendLost, Ending, Settlement, StopBudget, open_rooms
from turnstop._watch import FEW, Watch

from .backend import COMPLETED, Act, Recorder, ending, hang, occupy


async def test_observers_are_given_each_settlement_once() -> None:
    seen: list[Settlement] = []
    backend = Recorder()
    async with open_rooms(backend, observers=[seen.append]) as rooms, trio.open_nursery() as nurse:
        async with rooms.turn("a", "stopped") as stopped:
            waiting = rooms.turn("a", "waiting")
            nurse.start_soon(occupy, waiting)
            await wait_all_tasks_blocked()
            waiting.stop()
        new = rooms.turn("a", "new")
        new.stop()
        backend.follow = Act(raises=BackendLost("x", gone=True))
        failed = rooms.turn("a", "failed")
        with pytest.raises(BackendLost):
            await occupy(failed)
        backend.follow = Act(returns=COMPLETED)
        async with rooms.turn("b", "finished") as finished:
            async for _ in finished:
                pass
    assert seen == [t.settlement for t in (waiting, stopped, new, failed, finished)]
    assert [s.ending.name for s in seen] == [
        "UNSTARTED",
        "STOPPED",
        "UNSTARTED",
        "FAILED",
        "FINISHED",
    ]


async def test_observers_are_called_from_a_kernel_task_and_never_inside_stop() -> None:
    tasks: list[str] = []

    def observe(_: Settlement) -> None:
        tasks.append(trio.lowlevel.current_task().name)

    async with open_rooms(Recorder(), observers=[observe]) as rooms, trio.open_nursery() as nurse:
        async with rooms.turn("a", "x"):
            waiting = rooms.turn("a", "y")
            nurse.start_soon(occupy, waiting)
            await wait_all_tasks_blocked()
            waiting.stop()
            rooms.turn("b", "z").stop()
            assert tasks == []
            await wait_all_tasks_blocked()
            assert len(tasks) == 2
    assert len(tasks) == 3
    assert all(name.startswith("turnstop") for name in tasks)


async def test_an_observer_that_raises_is_reported_once_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []

    def broken(_: Settlement) -> None:
        calls.append("broken")
        raise ValueError("observer")

    def good(_: Settlement) -> None:
        calls.append("good")

    async with open_rooms(Recorder(), observers=[broken, good]) as rooms:
        for _ in range(3):
            async with rooms.turn("a", "x") as turn:
                await wait_all_tasks_blocked()
            assert turn.ending is Ending.STOPPED
    assert calls.count("broken") == 1
    assert calls.count("good") == 3
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("broken_ones", [1, 2, 3])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_a_base_exception_of_an_observer_leaves_open_rooms_and_no_bound_is_lost(
    kind: type[BaseException], broken_ones: int
) -> None:
    def broken() -> Callable[[Settlement], None]:
        def observe(_: Settlement) -> None:
            raise kind("observer")

        return observe

    backend = Recorder(cancel=hang())
    turns: list[Any] = []
    observers = [broken() for _ in range(broken_ones)]
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        async with open_rooms(backend, budget=StopBudget(2, 1), observers=observers) as rooms:
            turns = [rooms.turn("a", "x"), rooms.turn("b", "y")]
            async with turns[0], turns[1]:
                await wait_all_tasks_blocked()
                # Settled at once, and told to the observer by the watcher.
                rooms.turn("c", "z").stop()
                rooms.turn("d", "z").stop()
                await trio.sleep_forever()
    assert "observer" in repr(caught.value)
    for turn in turns:
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.settled_at) == (Ending.UNCONFIRMED, 3)


async def test_an_observer_may_stop_turns() -> None:
    async with open_rooms(
        Recorder(), observers=[lambda found: rooms.stop("b", reason=found.turn_id)]
    ) as rooms:
        async with rooms.turn("b", "y") as other:
            await wait_all_tasks_blocked()
            async with rooms.turn("a", "x", turn_id="t"):
                await wait_all_tasks_blocked()
            await trio.sleep_forever()
        assert other.settlement is not None
        assert other.settlement.request is not None
        assert other.settlement.request.reason == "t"


async def test_observers_must_be_callable() -> None:
    with pytest.raises(TypeError, match="observer"):
        async with open_rooms(Recorder(), observers=[1]):  # type: ignore[list-item]
            pass


async def test_the_observers_hear_of_the_last_settlement_before_the_exit_is_left() -> None:
    seen: list[Settlement] = []
    backend = Recorder(cancel=ending(takes=1))
    async with trio.open_nursery() as nursery:
        async with open_rooms(backend, observers=[seen.append]) as rooms:
            nursery.start_soon(occupy, rooms.turn("a", "x"))
            await wait_all_tasks_blocked()
        assert len(seen) == 1


def kernel_tasks() -> list[str]:
    """The names of all tasks that the kernel runs."""
    root = trio.lowlevel.current_root_task()
    tasks = [root] if root is not None else []
    for task in tasks:
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return [task.name for task in tasks if task.name.startswith("turnstop")]


async def test_there_is_one_watcher_and_at_most_one_canceller_a_turn() -> None:
    async with open_rooms(Recorder(cancel=hang())) as rooms, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(occupy, rooms.turn(str(number), "x"))
        await wait_all_tasks_blocked()
        assert len(kernel_tasks()) == 21
        for _ in range(3):
            rooms.stop_all()
        await wait_all_tasks_blocked()
        assert len(kernel_tasks()) == 41
    assert kernel_tasks() == []


class Bell:
    """Something that can be woken by the watcher."""

    def __init__(self, name: str, rang: list[tuple[str, float]]) -> None:
        self.name, self.rang = name, rang
        self.due: float | None = None

    def ring(self) -> None:
        self.rang.append((self.name, trio.current_time()))


async def test_alarms_ring_in_order_at_their_time_and_not_when_called_off() -> None:
    rang: list[tuple[str, float]] = []
    async with trio.open_nursery() as nursery:
        watch = Watch([])
        nursery.start_soon(watch.run, lambda: None)
        await wait_all_tasks_blocked()
        bells = {name: Bell(name, rang) for name in ("a", "b", "c", "late", "early", "past", "off")}
        watch.set_first(bells["a"], 3)
        watch.set_later(bells["late"], 5)
        watch.set_first(bells["b"], 3)
        watch.set_first(bells["off"], 3.5)
        await trio.sleep(1)
        watch.set_later(bells["early"], 1.5)
        watch.set_first(bells["c"], 4)
        watch.call_off(bells["off"])
        await trio.sleep(1)
        watch.set_later(bells["past"], 1)
        # In place of the one before.
        watch.set_later(bells["b"], 3.25)
        await trio.sleep(4)
        watch.close()
    assert rang == [
        ("early", 1.5),
        ("past", 2),
        ("a", 3),
        ("b", 3.25),
        ("c", 4),
        ("late", 5),
    ]


async def test_an_alarm_that_was_set_later_and_called_off_is_silent() -> None:
    rang: list[tuple[str, float]] = []
    async with trio.open_nursery() as nursery:
        watch = Watch([])
        nursery.start_soon(watch.run, lambda: None)
        off, again = Bell("off", rang), Bell("again", rang)
        watch.set_later(off, 1)
        watch.set_later(again, 1)
        watch.set_later(again, 2)
        watch.call_off(off)
        await trio.sleep(3)
        watch.close()
    assert rang == [("again", 2)]


async def test_a_cancelled_watcher_shuts_in_that_step_and_watches_on() -> None:
    happened: list[tuple[str, float]] = []
    async with trio.open_nursery() as nursery:
        watch = Watch([])
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await watch.run(lambda: happened.append(("shut", trio.current_time())))

        nursery.start_soon(run)
        await trio.sleep(1)
        scope.cancel()
        await wait_all_tasks_blocked()
        watch.set_first(Bell("rang", happened), 3)
        await trio.sleep(4)
        assert happened == [("shut", 1), ("rang", 3)]
        watch.close()


class Alarm:
    def __init__(self) -> None:
        self.due: float | None = None
        self.rung: list[float] = []

    def ring(self) -> None:
        self.rung.append(trio.current_time())


async def test_an_alarm_that_is_called_off_keeps_nobody_until_it_would_have_rung(
    autojump_clock: trio.testing.MockClock,
) -> None:
    watch = Watch([])
    start = trio.current_time()
    lasting, alarms = Alarm(), [Alarm() for _ in range(1000)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run, lambda: None)
        watch.set_later(lasting, start + 7)
        for alarm in alarms:
            watch.set_later(alarm, start + 5)
            watch.call_off(alarm)
        gone = [weakref.ref(alarm) for alarm in alarms]
        del alarm, alarms
        gc.collect()
        assert sum(one() is not None for one in gone) <= 2 * FEW
        await trio.sleep(10)
        watch.close()
    assert lasting.rung == [start + 7]


class Looked(Alarm):
    """Counts how often it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    @property
    def due(self) -> float | None:
        self.looks += 1
        return self._due

    @due.setter
    def due(self, due: float | None) -> None:
        self._due = due


def test_calling_off_looks_at_the_other_alarms_only_now_and_then() -> None:
    watch, others = Watch([]), [Looked() for _ in range(200)]
    for other in others:
        watch.set_later(other, 7.0)
    before = sum(other.looks for other in others)
    for _ in range(200):
        alarm = Alarm()
        watch.set_first(alarm, 5.0)
        watch.call_off(alarm)
    assert sum(other.looks for other in others) == before
    for _ in range(1000):
        alarm = Alarm()
        watch.set_later(alarm, 5.0)
        watch.call_off(alarm)
    assert sum(other.looks for other in others) - before <= 10 * len(others)


async def test_those_that_are_left_ring_in_time_once_many_were_called_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    watch = Watch([])
    start = trio.current_time()
    alarms = {1 + number * 37 % 101: Alarm() for number in range(4 * FEW)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run, lambda: None)
        for after, alarm in alarms.items():
            watch.set_later(alarm, start + after)
        for after in [after for after in alarms if after % 3]:
            watch.call_off(alarms.pop(after))
        await trio.sleep(200)
        watch.close()
    assert {after: alarm.rung for after, alarm in alarms.items()} == {
        after: [start + after] for after in alarms
    }


async def test_an_alarm_that_is_set_anew_rings_at_its_last_time_however_many_are_called_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    watch = Watch([])
    start = trio.current_time()
    alarm, other = Alarm(), Alarm()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run, lambda: None)
        watch.set_first(alarm, start + 1)
        for number in range(5 * FEW):
            watch.set_later(alarm, start + 2 + number)
            watch.set_later(other, start + 1)
            watch.call_off(other)
        await trio.sleep(1000)
        watch.close()
    assert alarm.rung == [start + 1 + 5 * FEW]
    assert other.rung == []
