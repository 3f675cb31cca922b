"""What is left behind when a loop is closed: threads, late exits, and who waits outside."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar

import attrs
import pytest
import sniffio
import trio
from bridging import Opener
from strikes import default_handler
from trio.testing import MockClock

import turnstop
from turnstop.abc import RemoteTurn, Request
from turnstop.transports.aio import Aio, open_aio

__all__ = ["default_handler"]

PATIENCE = 10


def loops_running() -> int:
    return sum(thread.name == "turnstop asyncio" for thread in threading.enumerate())


async def test_a_loop_that_was_not_ready_when_its_opening_was_cancelled_leaves_no_thread() -> None:
    before = loops_running()
    for _ in range(5):
        with trio.CancelScope() as scope:
            scope.cancel()
            async with open_aio(thread=True):
                raise AssertionError("never entered")
    with trio.fail_after(PATIENCE):
        while loops_running() > before:  # noqa: ASYNC110 - a thread gives no event
            await trio.sleep(0.01)


@pytest.mark.parametrize("who", ["call", "library"])
async def test_an_exit_that_a_loop_left_behind_asks_for_ends_nothing(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "turnstop.aio")
    release, released = threading.Event(), threading.Event()

    async def block() -> None:
        release.wait(PATIENCE)
        released.set()
        raise SystemExit(3)

    async def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(block()))

    tasks: list[object] = []
    with trio.move_on_after(0.05):
        async with open_aio(thread=True, close_within=0.05) as aio:
            await aio.call(block if who == "call" else begin)
            await trio.sleep_forever()
    release.set()
    with trio.fail_after(PATIENCE):
        while "which ends nothing" not in caplog.text:  # noqa: ASYNC110 - a log gives no event
            await trio.sleep(0.01)
    assert released.is_set()


async def refuse() -> None:
    while True:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            pass


async def test_who_waits_outside_is_told_that_the_loop_is_closed(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    async def outside(aio: Aio) -> None:
        with pytest.raises(RuntimeError, match="the asyncio loop is closed: keep") as caught:
            await aio.call(refuse)
        told.append(str(caught.value))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            async with open_bridge(close_within=0.3) as aio:
                nursery.start_soon(outside, aio)
                await trio.sleep(0.1)
    assert len(told) == 1
    assert "it does not end: asyncio task " in caplog.text
    assert "(refuse) outside of any turn" in caplog.text


async def test_who_comes_when_a_blocked_loop_was_left_behind_is_told_that_it_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered, release = threading.Event(), threading.Event()

    async def block() -> None:
        try:
            await refuse()
        finally:
            entered.set()
            release.wait(PATIENCE)

    async def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(block()))
        await asyncio.sleep(0)

    tasks: list[object] = []
    try:
        async with open_aio(thread=True, close_within=0.05) as aio:
            await aio.call(begin)
        assert entered.is_set()
        with trio.fail_after(PATIENCE / 2):
            with pytest.raises(RuntimeError, match="the asyncio loop is closed: keep"):
                await aio.call(asyncio.sleep, 0)
    finally:
        release.set()


async def test_who_waits_outside_and_is_cancelled_then_is_just_cancelled(
    open_bridge: Opener, clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        async with open_bridge(close_within=0.3) as aio:
            nursery.start_soon(aio.call, refuse)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()


@attrs.define
class Backend:
    aio: Aio

    async def start(self, request: Request[str]) -> RemoteTurn:
        raise AssertionError

    def check_nesting(self) -> None:
        self.aio.check_nesting()


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_rooms_that_nursery_start_moves_are_judged_by_where_they_go(
    where: str, open_bridge: Opener, clock: MockClock
) -> None:
    async def serve(aio: Aio, task_status: trio.TaskStatus[None]) -> None:
        async with turnstop.open_rooms(Backend(aio)):
            task_status.started()

    async with trio.open_nursery() as outer:
        async with open_bridge() as aio, trio.open_nursery() as inner:
            if where == "inside":
                await inner.start(serve, aio)
            else:
                with pytest.raises(RuntimeError, match="would close before these rooms"):
                    await outer.start(serve, aio)


async def test_an_iterable_whose_iterator_is_a_generator_is_closed_with_the_block(
    open_bridge: Opener, clock: MockClock
) -> None:
    closed: list[str] = []

    class Pages:
        async def __aiter__(self) -> AsyncIterator[int]:
            try:
                while True:
                    yield 1
                    await asyncio.sleep(0)
            finally:
                closed.append("closed")

    async with open_bridge() as aio:
        async with aio.iterate(Pages) as pages:
            async for _ in pages:
                break
        assert closed == ["closed"]


async def test_what_refuses_is_ended_with_the_loop_where_it_lets_itself_be(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    async def stay(name: str, error: BaseException | None = None) -> None:
        try:
            await refuse()
        finally:
            # The loop is there still, and what is begun on it is not run.
            kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(0)))
            again()
            ended.append(name)
            if error is not None:
                raise error

    async def begin() -> None:
        kept.extend(
            asyncio.get_running_loop().create_task(stay(name, error))
            for name, error in {
                "first": None,
                "fails": ValueError("at last"),
                "leaves": SystemExit(3),
                "cancels": asyncio.CancelledError(),
                "closes": BaseExceptionGroup("of a group of tasks", [GeneratorExit()]),
                "leaves in a group": BaseExceptionGroup("", [SystemExit(4), GeneratorExit()]),
                "last": None,
            }.items()
        )
        await asyncio.sleep(0)

    kept: list[asyncio.Task[None]] = []
    async with open_bridge() as aio:
        await aio.call(begin)
    names = ["cancels", "closes", "fails", "first", "last", "leaves", "leaves in a group"]
    assert sorted(ended) == names
    assert len(kept) == 2 * len(names)
    assert not any(task.done() for task in kept)
    assert "has raised ValueError('at last'), which ends nothing" in caplog.text
    assert "has raised SystemExit(3), which ends nothing" in caplog.text
    assert "[SystemExit(4)]), which ends nothing" in caplog.text
    assert "of a group of tasks" not in caplog.text
    assert "has raised None" not in caplog.text
    assert sniffio.current_async_library() == "trio"


async def test_an_interrupt_in_a_group_of_what_is_left_behind_is_raised(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def stay() -> None:
        try:
            await refuse()
        finally:
            raise BaseExceptionGroup("", [KeyboardInterrupt()])

    async def begin() -> None:
        kept.append(asyncio.get_running_loop().create_task(stay()))
        await asyncio.sleep(0)

    kept: list[object] = []
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        async with open_bridge() as aio:
            await aio.call(begin)
    assert "KeyboardInterrupt" in repr(caught.value)


def test_a_loop_whose_closing_is_interrupted_is_closed_all_the_same(
    default_handler: None,
) -> None:
    async def linger() -> None:
        while True:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                signal.raise_signal(signal.SIGINT)

    async def begin() -> None:
        kept.append(asyncio.get_running_loop().create_task(linger()))
        await asyncio.sleep(0)

    async def main() -> None:
        before = loops_running()
        with pytest.raises(KeyboardInterrupt):
            async with open_aio(thread=True, close_within=PATIENCE) as aio:
                await aio.call(begin)
        with trio.fail_after(PATIENCE / 2):
            while loops_running() > before:  # noqa: ASYNC110 - a thread gives no event
                await trio.sleep(0.01)

    kept: list[object] = []
    trio.run(main)


def test_an_exit_after_a_closing_that_was_interrupted_ends_nothing(
    default_handler: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            signal.raise_signal(signal.SIGINT)
            release.wait(PATIENCE)
            raise SystemExit(3)

    async def begin() -> None:
        kept.append(asyncio.get_running_loop().create_task(leave()))
        await asyncio.sleep(0)

    async def main() -> None:
        with pytest.raises(KeyboardInterrupt):
            async with open_aio(thread=True, close_within=PATIENCE) as aio:
                await aio.call(begin)
        release.set()
        with trio.fail_after(PATIENCE):
            while "which ends nothing" not in caplog.text:  # noqa: ASYNC110 - a log gives no event
                await trio.sleep(0.01)

    kept: list[object] = []
    release = threading.Event()
    trio.run(main)


async def test_an_exit_does_not_wait_for_what_another_task_does_at_its_end() -> None:
    release = threading.Event()

    async def block() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            release.wait(2 * PATIENCE)

    async def leave() -> None:
        raise SystemExit(7)

    async def begin(*work: Callable[[], Awaitable[None]]) -> None:
        tasks.extend(asyncio.ensure_future(one()) for one in work)
        await asyncio.sleep(0)

    tasks: list[asyncio.Future[None]] = []
    try:
        with trio.fail_after(PATIENCE), pytest.raises(SystemExit, match="7"):
            async with open_aio(thread=True, close_within=0.05) as aio:
                await aio.call(begin, block)
                await aio.call(begin, leave)
                await trio.sleep_forever()
    finally:
        release.set()


async def test_an_exit_that_a_cancellation_meets_keeps_its_status(open_bridge: Opener) -> None:
    async def leave() -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            raise SystemExit(7) from None

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(leave()))
        await asyncio.sleep(0)

    tasks: list[object] = []
    with pytest.raises(SystemExit) as caught, trio.move_on_after(0.05):
        async with open_bridge(close_within=0.1) as aio:
            await aio.call(begin)
            await trio.sleep_forever()
    assert caught.value.code == 7


@pytest.mark.parametrize("how", ["swallows", "exits"])
@pytest.mark.parametrize("waits", ["for a task", "for a future", "anew"])
@pytest.mark.parametrize("host", ["hosted"], indirect=True)
async def test_trio_code_that_waits_for_what_is_left_behind_holds_nothing_up(
    how: str, waits: str, open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    import trio_asyncio

    ended: list[str] = []

    async def inside() -> None:
        try:
            if waits == "for a future":
                await trio_asyncio.run_aio_future(asyncio.get_running_loop().create_future())
            else:
                await trio_asyncio.aio_as_trio(refuse)()
        finally:
            if waits == "anew":
                with trio.CancelScope(shield=True):
                    with pytest.raises(RuntimeError, match="loop is closed"):
                        await trio_asyncio.aio_as_trio(refuse)()
            ended.append("inside")

    async def leave() -> None:
        raise SystemExit(7)

    async def begin(*work: Callable[[], Awaitable[None]]) -> None:
        tasks.extend(asyncio.ensure_future(one()) for one in work)
        await asyncio.sleep(0.01)

    tasks: list[asyncio.Future[None]] = []
    with trio.fail_after(PATIENCE), suppress(SystemExit):
        async with open_bridge(close_within=0.3) as aio:
            await aio.call(begin, trio_asyncio.trio_as_aio(inside))
            if how == "exits":
                await aio.call(begin, leave)
    assert ended == ["inside"]
    tasks.clear()
    gc.collect()
    assert "nobody awaits it" not in caplog.text


@pytest.mark.parametrize("host", ["hosted"], indirect=True)
async def test_trio_code_is_told_what_was_queued_for_it_when_the_loop_ended(
    open_bridge: Opener,
) -> None:
    told: list[object] = []

    async def inside() -> None:
        import trio_asyncio

        futures.append(asyncio.get_running_loop().create_future())
        told.append(await trio_asyncio.run_aio_future(futures[0]))

    async def begin() -> None:
        import trio_asyncio

        tasks.append(asyncio.ensure_future(trio_asyncio.trio_as_aio(inside)()))
        await asyncio.sleep(0.01)
        tasks.append(asyncio.ensure_future(leave()))

    async def leave() -> None:
        futures[0].set_result("done")
        raise SystemExit(7)

    futures: list[asyncio.Future[object]] = []
    tasks: list[object] = []
    with trio.fail_after(PATIENCE), pytest.raises(SystemExit):
        async with open_bridge() as aio:
            await aio.call(begin)
            await trio.sleep_forever()
    assert told == ["done"]


async def test_nobody_beside_a_loop_that_closes_finds_himself_on_it(open_bridge: Opener) -> None:
    found = set()

    async def look() -> None:
        while True:
            found.add(sniffio.current_async_library())
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        async with open_bridge() as aio:
            await aio.call(asyncio.sleep, 0)
        nursery.cancel_scope.cancel()
    assert found == {"trio"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task does not tell its context")
async def test_what_is_left_behind_is_closed_in_its_own_context(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        token = var.set(1)
        try:
            await refuse()
        finally:
            var.reset(token)
            libraries.append(sniffio.current_async_library())

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(work()))
        await asyncio.sleep(0)

    var: ContextVar[int] = ContextVar("var")
    tasks: list[object] = []
    libraries: list[str] = []
    async with open_bridge(close_within=0.3) as aio:
        await aio.call(begin)
    assert libraries == ["asyncio"]
    assert "has raised" not in caplog.text
