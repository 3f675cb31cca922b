"""What a turn leaves on the loop is found, named and ended: root first, and nobody else's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from bridging import Opener, Stubborn, wait_for_ever
from trio.testing import MockClock

from turnstop.abc import current_turn
from turnstop.transports.aio import Aio
from turnstop.transports.aio._filing import Filing
from turnstop.transports.aio._jobs import Job


def turn(name: str) -> Context:
    """A context of a turn: its id is an object of its own, as the kernel's are."""
    context = copy_context()
    context.run(current_turn.set, "".join(list(name)))
    return context


@asynccontextmanager
async def within(context: Context) -> AsyncGenerator[None, None]:
    token = current_turn.set(context[current_turn])
    try:
        yield
    finally:
        current_turn.reset(token)


def names(aio: Aio) -> list[str]:
    return [task.name for task in aio.owned()]


async def leave(*wanted: str) -> None:
    """Start tasks that stay, one that starts the next."""
    name, *below = wanted

    async def stay() -> None:
        if below:
            await leave(*below)
        await wait_for_ever()

    _KEPT.add(asyncio.get_running_loop().create_task(stay(), name=name))
    for _ in range(3):
        await asyncio.sleep(0)


_KEPT: set[asyncio.Task[Any]] = set()


@pytest.fixture(autouse=True)
def _forget() -> None:
    _KEPT.clear()


async def test_children_and_their_children_belong_to_the_turn(
    open_bridge: Opener, clock: MockClock
) -> None:
    async with open_bridge() as aio, within(turn("t")):
        await aio.call(leave, "child", "grandchild", "great-grandchild")
        assert names(aio) == ["child", "grandchild", "great-grandchild"]
        assert (aio.statistics().tasks, aio.statistics().turns) == (3, 1)
        await aio.end_owned()
        assert aio.owned() == ()
        assert (aio.statistics().tasks, aio.statistics().turns) == (0, 0)


async def _by_a_callback() -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: _KEPT.add(loop.create_task(wait_for_ever(), name="left")))
    await asyncio.sleep(0)


async def _by_a_timer() -> None:
    loop, fired = asyncio.get_running_loop(), asyncio.Event()

    def fire() -> None:
        _KEPT.add(loop.create_task(wait_for_ever(), name="left"))
        fired.set()

    loop.call_later(0.001, fire)
    await fired.wait()


async def _by_the_end_of_a_thread() -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        _KEPT.add(loop.create_task(wait_for_ever(), name="left"))
        told.set()

    loop.run_in_executor(None, int).add_done_callback(tell)
    await told.wait()


async def _by_a_task_that_is_over() -> None:
    async def begin() -> None:
        await leave("left")

    await asyncio.get_running_loop().create_task(begin())


@pytest.mark.parametrize(
    "work", [_by_a_callback, _by_a_timer, _by_the_end_of_a_thread, _by_a_task_that_is_over]
)
async def test_what_is_begun_in_a_roundabout_way_belongs_to_the_turn(
    open_bridge: Opener, clock: MockClock, work: Callable[[], Awaitable[None]]
) -> None:
    async with open_bridge() as aio, within(turn("t")):
        await aio.call(work)
        assert names(aio) == ["left"]
        await aio.end_owned()
        assert aio.owned() == ()


async def test_a_neighbours_work_is_not_touched(open_bridge: Opener, clock: MockClock) -> None:
    # Two rooms may call their turns the same.
    mine, theirs = turn("t1"), turn("t1")
    async with open_bridge() as aio:
        for context, name in ((mine, "mine"), (theirs, "theirs")):
            async with within(context):
                await aio.call(leave, name)
        assert aio.statistics().turns == 2
        async with within(mine):
            assert names(aio) == ["mine"]
            await aio.end_owned()
            assert aio.owned() == ()
        async with within(theirs):
            assert names(aio) == ["theirs"]
            await aio.end_owned()


async def test_what_is_called_unowned_belongs_to_nobody(
    open_bridge: Opener, clock: MockClock
) -> None:
    async with open_bridge() as aio, within(turn("t")):
        await aio.call_unowned(leave, "reader", "its child")
        assert aio.owned() == ()
        await aio.end_owned()
        assert (aio.statistics().tasks, aio.statistics().turns) == (2, 0)
        assert current_turn.get() == "t"


async def test_where_there_is_no_turn_nothing_is_owned(
    open_bridge: Opener, clock: MockClock
) -> None:
    async with open_bridge() as aio:
        await aio.call(leave, "reader")
        assert aio.owned() == ()
        await aio.end_owned()
        assert aio.statistics().tasks == 1


