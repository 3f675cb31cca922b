"""The loop closes in bounded time, whatever is on it, and says what it left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import random
import threading
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import pytest
import trio
from bridging import Opener, Stubborn, wait_for_ever
from trio.testing import MockClock

from turnstop.abc import current_turn

KEPT: set[object] = set()


@pytest.fixture(autouse=True)
def _forget() -> None:
    KEPT.clear()


def start(work: Any, name: str | None = None) -> None:
    KEPT.add(asyncio.get_running_loop().create_task(work, name=name))


async def test_what_is_left_is_ended_and_waited_for(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def stay(name: str) -> None:
        try:
            await wait_for_ever()
        finally:
            await asyncio.sleep(0)
            ended.append(name)
            if name == "one":
                start(stay("started while closing"))
                await asyncio.sleep(0)

    async def begin() -> None:
        start(stay("one"))
        start(stay("two"))
        await asyncio.sleep(0)

    async with open_bridge() as aio:
        await aio.call(begin)
        began = trio.current_time()
    assert sorted(ended) == ["one", "started while closing", "two"]
    assert trio.current_time() == began
    assert caplog.records == []


async def test_a_task_that_does_not_end_is_left_behind_by_name(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    works = [Stubborn(), Stubborn()]

    async def begin(work: Stubborn, name: str) -> None:
        start(work.work(), name)
        await asyncio.sleep(0)

    async with open_bridge(close_within=2) as aio:
        current_turn.set("turn 7")
        await aio.call(begin, works[0], "of the turn")
        await aio.call_unowned(begin, works[1], "of nobody")
        began = trio.current_time()
    assert trio.current_time() - began == 2
    assert all(work.cancelled >= 1 for work in works)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    of_turn = "asyncio task of the turn (Stubborn.work) of turn turn 7"
    of_nobody = "asyncio task of nobody (Stubborn.work) outside of any turn"
    unswept, left = (record.getMessage() for record in caplog.records)
    assert unswept.startswith("turns have left something, which leftovers()")
    assert unswept.endswith(f"owned(): {of_turn}")
    assert left == (
        f"left behind, with the loop closed, for it does not end: {of_nobody}; {of_turn}"
    )
    # Nor is it reported that it was destroyed while it was pending.
    caplog.clear()
    KEPT.clear()
    works.clear()
    gc.collect()
    assert caplog.records == []


async def test_an_outer_cancellation_reaches_the_loop_after_the_body(
    open_bridge: Opener, clock: MockClock
) -> None:
    order: list[str] = []

    async def stay() -> None:
        try:
            await wait_for_ever()
        finally:
            order.append("loop")

    async def begin() -> None:
        start(stay())
        await asyncio.sleep(0)

    with trio.move_on_after(1) as scope:
        async with open_bridge() as aio:
            await aio.call(begin)
            try:
                await trio.sleep(100)
            finally:
                with trio.CancelScope(shield=True):
                    assert await aio.call(asyncio.sleep, 0, "works") == "works"
                order.append("body")
    assert scope.cancelled_caught
    assert order == ["body", "loop"]


async def test_a_cancelled_body_does_not_unbound_the_exit(
    open_bridge: Opener, clock: MockClock
) -> None:
    work = Stubborn()
    with trio.move_on_after(1):
        async with open_bridge(grace=0.5, close_within=2) as aio:
            await aio.call(work.work)
    assert trio.current_time() == 1 + 0.5 + 2


async def test_a_generator_that_does_not_close_holds_nothing_up(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def count() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            while True:
                try:
                    await wait_for_ever()
                except asyncio.CancelledError:
                    pass

    async def begin() -> None:
        numbers = count()
        KEPT.add(numbers)
        await anext(numbers)

    async with open_bridge(close_within=2) as aio:
        await aio.call(begin)
    assert trio.current_time() <= 2


async def test_a_thread_that_does_not_return_holds_nothing_up(
    open_bridge: Opener, clock: MockClock
) -> None:
    begun, let_go, ended = trio.Event(), threading.Event(), threading.Event()

    def block() -> None:
        aio.post(begun.set)
        let_go.wait()
        ended.set()

    async def begin() -> None:
        start(asyncio.to_thread(block))
        await asyncio.sleep(0)

    async with open_bridge(close_within=2) as aio:
        await aio.call(begin)
        await begun.wait()
        began = trio.current_time()
    assert trio.current_time() - began <= 4
    let_go.set()
    await trio.to_thread.run_sync(ended.wait)


@pytest.mark.parametrize("host", ["thread"], indirect=True)
async def test_a_loop_that_is_blocked_holds_nothing_up(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    begun, let_go, ended = trio.Event(), threading.Event(), threading.Event()
    noted: list[bool] = []

    async def note() -> None:
        noted.append(True)

    async def block() -> None:
        aio.post(begun.set)
        let_go.wait()
        ended.set()

    async with open_bridge(grace=0.5, close_within=2) as aio:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(aio.call, block)
                await begun.wait()
                began = trio.current_time()
                scope.cancel()
        # Trio goes on: a call is given up in time.
        assert trio.current_time() - began == 0.5
        assert aio.statistics().abandoned == 1
        with trio.move_on_after(1) as scope:
            await aio.call(note)
        assert scope.cancelled_caught
        began = trio.current_time()
    assert 2 <= trio.current_time() - began <= 4
    assert "the asyncio loop is blocked: left behind, with its thread" in caplog.messages
    let_go.set()
    await trio.to_thread.run_sync(ended.wait)
    # What had not begun when it was cancelled never does.
    await trio.sleep(1)
    assert noted == []


@pytest.mark.parametrize("host", ["thread"], indirect=True)
async def test_a_call_that_a_blocked_loop_has_not_come_to_is_forgotten_when_it_does(
    open_bridge: Opener, clock: MockClock
) -> None:
    begun, let_go = trio.Event(), threading.Event()
    noted: list[bool] = []

    def block() -> None:
        aio.post(begun.set)
        let_go.wait()

    async def call_block() -> None:
        # Behind what tells of the end of this.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, block)

    async def note() -> None:
        noted.append(True)

    async with open_bridge(grace=0.5) as aio:
        await aio.call(call_block)
        await begun.wait()
        with trio.move_on_after(1):
            await aio.call(note)
        assert aio.statistics().abandoned == 1
        let_go.set()
        await aio.call(asyncio.sleep, 0)
        assert (aio.statistics().abandoned, aio.statistics().errors, noted) == (0, 0, [])


async def test_two_loops_know_nothing_of_one_another(open_bridge: Opener, clock: MockClock) -> None:
    async def which() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async with open_bridge() as one:
        async with open_bridge() as two:
            assert await one.call(which) is not await two.call(which)

            async def begin() -> None:
                start(wait_for_ever())

            current_turn.set("turn 7")
            await one.call(begin)
            assert (len(one.owned()), len(two.owned())) == (1, 0)
            await two.end_owned()
            assert len(one.owned()) == 1
        assert await one.call(asyncio.sleep, 0, "goes on") == "goes on"


@pytest.mark.parametrize("host", ["hosted"], indirect=True)
async def test_timeouts_that_are_over_leave_no_timers(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def many() -> int:
        loop: Any = asyncio.get_running_loop()
        for _ in range(20):
            handles = [loop.call_later(3600, int) for _ in range(1000)]
            await asyncio.sleep(0)
            assert len(loop._timers) >= 1000
            for handle in handles:
                handle.cancel()
        return len(loop._timers)

    async with open_bridge() as aio:
        assert await aio.call(many) < 200
        fired: list[float] = []

        async def mixed() -> None:
            loop = asyncio.get_running_loop()
            numbers = random.Random(7).sample(range(999), 999)
            timers = {n: loop.call_later(1 + n / 100, fired.append, n) for n in numbers}
            await asyncio.sleep(0)
            for number, timer in timers.items():
                if number % 4:
                    timer.cancel()
            await asyncio.sleep(12)

        await aio.call(mixed)
        # In their order, and none is lost but those which were cancelled.
        assert fired == [*range(0, 999, 4)]


@pytest.mark.parametrize("host", ["hosted"], indirect=True)
async def test_a_cancelled_timer_looks_at_the_others_only_now_and_then(
    open_bridge: Opener, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[asyncio.Handle] = []
    cancelled = asyncio.Handle.cancelled

    def look(handle: asyncio.Handle) -> bool:
        looked.append(handle)
        return cancelled(handle)

    monkeypatch.setattr(asyncio.Handle, "cancelled", look)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(3600, int) for _ in range(2000)]
        await asyncio.sleep(0)
        for timer in timers[500:]:
            timer.cancel()

    async with open_bridge() as aio:
        await aio.call(work)
    assert 1500 < len(looked) < 20_000


async def test_the_exit_is_as_quick_as_its_tasks(open_bridge: Opener, clock: MockClock) -> None:
    async with open_bridge(close_within=50) as aio:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(partial(aio.call, asyncio.sleep, 0))
    assert trio.current_time() == 0


async def test_a_generator_that_nobody_reads_to_its_end_is_closed_on_the_loop(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []

    async def help_to_close() -> None:
        try:
            await wait_for_ever()
        finally:
            await asyncio.sleep(0)
            closed.append("helped")

    async def count() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            KEPT.add(asyncio.create_task(help_to_close()))
            await asyncio.sleep(0)
            closed.append("closed")

    async def begin() -> None:
        numbers = count()
        KEPT.add(numbers)
        await anext(numbers)

    async with open_bridge() as aio:
        await aio.call(begin)
    assert closed == ["closed", "helped"]
    assert caplog.records == []


@pytest.mark.parametrize("what", ["a task", "a generator"])
async def test_what_ends_the_program_as_it_is_closed_is_not_waited_for(
    what: str, open_bridge: Opener, clock: MockClock
) -> None:
    async def count() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await wait_for_ever()
        finally:
            raise SystemExit(7)

    async def read(numbers: AsyncGenerator[int, None]) -> None:
        await anext(numbers)
        await anext(numbers)

    async def begin() -> None:
        numbers = count()
        KEPT.add(numbers)
        if what == "a generator":
            await anext(numbers)
        else:
            KEPT.add(asyncio.create_task(read(numbers)))
            await asyncio.sleep(0)

    with pytest.raises(SystemExit):
        async with open_bridge(close_within=math.inf) as aio:
            await aio.call(begin)


async def test_a_loop_that_has_ended_is_asked_to_close_none(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def leave() -> None:
        raise SystemExit(7)

    async def begin() -> None:
        KEPT.add(asyncio.create_task(leave()))

    with pytest.raises(SystemExit):
        async with open_bridge(close_within=100) as aio:
            with trio.CancelScope(shield=True):
                await aio.call(begin)
                while aio._host.running:  # noqa: ASYNC110 - a thread gives no event
                    await trio.sleep(0.01)
    assert trio.current_time() < 100
