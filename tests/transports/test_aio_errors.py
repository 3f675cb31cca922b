"""Errors of asyncio code: which ones end a call, which ones the program, and which ones nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable

import pytest
import trio
from bridging import Opener, Stubborn, wait_for_ever
from trio.testing import MockClock

from turnstop._errors import BackendMisbehaved
from turnstop.abc import current_turn
from turnstop.transports.aio import Aio


async def cancelled_by_itself() -> None:
    raise asyncio.CancelledError


async def cancelled_inside() -> None:
    inner = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(inner.cancel)
    await inner


async def cancels_its_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("work", [cancelled_by_itself, cancelled_inside, cancels_its_own_task])
async def test_a_cancellation_that_nobody_asked_for_is_an_ordinary_error(
    open_bridge: Opener, clock: MockClock, work: Callable[[], Awaitable[None]]
) -> None:
    async with open_bridge() as aio:
        with pytest.raises(BackendMisbehaved, match=f"{work.__name__} was cancelled inside"):
            await aio.call(work)
        assert await aio.call(asyncio.sleep, 0, "goes on") == "goes on"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_ends_programs_passes_through_a_call(
    open_bridge: Opener, clock: MockClock, error: type[BaseException]
) -> None:
    async def end() -> None:
        await asyncio.sleep(0)
        raise error("that is all")

    async with open_bridge() as aio:
        with pytest.raises(error, match="that is all"):
            await aio.call(end)
        # The loop is none the worse.
        assert await aio.call(asyncio.sleep, 0, "goes on") == "goes on"


async def _in_a_child(error: BaseException) -> None:
    async def child() -> None:
        raise error

    task = asyncio.get_running_loop().create_task(child())
    task.add_done_callback(lambda task: task.exception())


async def _in_a_late_child(error: BaseException) -> None:
    async def child() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        raise error

    task = asyncio.get_running_loop().create_task(child())
    task.add_done_callback(lambda task: task.exception())


async def _in_an_awaited_child(error: BaseException) -> None:
    async def child() -> None:
        await asyncio.sleep(0)
        raise error

    await asyncio.gather(child(), wait_for_ever())


async def _in_a_callback(error: BaseException) -> None:
    def callback() -> None:
        raise error

    asyncio.get_running_loop().call_soon(callback)


async def _after_being_abandoned(error: BaseException) -> None:
    for _ in range(2):
        try:
            await wait_for_ever()
        except asyncio.CancelledError:
            pass
    raise error


FATAL = [_in_a_child, _in_a_late_child, _in_an_awaited_child, _in_a_callback]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("work", FATAL)
async def test_what_ends_programs_leaves_open_aio_from_wherever_it_is_raised(
    open_bridge: Opener,
    clock: MockClock,
    work: Callable[[BaseException], Awaitable[None]],
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    thrown = error("that is all")
    with pytest.raises(error, match="that is all") as caught:
        async with open_bridge() as aio:
            await aio.call(work, thrown)
            await trio.sleep(100)
    assert caught.value is thrown
    assert trio.current_time() < 2
    # Nor is it told of besides, when what raised it is thrown away.
    gc.collect()
    assert caplog.records == []


async def test_a_neighbour_whom_the_end_of_the_loop_meets_is_cancelled_without_a_word(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    work = Stubborn()
    with pytest.raises(SystemExit, match="that is all"):
        async with open_bridge() as aio, trio.open_nursery() as nursery:
            nursery.start_soon(aio.call, work.work)
            await aio.call(asyncio.sleep, 0)
            await aio.call(_in_a_child, SystemExit("that is all"))
            await trio.sleep(100)
    assert caplog.records == []


async def test_what_ends_programs_leaves_open_aio_from_a_call_that_was_abandoned(
    open_bridge: Opener, clock: MockClock
) -> None:
    current_turn.set("turn 7")
    with pytest.raises(SystemExit, match="that is all"):
        async with open_bridge() as aio:
            with trio.move_on_after(1):
                await aio.call(_after_being_abandoned, SystemExit("that is all"))
            assert aio.statistics().abandoned == 1
            await aio.end_owned()
            await trio.sleep(100)


async def _fails_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)


async def _leaves_a_failing_task() -> None:
    async def divide() -> float:
        return 1 / 0

    task = asyncio.get_running_loop().create_task(divide())
    await asyncio.wait({task})


@pytest.mark.parametrize("work", [_fails_in_a_callback, _leaves_a_failing_task])
async def test_an_error_that_nobody_awaits_is_reported_and_hurts_nobody(
    open_bridge: Opener,
    clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    work: Callable[[], Awaitable[None]],
) -> None:
    async with open_bridge() as aio:
        async with trio.open_nursery() as nursery:
            let_go = trio.Event()
            ended: list[str] = []

            async def neighbour() -> None:
                task: list[asyncio.Future[None]] = []

                async def wait() -> None:
                    task.append(asyncio.get_running_loop().create_future())
                    aio.post(let_go.set)
                    await task[0]

                async def release() -> None:
                    task[0].set_result(None)

                async with trio.open_nursery() as inner:
                    inner.start_soon(aio.call, wait)
                    await let_go.wait()
                    await _reported(aio, work)
                    await aio.call(release)
                ended.append("as it should")

            nursery.start_soon(neighbour)
        assert ended == ["as it should"]
        assert aio.statistics().errors == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "unhandled in asyncio code, and nobody awaits it" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def _reported(aio: Aio, work: Callable[[], Awaitable[None]]) -> None:
    await aio.call(work)
    while not aio.statistics().errors:
        await aio.call(asyncio.sleep, 0)
        gc.collect()


async def test_the_body_keeps_its_own_error(open_bridge: Opener, clock: MockClock) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_bridge() as aio:
            await aio.call(asyncio.sleep, 0)
            raise KeyError("mine")


@pytest.mark.parametrize("how", ["at once", "from a callback"])
async def test_a_library_that_stops_the_loop_stops_nobody(
    how: str, open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop() -> str:
        loop = asyncio.get_running_loop()
        if how == "at once":
            loop.stop()
        else:
            loop.call_soon(loop.stop)
        await asyncio.sleep(0.01)
        return "done"

    with trio.fail_after(10):
        async with open_bridge() as aio:
            assert await aio.call(stop) == "done"
            assert await aio.call(stop) == "done"
            assert aio.statistics().errors == 2
    assert "has told the loop to stop" in caplog.text


@pytest.mark.parametrize("how", ["passes it on", "fails", "none"])
async def test_a_librarys_own_handler_of_errors_ends_nothing(
    open_bridge: Opener, clock: MockClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        if how == "fails":
            raise KeyError("the handler")
        loop.default_exception_handler(context)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(None if how == "none" else handle)
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    async with open_bridge() as aio:
        await aio.call(work)
        assert await aio.call(asyncio.sleep, 0, "goes on") == "goes on"
        assert aio.statistics().errors == 1
    assert caplog.text.count("and nobody awaits it") == 1


async def test_an_exit_in_a_callback_ends_also_a_call_that_is_shielded(
    open_bridge: Opener, clock: MockClock
) -> None:
    def leave() -> None:
        raise SystemExit(7)

    async def work() -> None:
        asyncio.get_running_loop().call_soon(leave)
        await wait_for_ever()

    with pytest.raises(SystemExit, match="7"):
        async with open_bridge() as aio:
            with trio.CancelScope(shield=True), trio.fail_after(100):
                with pytest.raises(RuntimeError, match="the asyncio loop is closed"):
                    await aio.call(work)


async def test_an_exit_in_the_callback_of_a_file_ends_the_program(
    open_bridge: Opener, clock: MockClock
) -> None:
    reader, writer = os.pipe()

    def leave() -> None:
        asyncio.get_running_loop().remove_reader(reader)
        raise SystemExit(7)

    async def work() -> None:
        asyncio.get_running_loop().add_reader(reader, leave)
        os.close(writer)
        await wait_for_ever()

    with pytest.raises(SystemExit, match="7"):
        async with open_bridge() as aio:
            await aio.call(work)
    os.close(reader)


async def test_a_call_of_a_loop_that_has_just_ended_is_cancelled_as_others_are(
    open_bridge: Opener, clock: MockClock
) -> None:
    def leave(_: object) -> None:
        raise SystemExit(7)

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(leave)

    for _ in range(20):
        with pytest.raises(SystemExit, match="7"):
            async with open_bridge() as aio:
                await aio.call(work)
                await aio.call(wait_for_ever)


class Brittle(asyncio.Future[None]):
    def cancel(self, msg: object = None) -> bool:
        raise ValueError("not this one")


async def test_what_fails_at_its_cancellation_is_reported_and_left_behind(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await Brittle(loop=asyncio.get_running_loop())

    async with open_bridge() as aio:
        with trio.move_on_after(1):
            await aio.call(work)
        began = trio.current_time()
    assert trio.current_time() == pytest.approx(began + 1, abs=0.3)
    assert "ValueError: not this one" in caplog.text
    assert "it does not end: asyncio task" in caplog.text
