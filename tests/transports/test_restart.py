"""The restart rule: back when needed, three times a minute, with growing pauses, then no more."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from turnstop._errors import BackendError, BackendLost, BackendRefused
from turnstop.transports.restart import (
    Restarting,
    RestartRule,
    open_restarting,
    open_restartings,
)


@attrs.define(eq=False)
class Thing:
    number: int
    broken: trio.Event = attrs.field(factory=trio.Event)
    closed: bool = False

    def loss(self) -> BackendLost:
        return BackendLost(f"thing {self.number} broke", gone=True)


class Maker:
    def __init__(self, *failures: BackendError) -> None:
        self.made: list[Thing] = []
        self.times: list[float] = []
        self.failures = list(failures)
        self.closing_takes = 0.0

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[Thing, None]:
        assert all(thing.closed for thing in self.made), "two at a time"
        self.times.append(trio.current_time())
        if self.failures:
            raise self.failures.pop(0)
        thing = Thing(len(self.made) + 1)
        self.made.append(thing)
        try:
            yield thing
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.closing_takes)
            thing.closed = True


async def test_everybody_shares_one(autojump_clock: MockClock) -> None:
    maker = Maker()
    async with open_restarting(maker) as things:
        assert await things.get() is await things.get()
    assert len(maker.made) == 1
    assert maker.made[0].closed


async def test_a_broken_one_is_replaced_only_when_it_is_gone(autojump_clock: MockClock) -> None:
    maker = Maker()
    maker.closing_takes = 2.0
    async with open_restarting(maker) as things:
        first = await things.get()
        first.broken.set()
        second = await things.get()
        assert second.number == 2
        assert trio.current_time() == pytest.approx(maker.times[0] + 2.0)


async def test_nothing_is_brought_back_before_somebody_asks(autojump_clock: MockClock) -> None:
    maker = Maker()
    async with open_restarting(maker) as things:
        (await things.get()).broken.set()
        await trio.sleep(100)
        assert len(maker.made) == 1


async def test_three_restarts_with_growing_pauses_then_no_more(autojump_clock: MockClock) -> None:
    maker = Maker()
    async with open_restarting(maker) as things:
        for _ in range(4):
            (await things.get()).broken.set()
        with pytest.raises(BackendLost, match=r"lost 4 times .*thing 4 broke") as caught:
            await things.get()
        assert caught.value.gone
        assert str(caught.value.__cause__) == "thing 4 broke"
        begin = maker.times[0]
        assert [at - begin for at in maker.times] == pytest.approx([0, 0, 0.25, 0.75])
        await trio.sleep(60)
        assert (await things.get()).number == 5


async def test_a_start_that_fails_is_tried_again(autojump_clock: MockClock) -> None:
    maker = Maker(BackendLost("one", gone=True), BackendLost("two", gone=True))
    async with open_restarting(maker) as things:
        assert (await things.get()).number == 1
    assert len(maker.times) == 3


async def test_starts_that_fail_for_ever_raise_the_last_reason(autojump_clock: MockClock) -> None:
    maker = Maker(*(BackendLost(f"no {n}", gone=True) for n in range(9)))
    async with open_restarting(maker, RestartRule(limit=2)) as things:
        with pytest.raises(BackendLost, match="the last time: no 2"):
            await things.get()
    assert len(maker.times) == 3


async def test_a_missing_program_is_not_tried_again(autojump_clock: MockClock) -> None:
    maker = Maker(BackendRefused("not installed"))
    async with open_restarting(maker) as things:
        with pytest.raises(BackendRefused, match="not installed"):
            await things.get()
        assert len(maker.times) == 1
        assert (await things.get()).number == 1


async def test_a_caller_that_leaves_does_not_end_the_start(autojump_clock: MockClock) -> None:
    maker = Maker()
    async with open_restarting(maker) as things:
        (await things.get()).broken.set()
        await wait_all_tasks_blocked()
        (await things.get()).broken.set()
        with trio.move_on_after(0.1) as scope:
            await things.get()  # the second restart pauses first
        assert scope.cancelled_caught
        assert (await things.get()).number == 3
    assert len(maker.made) == 3


async def test_an_outer_cancellation_waits_for_the_body(autojump_clock: MockClock) -> None:
    maker = Maker()
    with trio.CancelScope() as outer:
        async with open_restarting(maker) as things:
            thing = await things.get()
            outer.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
                assert not thing.closed
    assert thing.closed


async def test_an_end_from_here_is_waited_for_and_is_no_loss(autojump_clock: MockClock) -> None:
    maker = Maker()
    maker.closing_takes = 2.0
    async with open_restarting(maker) as things:
        for number in range(1, 7):
            thing = await things.get()
            assert thing.number == number
            before = trio.current_time()
            await things.end()
            assert thing.closed
            assert trio.current_time() == before + 2.0
        with assert_checkpoints():
            await things.end()
    assert maker.times == pytest.approx([maker.times[0] + 2.0 * n for n in range(6)])


async def test_an_end_that_is_not_waited_for(autojump_clock: MockClock) -> None:
    maker = Maker()
    maker.closing_takes = 2.0
    async with open_restarting(maker) as things:
        things.end_soon()  # There is nothing to end.
        await things.get()
        things.end_soon()
        assert (await things.get()).number == 2
    assert maker.times == pytest.approx([maker.times[0], maker.times[0] + 2.0])


async def test_what_is_on_its_way_out_is_handed_to_nobody(autojump_clock: MockClock) -> None:
    maker = Maker()
    maker.closing_takes = 2.0
    async with open_restarting(maker) as things, trio.open_nursery() as nursery:
        await things.get()
        nursery.start_soon(things.end)
        await wait_all_tasks_blocked()
        assert (await things.get()).number == 2


async def test_a_start_can_be_ended_and_whoever_waits_for_it_gets_the_next(
    autojump_clock: MockClock,
) -> None:
    maker, got = Maker(), list[int]()

    async def get() -> None:
        got.append((await things.get()).number)

    async with open_restarting(maker) as things, trio.open_nursery() as nursery:
        for _ in range(2):
            (await things.get()).broken.set()
            await wait_all_tasks_blocked()
        nursery.start_soon(get)
        await wait_all_tasks_blocked()
        await things.end()  # it pauses before the second restart
    assert got == [3]
    assert trio.current_time() < maker.times[0] + 0.25


async def test_a_cancelled_end_still_ends_it(autojump_clock: MockClock) -> None:
    maker = Maker()
    maker.closing_takes = 2.0
    async with open_restarting(maker) as things:
        thing = await things.get()
        with trio.move_on_after(0.5):
            await things.end()
        assert not thing.closed
        await trio.sleep(1.6)
        assert thing.closed


async def test_a_refusal_in_the_step_of_an_end_touches_nobody_else(
    autojump_clock: MockClock,
) -> None:
    refuses = trio.Event()

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Thing, None]:
        async with trio.open_nursery(), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await refuses.wait()
            raise BackendRefused("it wants a login")
        yield Thing(1)

    asked: list[BackendError] = []

    async def ask(one: Restarting[Thing]) -> None:
        with pytest.raises(BackendRefused, match="a login") as caught:
            await one.get()
        asked.append(caught.value)

    other = Maker()
    async with open_restartings() as restartings, trio.open_nursery() as nursery:
        mine, theirs = restartings.add(connect), restartings.add(other)
        thing = await theirs.get()
        nursery.start_soon(ask, mine)
        await wait_all_tasks_blocked()
        refuses.set()
        await mine.end()
        assert mine.current is None
        await wait_all_tasks_blocked()
        assert await theirs.get() is thing
    assert len(asked) == 1


async def test_what_is_no_refusal_ends_all(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def connect() -> AsyncGenerator[Thing, None]:
        async with trio.open_nursery():
            raise KeyError("unforeseen")
        yield Thing(1)

    with pytest.RaisesGroup(KeyError):
        async with open_restartings() as restartings:
            await restartings.add(connect).get()


async def test_each_has_its_own_and_all_close_at_once(autojump_clock: MockClock) -> None:
    first, second, never = Maker(), Maker(), Maker()
    first.closing_takes = second.closing_takes = 2.0
    async with open_restartings() as restartings:
        mine, other = restartings.add(first), restartings.add(second)
        restartings.add(never)
        assert await mine.get() is not await other.get()
        await mine.end()
        assert not second.made[0].closed
        assert (await mine.get()).number == 2
        before = trio.current_time()
    assert first.made[1].closed
    assert second.made[0].closed
    assert trio.current_time() == before + 2.0
    assert not never.made
