"""What asyncio code has a thread do cannot be ended, and is known of."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from bridging import Opener

import turnstop
from turnstop import Ending, StopBudget
from turnstop.abc import Emit, End, How, Leftover, RemoteTurn, Request, current_turn
from turnstop.transports.aio import Aio, Bridged, open_aio

PATIENCE = 10


@attrs.define(eq=False)
class Oven:
    """Bakes in a thread, until it is told to stop baking."""

    hot: threading.Event = attrs.field(factory=threading.Event)
    enough: threading.Event = attrs.field(factory=threading.Event)

    def bake(self) -> str:
        self.hot.set()
        assert self.enough.wait(PATIENCE)
        return "bread"

    async def in_a_thread(self) -> str:
        return await asyncio.to_thread(self.bake)

    async def in_the_executor(self) -> str:
        return await asyncio.get_running_loop().run_in_executor(None, self.bake)


# Threads are real, and so is the time.
@pytest.fixture
def opener(host: str) -> Opener:
    return lambda **options: open_aio(thread=host == "thread", **options)


@asynccontextmanager
async def baking(opener: Opener, **options: Any) -> AsyncGenerator[tuple[Aio, Oven], None]:
    oven = Oven()
    try:
        async with opener(**options) as aio:
            yield aio, oven
    finally:
        oven.enough.set()


async def until_hot(oven: Oven) -> None:
    with trio.fail_after(PATIENCE):
        while not oven.hot.is_set():  # noqa: ASYNC110 - a thread gives no event
            await trio.sleep(0.005)


@pytest.mark.parametrize("how", ["in_a_thread", "in_the_executor"])
async def test_a_thread_that_goes_on_is_owned_by_the_turn_that_wanted_it(
    opener: Opener, how: str
) -> None:
    async with baking(opener) as (aio, oven):
        current_turn.set("t" + "1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(aio.call, getattr(oven, how))
            await until_hot(oven)
            nursery.cancel_scope.cancel()
        (left,) = aio.owned()
        assert str(left) == "asyncio thread (Oven.bake)"
        assert (left.name, left.turn_id, left.alive) == ("thread", "t1", True)
        statistics = aio.statistics()
        assert (statistics.tasks, statistics.threads, statistics.turns) == (0, 1, 1)
        assert await aio.sweep((left,)) == (left,)
        await aio.end_owned()
        oven.enough.set()
        assert await aio.sweep((left,)) in ((), (left,))
        with trio.fail_after(PATIENCE):
            while aio.owned():  # noqa: ASYNC110
                await trio.sleep(0.005)
        assert aio.statistics().threads == 0


async def test_a_thread_that_ends_in_time_is_swept(opener: Opener) -> None:
    async with baking(opener, grace=2 * PATIENCE) as (aio, oven):
        current_turn.set("t" + "2")
        with trio.move_on_after(0.05):
            await aio.call(oven.in_a_thread)
        left = aio.owned()
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await trio.sleep(0.05)
                oven.enough.set()

            nursery.start_soon(serve)
            assert await aio.sweep(left) == ()


async def test_work_that_no_thread_has_begun_is_nobodys_when_it_is_called_off(
    opener: Opener,
) -> None:
    async with baking(opener) as (aio, oven):

        async def crowd() -> None:
            jobs = [asyncio.to_thread(oven.bake) for _ in range(200)]
            await asyncio.gather(*jobs)

        current_turn.set("t" + "3")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(aio.call, crowd)
            await until_hot(oven)
            nursery.cancel_scope.cancel()
        running = aio.statistics().threads
        assert 0 < running < 200
        oven.enough.set()
        with trio.fail_after(PATIENCE):
            while aio.owned():  # noqa: ASYNC110
                await trio.sleep(0.005)


@attrs.define(eq=False)
class Baking:
    aio: Aio
    oven: Oven
    session: object = None

    async def follow(self, emit: Emit) -> End:
        await self.aio.call(self.oven.in_a_thread)
        return End(How.COMPLETED)

    async def cancel(self, sent: Any) -> None:
        sent()

    async def leftovers(self) -> Sequence[Leftover]:
        return self.aio.owned()

    async def sweep(self, leftovers: Sequence[Leftover]) -> Sequence[Leftover]:
        return await self.aio.sweep(tuple(one for one in leftovers if isinstance(one, Bridged)))


@attrs.define(eq=False)
class Bakery:
    aio: Aio
    oven: Oven

    async def start(self, request: Request[str]) -> RemoteTurn:
        return Baking(self.aio, self.oven)


async def test_a_stopped_turn_whose_library_works_on_in_a_thread_says_so(opener: Opener) -> None:
    async with baking(opener) as (aio, oven):
        budget = StopBudget(cancel_within=0.05, kill_within=1)
        async with turnstop.open_rooms(Bakery(aio, oven), budget=budget) as rooms:
            async with rooms.turn("kitchen", "bread") as turn:
                await until_hot(oven)
            settlement = turn.settlement
            assert settlement is not None
            assert settlement.ending is Ending.UNCONFIRMED
            assert "asyncio thread (Oven.bake)" in settlement.survivors
            assert not settlement.clean
            oven.enough.set()


async def test_what_a_turn_has_left_and_nobody_has_told_of_is_named_when_the_loop_closes(
    opener: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "turnstop.aio")

    async def leave() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(1000), name="heartbeat"))

    kept: list[object] = []
    async with opener() as aio:
        await aio.call_unowned(leave)
        current_turn.set("t" + "4")
        await aio.call(leave)
    (record,) = caplog.records
    assert record.getMessage().startswith("turns have left something, which leftovers()")
    assert record.getMessage().endswith(": asyncio task heartbeat (sleep) of turn t4")


async def test_jobs_that_never_end_leave_trio_its_threads(opener: Opener) -> None:
    oven = Oven()
    many = int(trio.to_thread.current_default_thread_limiter().total_tokens)

    async def start() -> None:
        for _ in range(many):
            asyncio.get_running_loop().run_in_executor(None, oven.bake)

    async with opener() as aio:
        await aio.call(start)
        with trio.fail_after(PATIENCE / 2):
            await trio.to_thread.run_sync(oven.hot.wait, PATIENCE)
            assert await trio.to_thread.run_sync(lambda: "here") == "here"
        assert not oven.enough.is_set()
        oven.enough.set()
