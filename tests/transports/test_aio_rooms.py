"""A turn over the bridge is settled in time, whatever its asyncio code does when cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
from bridging import Opener, Stubborn, wait_for_ever
from trio.testing import MockClock

import turnstop
from turnstop import BackendMisbehaved, Ending, StopBudget
from turnstop.abc import Emit, End, How, Leftover, RemoteTurn, Request
from turnstop.transports.aio import Aio, Bridged

BUDGET = StopBudget(cancel_within=0.5, kill_within=2)
GRACE = 0.125


@attrs.define(eq=False)
class Worker:
    """What an asyncio library does for a turn; each part may be told to swallow cancellations."""

    swallows: frozenset[str] = frozenset()
    hangs: bool = False
    calls: list[str] = attrs.field(factory=list)
    stubborn: dict[str, Stubborn] = attrs.field(factory=dict)
    fails: BaseException | None = None
    blocks: float = 0
    over: asyncio.Event | None = None
    child: asyncio.Task[Any] | None = None

    async def _do(self, part: str) -> None:
        self.calls.append(part)
        if part in self.swallows:
            self.stubborn[part] = Stubborn()
            await self.stubborn[part].work()

    async def start(self) -> None:
        self.over = asyncio.Event()
        self.child = asyncio.get_running_loop().create_task(self.assist(), name="assistant")
        await asyncio.sleep(0)
        await self._do("start")

    async def assist(self) -> None:
        await self._do("child")
        await wait_for_ever()

    async def follow(self) -> str:
        await self._do("follow")
        if self.fails is not None:
            raise self.fails
        assert self.over is not None
        await self.over.wait()
        return "cancelled"

    async def cancel(self) -> None:
        await self._do("cancel")
        time.sleep(self.blocks)  # noqa: ASYNC251
        if self.hangs:
            await wait_for_ever()
        assert self.over is not None
        self.over.set()

    async def release(self) -> None:
        for stubborn in self.stubborn.values():
            await stubborn.release()


@attrs.define(eq=False)
class Turn:
    aio: Aio
    worker: Worker
    session: object | None = None

    async def follow(self, emit: Emit) -> End:
        await self.aio.call(self.worker.follow)
        return End(How.CANCELLED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        await self.aio.call(self.worker.cancel)

    async def leftovers(self) -> Sequence[Leftover]:
        return self.aio.owned()

    async def sweep(self, leftovers: Sequence[Bridged]) -> Sequence[Leftover]:
        return await self.aio.sweep(tuple(leftovers))


@attrs.define(eq=False)
class Backend:
    aio: Aio
    workers: dict[str, Worker]

    async def start(self, request: Request[str]) -> RemoteTurn:
        worker = self.workers[request.room]
        await self.aio.call(worker.start)
        return Turn(self.aio, worker)

    def check_nesting(self) -> None:
        self.aio.check_nesting()


async def stop_one(aio: Aio, worker: Worker) -> turnstop.Settlement:
    """Stop a turn while a neighbour's goes on, and return its settlement."""
    backend = Backend(aio, {"room": worker, "next door": Worker()})
    settlements: list[turnstop.Settlement] = []
    async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
        async with trio.open_nursery() as nursery:

            async def use(room: str) -> None:
                async with rooms.turn(room, "go", turn_id="one and the same") as turn:
                    async for _ in turn:
                        pass
                settlements.append(turn.settlement)

            nursery.start_soon(use, "next door")
            nursery.start_soon(use, "room")
            await trio.sleep(1)
            receipt = rooms.stop("room")
            await receipt.settled()
            await trio.lowlevel.checkpoint()
            other = backend.workers["next door"]
            assert other.calls == ["child", "start", "follow"]
            assert other.child is not None
            assert not other.child.done()
            rooms.stop("next door")
        stopped, left = settlements
        assert (left.room, left.ending) == ("next door", Ending.STOPPED)
        assert left.survivors == ()
        await aio.call_unowned(worker.release)
    return stopped


async def test_a_cancel_that_is_answered_stops_the_turn_and_all_that_it_left(
    open_bridge: Opener, clock: MockClock
) -> None:
    worker = Worker()
    async with open_bridge(grace=GRACE) as aio:
        settlement = await stop_one(aio, worker)
        assert settlement.clean
        assert settlement.ending is Ending.STOPPED
        assert settlement.settled_at == settlement.asked_at
        assert worker.calls == ["child", "start", "follow", "cancel"]
        statistics = aio.statistics()
    assert (statistics.tasks, statistics.abandoned, statistics.turns) == (0, 0, 0)


async def test_a_cancel_that_hangs_is_given_up_when_the_budget_is_over(
    open_bridge: Opener, clock: MockClock
) -> None:
    worker = Worker(hangs=True)
    async with open_bridge(grace=GRACE) as aio:
        settlement = await stop_one(aio, worker)
        assert settlement.ending is Ending.UNCONFIRMED
        assert settlement.settled_at is not None
        assert settlement.asked_at is not None
        assert settlement.settled_at - settlement.asked_at == 2.5
        assert worker.calls.count("cancel") == 1
        assert aio.statistics().abandoned == 0


@pytest.mark.parametrize("part", ["start", "follow", "cancel", "child"])
async def test_asyncio_code_that_swallows_its_cancellation_holds_up_nothing(
    open_bridge: Opener, clock: MockClock, part: str
) -> None:
    worker = Worker(swallows=frozenset({part}), hangs=part == "follow")
    async with open_bridge(grace=GRACE) as aio:
        settlement = await stop_one(aio, worker)
    assert settlement.settled_at is not None
    assert settlement.asked_at is not None
    took = settlement.settled_at - settlement.asked_at
    named = {
        "start": "start() of turn one and the same has not returned",
        "follow": "follow() of turn one and the same has not returned",
        "cancel": "(Worker.cancel)",
        "child": "asyncio task assistant (Worker.assist)",
    }
    assert any(named[part] in str(left) for left in settlement.survivors)
    if part == "child":
        # Its turn has ended; what it left has not.
        assert settlement.ending is Ending.STOPPED
        assert settlement.gone
        assert took == GRACE / 2
    else:
        assert settlement.ending is Ending.UNCONFIRMED
        assert took <= BUDGET.cancel_within + BUDGET.kill_within + GRACE / 2
    assert not settlement.clean


async def test_a_cancellation_of_the_librarys_own_fails_its_turn_and_no_other(
    open_bridge: Opener, clock: MockClock
) -> None:
    workers = {"room": Worker(fails=asyncio.CancelledError()), "next door": Worker()}
    async with open_bridge() as aio:
        async with turnstop.open_rooms(Backend(aio, workers), budget=BUDGET) as rooms:
            async with rooms.turn("next door", "go"):
                with pytest.raises(BackendMisbehaved, match="was cancelled inside"):
                    async with rooms.turn("room", "go") as turn:
                        async for _ in turn:
                            pass
                assert turn.ending is Ending.FAILED
                assert rooms.statistics().live == 1
        assert aio.statistics().tasks == 0


async def test_code_that_blocks_the_loop_for_a_moment_is_waited_for(open_bridge: Opener) -> None:
    worker = Worker(blocks=0.2)
    async with open_bridge() as aio:
        settlement = await stop_one(aio, worker)
    assert settlement.ending is Ending.STOPPED
    assert settlement.clean
