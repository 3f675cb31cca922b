"""A bridged call: what it returns and raises, and what a cancellation makes of it."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextvars import ContextVar
from typing import Any

import pytest
import sniffio
import trio
from bridging import Opener, Stubborn, wait_for_ever
from trio.testing import MockClock

from turnstop.abc import current_turn
from turnstop.transports.aio import Aio
from turnstop.transports.aio._host import EAGER

GRACE = 0.25


async def test_a_call_returns_what_the_function_returns(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    async with open_bridge() as aio:
        assert await aio.call(add, 1, 2) == 3
        assert await aio.call_unowned(add, 3, 4) == 7
        statistics = aio.statistics()
    assert (statistics.calls, statistics.tasks, statistics.turns) == (0, 0, 0)


async def test_a_call_raises_what_the_function_raises(
    open_bridge: Opener, clock: MockClock
) -> None:
    error = ValueError("no")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    async with open_bridge() as aio:
        with pytest.raises(ValueError, match="no") as caught:
            await aio.call(fail)
        assert caught.value is error


async def test_a_call_finds_itself_on_the_loop_from_its_first_step(
    open_bridge: Opener, clock: MockClock
) -> None:
    seen: list[tuple[object, object, bool]] = []

    def look() -> None:
        loop = asyncio.get_running_loop()
        in_task = asyncio.current_task(loop) is not None
        seen.append((loop, sniffio.current_async_library(), in_task))

    async def ask() -> None:
        look()
        await asyncio.sleep(0)
        look()

    async with open_bridge() as aio:
        await aio.call(ask)
        assert sniffio.current_async_library() == "trio"
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        await aio.call(ask)
    assert [(library, in_task) for _, library, in_task in seen] == [("asyncio", True)] * 4
    assert len({loop for loop, _, _ in seen}) == 1


class _Passes(trio.abc.Instrument):
    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


@pytest.mark.skipif(not EAGER, reason="a task takes its first step at once from Python 3.12 on")
@pytest.mark.parametrize("host", ["hosted"], indirect=True)
async def test_a_call_takes_its_first_step_at_once(open_bridge: Opener, clock: MockClock) -> None:
    passes = _Passes()
    trio.lowlevel.add_instrument(passes)

    async def note() -> int:
        return passes.count

    async with open_bridge() as aio:
        before = passes.count
        assert await aio.call(note) == before
    trio.lowlevel.remove_instrument(passes)


async def test_context_variables_flow_in_and_not_back(
    open_bridge: Opener, clock: MockClock
) -> None:
    variable: ContextVar[str] = ContextVar("variable")

    async def replace() -> str:
        found = variable.get()
        variable.set("theirs")
        return found

    async with open_bridge() as aio:
        variable.set("ours")
        assert await aio.call(replace) == "ours"
        assert variable.get() == "ours"


async def test_a_call_cancelled_before_it_begins_never_does(
    open_bridge: Opener, clock: MockClock
) -> None:
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    async with open_bridge() as aio:
        with trio.CancelScope() as scope:
            scope.cancel()
            await aio.call(work)
        assert scope.cancelled_caught
        await aio.call(asyncio.sleep, 0)
    assert begun == []


async def test_a_deadline_bounds_a_call_that_ends_when_it_is_cancelled(
    open_bridge: Opener, clock: MockClock
) -> None:
    seen: list[BaseException] = []

    async def work() -> None:
        try:
            await wait_for_ever()
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    async with open_bridge(grace=GRACE) as aio:
        start = trio.current_time()
        with trio.move_on_after(1) as scope:
            await aio.call(work)
        assert scope.cancelled_caught
        assert trio.current_time() - start == 1
        assert aio.statistics().abandoned == 0
    assert len(seen) == 1


async def test_what_is_returned_within_the_grace_wins(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def work() -> str:
        try:
            await wait_for_ever()
        except asyncio.CancelledError:
            for _ in range(5):
                await asyncio.sleep(0)
        return "handle"

    async with open_bridge(grace=GRACE) as aio:
        with trio.move_on_after(1) as scope:
            assert await aio.call(work) == "handle"
            # Swallowed it is not: it is delivered again.
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught


async def test_what_is_raised_within_the_grace_wins(open_bridge: Opener, clock: MockClock) -> None:
    async def work() -> None:
        try:
            await wait_for_ever()
        finally:
            await asyncio.sleep(0)
            raise KeyError("undone")

    async with open_bridge(grace=GRACE) as aio:
        with trio.move_on_after(1), pytest.raises(KeyError, match="undone"):
            await aio.call(work)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_that_refuses_to_end_is_abandoned_after_the_grace(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    work = Stubborn()
    current_turn.set("turn 7")
    async with open_bridge(grace=GRACE) as aio:
        start = trio.current_time()
        with trio.move_on_after(1) as scope:
            await aio.call(work.work_and_fail if fails else work.work)
        assert scope.cancelled_caught
        assert trio.current_time() - start == 1 + GRACE
        await aio.call(asyncio.sleep, 0)
        assert work.cancelled == 1
        name = "Stubborn.work_and_fail" if fails else "Stubborn.work"
        (found,) = aio.owned()
        assert (found.what, found.turn_id, found.alive) == (name, "turn 7", True)
        assert str(found).startswith("asyncio task ")
        assert f"({name})" in str(found)
        assert (aio.statistics().abandoned, aio.statistics().calls) == (1, 0)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage() == (
            f"{name} of turn turn 7 has not ended 0.25 s after it was cancelled: abandoned"
        )

        await aio.call(work.release)
        await aio.call(asyncio.sleep, 0)
        assert not found.alive
        assert aio.owned() == ()
        del found
        await aio.call(asyncio.sleep, 0)
        gc.collect()
        assert (aio.statistics().abandoned, aio.statistics().errors) == (0, 0)
    assert len(caplog.records) == 1


async def test_a_call_that_is_late_to_end_as_cancelled_is_forgotten_without_a_word(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    tidied_up = asyncio.Event()

    async def tidy_up() -> None:
        try:
            await wait_for_ever()
        finally:
            await tidied_up.wait()

    async def release() -> None:
        tidied_up.set()

    async with open_bridge(grace=GRACE) as aio:
        with trio.move_on_after(1):
            await aio.call(tidy_up)
        assert aio.statistics().abandoned == 1
        await aio.call(release)
        await aio.call(asyncio.sleep, 0)
        assert (aio.statistics().abandoned, aio.statistics().errors) == (0, 0)
    assert len(caplog.records) == 1


async def test_outer_scopes_that_expire_later_cancel_it_only_once(
    open_bridge: Opener, clock: MockClock
) -> None:
    work = Stubborn()
    async with open_bridge(grace=1) as aio:
        start = trio.current_time()
        with trio.move_on_after(1.5), trio.move_on_after(1):
            await aio.call(work.work)
        assert trio.current_time() - start == 2
        assert work.cancelled == 1
        await aio.call(work.release)


async def test_other_calls_go_on_while_one_is_abandoned(
    open_bridge: Opener, clock: MockClock
) -> None:
    work = Stubborn()
    async with open_bridge(grace=GRACE) as aio:
        with trio.move_on_after(1):
            await aio.call(work.work)
        answers: list[Any] = []

        async def ask(number: int) -> None:
            answers.append(await aio.call(asyncio.sleep, 0, number))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, number)
        assert sorted(answers) == [0, 1, 2]
        await aio.call(work.release)


async def test_a_call_after_the_end_says_what_to_do(open_bridge: Opener, clock: MockClock) -> None:
    async with open_bridge() as aio:
        pass
    for way in (aio.call, aio.call_unowned):
        with pytest.raises(RuntimeError, match="loop is closed: keep `async with open_aio"):
            await way(asyncio.sleep, 0)


async def test_a_call_that_comes_while_the_loop_is_closing_is_refused(
    open_bridge: Opener, clock: MockClock
) -> None:
    closing, refused = trio.Event(), list[str]()

    async def linger(aio: Aio) -> None:
        try:
            await wait_for_ever()
        finally:
            aio.post(closing.set)
            await wait_for_ever()

    async def outside(aio: Aio) -> None:
        await closing.wait()
        with pytest.raises(RuntimeError, match="the asyncio loop is closed: keep") as caught:
            await aio.call(asyncio.sleep, 0)
        refused.append(str(caught.value))

    async def begin(aio: Aio) -> None:
        tasks.append(asyncio.get_running_loop().create_task(linger(aio)))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    async with trio.open_nursery() as nursery:
        async with open_bridge(close_within=0.3) as aio:
            nursery.start_soon(outside, aio)
            await aio.call(begin, aio)
    assert len(refused) == 1


async def test_a_call_is_a_checkpoint(open_bridge: Opener, clock: MockClock) -> None:
    async def nothing() -> None:
        pass

    async with open_bridge() as aio:
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                await aio.call(nothing)


async def test_post_runs_a_function_in_trios_thread_in_order(
    open_bridge: Opener, clock: MockClock, host: str
) -> None:
    told: list[tuple[int, object]] = []

    def tell(number: int) -> None:
        told.append((number, trio.lowlevel.current_trio_token()))

    async with open_bridge() as aio:

        async def work() -> None:
            for number in range(3):
                aio.post(tell, number)
                assert host == "thread" or len(told) == number + 1

        await aio.call(work)
        token = trio.lowlevel.current_trio_token()
    assert told == [(number, token) for number in range(3)]


@pytest.mark.parametrize("host", ["hosted"], indirect=True)
async def test_post_runs_a_function_at_once_where_the_loop_shares_the_thread(
    open_bridge: Opener, clock: MockClock
) -> None:
    order: list[str] = []

    async def work(aio: Aio) -> None:
        aio.post(order.append, "posted")
        order.append("after")

    async with open_bridge() as aio:
        await aio.call(work, aio)
    assert order == ["posted", "after"]