async def test_a_reader_that_a_library_starts_lazily_belongs_to_who_asked_first(
    open_bridge: Opener, clock: MockClock
) -> None:
    @attrs.define
    class Library:
        reader: asyncio.Task[None] | None = None

        async def ask(self) -> None:
            if self.reader is None:
                self.reader = asyncio.get_running_loop().create_task(wait_for_ever())

    kept, lost = Library(), Library()
    async with open_bridge() as aio, within(turn("t")):
        await aio.call_unowned(kept.ask)
        await aio.call(kept.ask)
        await aio.call(lost.ask)
        await aio.end_owned()
        await aio.call(asyncio.sleep, 0)
        assert kept.reader is not None
        assert lost.reader is not None
        assert (kept.reader.done(), lost.reader.done()) == (False, True)


async def test_a_call_that_somebody_waits_for_is_not_left(
    open_bridge: Opener, clock: MockClock
) -> None:
    work = Stubborn()
    async with open_bridge() as aio, within(turn("t")):
        async with trio.open_nursery() as nursery:
            begun = trio.Event()
            work.tell = partial(aio.post, begun.set)
            nursery.start_soon(aio.call, work.work)
            await begun.wait()
            assert (aio.owned(), aio.statistics().calls) == ((), 1)
            await aio.end_owned()
            assert work.cancelled == 0
            await aio.call(work.release)


