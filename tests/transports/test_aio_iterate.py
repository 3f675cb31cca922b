"""Asyncio iterables are pumped: they end, break, fail and are cancelled without hanging."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
import trio
from bridging import Opener
from trio.testing import MockClock

from turnstop._errors import BackendMisbehaved
from turnstop.abc import current_turn
from turnstop.transports.aio._iterating import _AHEAD


class Source:
    """A generator that tells what became of it."""

    def __init__(self) -> None:
        self.said = 0
        self.closed = False

    async def count(self, to: int, then: BaseException | None = None) -> AsyncGenerator[int, None]:
        try:
            for number in range(to):
                await asyncio.sleep(0)
                self.said += 1
                yield number
            if then is not None:
                raise then
        finally:
            await asyncio.sleep(0)
            self.closed = True

    async def flood(self, to: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(to):
                self.said += 1
                yield number
        finally:
            self.closed = True

    async def count_and_wait(self, to: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(to):
                self.said += 1
                yield number
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            self.closed = True


async def test_it_is_read_to_its_end(open_bridge: Opener, clock: MockClock) -> None:
    source = Source()
    async with open_bridge() as aio:
        async with aio.iterate(source.count, 3) as items:
            assert [item async for item in items] == [0, 1, 2]
            assert source.closed
            with trio.testing.assert_checkpoints(), pytest.raises(StopAsyncIteration):
                await anext(items)
        assert aio.statistics().tasks == 0


async def test_an_iterable_without_aclose_is_read(open_bridge: Opener, clock: MockClock) -> None:
    class Two:
        said = 0

        def __aiter__(self) -> AsyncIterator[int]:
            return self

        async def __anext__(self) -> int:
            self.said += 1
            if self.said > 2:
                raise StopAsyncIteration
            return self.said

    async with open_bridge() as aio, aio.iterate(Two) as items:
        assert [item async for item in items] == [1, 2]


async def test_a_break_closes_it_before_the_block_is_left(
    open_bridge: Opener, clock: MockClock
) -> None:
    source = Source()
    async with open_bridge() as aio:
        async with aio.iterate(source.count_and_wait, 2) as items:
            async for _ in items:
                break
            assert not source.closed
        assert source.closed
        assert aio.statistics().tasks == 0


async def test_what_it_raises_comes_behind_what_it_said(
    open_bridge: Opener, clock: MockClock
) -> None:
    source, error, found = Source(), ValueError("broken"), []
    async with open_bridge() as aio, aio.iterate(source.count, 2, error) as items:
        with pytest.raises(ValueError, match="broken") as caught:
            async for item in items:
                found.append(item)
        assert caught.value is error
        with pytest.raises(StopAsyncIteration):
            await anext(items)
    assert found == [0, 1]


async def test_a_cancellation_that_nobody_asked_for_is_an_ordinary_error(
    open_bridge: Opener, clock: MockClock
) -> None:
    source, found = Source(), []
    async with open_bridge() as aio:
        async with aio.iterate(source.count, 2, asyncio.CancelledError()) as items:
            with pytest.raises(BackendMisbehaved, match="count was cancelled inside"):
                async for item in items:
                    found.append(item)
    assert found == [0, 1]


async def test_a_deadline_ends_the_reading_and_closes_it(
    open_bridge: Opener, clock: MockClock
) -> None:
    source, found = Source(), []
    async with open_bridge() as aio:
        start = trio.current_time()
        with trio.move_on_after(1) as scope:
            async with aio.iterate(source.count_and_wait, 2) as items:
                async for item in items:
                    found.append(item)
        assert scope.cancelled_caught
        assert trio.current_time() - start == 1
        assert source.closed
    assert found == [0, 1]


async def test_a_generator_that_does_not_close_is_abandoned_after_the_grace(
    open_bridge: Opener, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    let_go: list[asyncio.Event] = []

    async def count() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.get_running_loop().create_future()
        finally:
            let_go.append(asyncio.Event())
            await let_go[0].wait()

    async def release() -> None:
        let_go[0].set()

    async with open_bridge(grace=0.5) as aio:
        start = trio.current_time()
        async with aio.iterate(count) as items:
            assert await anext(items) == 1
        assert trio.current_time() - start == 0.5
        assert aio.statistics().abandoned == 1
        assert "count outside of any turn has not ended" in caplog.text
        await aio.call(release)


async def test_the_body_keeps_its_own_error(open_bridge: Opener, clock: MockClock) -> None:
    source = Source()
    async with open_bridge() as aio:
        with pytest.raises(KeyError, match="mine"):
            async with aio.iterate(source.count_and_wait, 1) as items:
                async for _ in items:
                    raise KeyError("mine")
        assert source.closed


async def test_a_reader_that_is_slow_loses_nothing(open_bridge: Opener, clock: MockClock) -> None:
    source = Source()
    async with open_bridge() as aio, aio.iterate(source.count, 100) as items:
        found = [await anext(items)]
        await trio.sleep(1)
        assert source.closed
        found += [item async for item in items]
    assert found == [*range(100)]


async def test_it_is_read_only_some_way_ahead(open_bridge: Opener, clock: MockClock) -> None:
    source = Source()
    async with open_bridge() as aio, aio.iterate(source.flood, 5_000) as items:
        await trio.sleep(1)
        assert source.said == _AHEAD
        # Half of it is read before there is more.
        found = [await anext(items) for _ in range(_AHEAD // 2 - 1)]
        await trio.sleep(1)
        assert source.said == _AHEAD
        found.append(await anext(items))
        await trio.sleep(1)
        assert source.said == _AHEAD + _AHEAD // 2
        found += [item async for item in items]
        assert source.closed
    assert found == [*range(5_000)]


async def test_one_that_was_read_ahead_is_closed_where_it_stands(
    open_bridge: Opener, clock: MockClock
) -> None:
    source = Source()
    async with open_bridge() as aio:
        async with aio.iterate(source.flood, 5_000):
            await trio.sleep(1)
            assert source.said == _AHEAD
        assert source.closed


async def test_what_a_generator_starts_belongs_to_the_turn(
    open_bridge: Opener, clock: MockClock
) -> None:
    current_turn.set("turn 7")

    async def count() -> AsyncGenerator[int, None]:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(10_000), name="left")
        yield 1
        assert task is not None

    async with open_bridge() as aio:
        async with aio.iterate(count) as items:
            assert [item async for item in items] == [1]
        (left,) = aio.owned()
        assert (left.name, left.turn_id) == ("left", "turn 7")
        await aio.end_owned()


async def test_what_ends_programs_passes_through(open_bridge: Opener, clock: MockClock) -> None:
    source = Source()
    with pytest.raises(SystemExit, match="that is all"):
        async with open_bridge() as aio:
            async with aio.iterate(source.count, 1, SystemExit("that is all")) as items:
                async for _ in items:
                    pass
                await trio.sleep(100)


async def test_an_error_of_its_own_clean_up_is_raised_by_the_end_of_the_block(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def pages() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(1)
        finally:
            raise ValueError("the session was not given back")

    async with open_bridge() as aio:
        with pytest.raises(ValueError, match="not given back"):
            async with aio.iterate(pages) as items:
                async for _ in items:
                    break