async def test_the_root_is_ended_first_and_may_finish_with_its_children(
    open_bridge: Opener, clock: MockClock
) -> None:
    order: list[str] = []

    async def child(asked: asyncio.Event, answer: asyncio.Event) -> None:
        try:
            await asked.wait()
            order.append("child answers")
            answer.set()
            await wait_for_ever()
        finally:
            order.append("child ends")

    async def root() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()
        _KEPT.add(asyncio.get_running_loop().create_task(child(asked, answer)))
        try:
            await wait_for_ever()
        finally:
            asked.set()
            await answer.wait()
            order.append("root ends")

    async def begin() -> None:
        _KEPT.add(asyncio.get_running_loop().create_task(root()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async with open_bridge() as aio, within(turn("t")):
        await aio.call(begin)
        await aio.end_owned()
        assert aio.owned() == ()
    assert order == ["child answers", "root ends", "child ends"]


async def test_an_abandoned_call_is_older_than_what_its_first_step_begins(
    open_bridge: Opener, clock: MockClock
) -> None:
    work = Stubborn()

    async def begin() -> None:
        _KEPT.add(asyncio.get_running_loop().create_task(wait_for_ever(), name="child"))
        await work.work()

    async with open_bridge() as aio, within(turn("t")):
        with trio.move_on_after(1):
            await aio.call(begin)
        root, child = aio.owned()
        assert root.what.endswith("begin")
        assert child.name == "child"
        await aio.call(work.release)
        await aio.end_owned()


async def test_what_is_begun_while_ending_is_ended_too(
    open_bridge: Opener, clock: MockClock
) -> None:
    ended: list[int] = []

    async def stay(number: int) -> None:
        try:
            await wait_for_ever()
        finally:
            ended.append(number)
            if number < 3:
                task = asyncio.get_running_loop().create_task(stay(number + 1))
                _KEPT.add(task)
                await asyncio.sleep(0)

    async def begin() -> None:
        _KEPT.add(asyncio.get_running_loop().create_task(stay(1)))
        await asyncio.sleep(0)

    async with open_bridge() as aio, within(turn("t")):
        await aio.call(begin)
        await aio.end_owned()
        assert aio.owned() == ()
    assert ended == [1, 2, 3]


async def test_ending_waits_for_a_task_and_lets_itself_be_cancelled(
    open_bridge: Opener, clock: MockClock
) -> None:
    work = Stubborn()

    async def begin() -> None:
        _KEPT.add(asyncio.get_running_loop().create_task(work.work(), name="stubborn"))
        await leave("younger")

    async with open_bridge() as aio, within(turn("t")):
        await aio.call(begin)
        start = trio.current_time()
        with trio.move_on_after(3) as scope:
            await aio.end_owned()
        assert scope.cancelled_caught
        assert trio.current_time() - start == 3
        assert work.cancelled == 1
        # What was not reached stays.
        assert names(aio) == ["stubborn", "younger"]

        left = aio.owned()
        alive = await aio.sweep(left)
        assert [task.name for task in alive] == ["stubborn"]
        assert "asyncio task stubborn (Stubborn.work)" in map(str, alive)
        assert [task.alive for task in left] == [True, False]
        assert alive == left[:1]
        await aio.call(work.release)
        await aio.end_owned()


async def test_a_sweep_is_bounded_by_half_the_grace_and_over_as_soon_as_all_have_ended(
    open_bridge: Opener, clock: MockClock
) -> None:
    works = [Stubborn() for _ in range(2)]

    async def begin() -> None:
        for work in works:
            _KEPT.add(asyncio.get_running_loop().create_task(work.work()))
        await asyncio.sleep(0)

    async with open_bridge(grace=1) as aio, within(turn("t")):
        await aio.call(leave, "obedient")
        start = trio.current_time()
        assert await aio.sweep(aio.owned()) == ()
        assert trio.current_time() == start
        await aio.call(begin)
        assert len(await aio.sweep(aio.owned())) == 2
        assert trio.current_time() - start == 0.5
        # All at once.
        assert [work.cancelled for work in works] == [1, 1]
        for work in works:
            await aio.call(work.release)
        await aio.end_owned()
        assert await aio.sweep(()) == ()


async def test_ending_nothing_is_a_checkpoint(open_bridge: Opener, clock: MockClock) -> None:
    async with open_bridge() as aio, within(turn("t")):
        for work in (aio.end_owned, partial(aio.sweep, ())):
            with trio.testing.assert_checkpoints():
                await work()
        await aio.call(leave, "left")
        with trio.CancelScope() as scope:
            scope.cancel()
            await aio.end_owned()
        assert scope.cancelled_caught
        assert names(aio) == ["left"]
        await aio.end_owned()


async def test_what_has_ended_is_forgotten_and_nothing_else(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def many(name: str) -> None:
        await leave(name)
        for _ in range(100):
            await asyncio.get_running_loop().create_task(asyncio.sleep(0))

    async def nothing_left() -> None:
        await asyncio.get_running_loop().create_task(asyncio.sleep(0))

    async with open_bridge() as aio:
        filing = aio._host.filing
        busy, crowd = turn("busy"), [turn("one of many") for _ in range(50)]
        async with within(busy):
            await aio.call(many, "of the busy one")
        for context in crowd:
            async with within(context):
                await aio.call(leave, "of one")
        for _ in range(200):
            async with within(turn("a short one")):
                await aio.call(nothing_left)
        # However much ended meanwhile.
        assert aio.statistics().turns == 51
        assert len(filing._shelves) < 51 + 150
        assert max(len(shelf._refs) for shelf in filing._shelves.values()) < 50
        for context, name in [(busy, "of the busy one"), *((one, "of one") for one in crowd)]:
            async with within(context):
                assert names(aio) == [name]
                await aio.end_owned()
        _KEPT.clear()
        gc.collect()
        assert (aio.statistics().tasks, aio.statistics().turns) == (0, 0)


async def test_tasks_of_no_turn_are_found_by_what_they_run(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def serve(whose: str) -> None:
        await wait_for_ever()

    async def begin() -> None:
        for whose in ("mine", "theirs"):
            _KEPT.add(asyncio.get_running_loop().create_task(serve(whose), name=whose))
        await asyncio.sleep(0)

    def is_mine(coro: Any) -> bool:
        frame = getattr(coro, "cr_frame", None)
        return frame is not None and frame.f_locals.get("whose") == "mine"

    async with open_bridge() as aio, within(turn("t")):
        await aio.call_unowned(begin)
        (found,) = aio.find(is_mine)
        assert (found.name, found.turn_id) == ("mine", "")
        assert await aio.sweep((found,)) == ()
        assert aio.find(is_mine) == ()
        assert aio.statistics().tasks == 1


@pytest.mark.parametrize("turns", [1, 1200])
def test_what_is_alive_is_looked_at_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    looked: list[Job[int]] = []
    done = Job.done

    def look(job: Job[int]) -> bool:
        looked.append(job)
        return done(job)

    monkeypatch.setattr(Job, "done", look)
    filing, names = Filing(), [f"turn {number}" for number in range(turns)]

    def employ(number: int) -> Job[int]:
        context = copy_context()
        context.run(current_turn.set, names[number % turns])
        return context.run(filing.employ, int)

    alive = [employ(number) for number in range(200)]
    looked.clear()
    for number in range(200, 1200):
        employ(number).call_off()
    assert len(looked) <= 10 * len(alive)
    assert len(filing.all_alive()) == len(alive)
