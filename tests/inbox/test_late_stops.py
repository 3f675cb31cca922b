"""Stops that come too late, or between a handler's turns: no message has failed by them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
from kernel.backend import COMPLETED, FAILED, Recorder, ending, settle

from turnstop import ControlKind, Delivery, Ending
from turnstop.feeds import MemoryFeed

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving

kinds = pytest.mark.parametrize("kind", [STOP, INTERRUPT])


def fates(world: World) -> list[str]:
    """What the feed was told of messages."""
    return [name for name, _ in world.feed.told("acknowledge", "release", "fail")]


def retrying() -> Tap:
    return Tap(MemoryFeed(attempts=3))


async def play_on(world: World) -> None:
    """PLAY, and time for whatever might be run again."""
    world.press(PLAY)
    await trio.sleep(100)


@kinds
async def test_a_turn_that_finishes_although_it_was_stopped_is_handled(kind: ControlKind) -> None:
    async with serving(backend=Recorder(cancel=ending(COMPLETED)), feed=retrying()) as world:
        await world.post("1")
        world.press(kind)
        await settle()
        assert [one.ending for one in world.settlements] == [Ending.FINISHED]
        await play_on(world)
        assert (fates(world), world.began, world.left()) == (["acknowledge"], ["1"], [])


async def work_on(world: World, delivery: Delivery) -> None:
    """Work behind its turn."""
    async with world.handling(delivery):
        async with delivery.turn() as turn:
            async for _ in turn:
                pass
        await trio.sleep(10)


@kinds
async def test_a_stop_behind_the_turn_of_a_handler_leaves_or_consumes_its_message(
    kind: ControlKind,
) -> None:
    async with serving(handle=work_on, feed=retrying()) as world:
        await world.post("1")
        await world.finish()
        assert world.live == ["1"]
        world.press(kind)
        await settle()
        assert fates(world) == ["release" if kind is STOP else "acknowledge"]
        await trio.sleep(100)
        assert world.began == ["1"]
        world.press(PLAY)
        await settle()
        again = ["1"] if kind is STOP else []
        assert world.live == again
        assert [message.attempt for message in world.feed.unfinished("a")] == [0] * len(again)


@kinds
async def test_a_stop_between_two_turns_leaves_or_consumes_the_message(kind: ControlKind) -> None:
    async def twice(world: World, delivery: Delivery) -> None:
        await world.handle(delivery)
        await trio.sleep(1)
        await world.handle(delivery)

    async with serving(handle=twice, feed=retrying()) as world:
        await world.post("1")
        await world.finish()
        world.press(kind)
        await settle()
        assert fates(world) == ["release" if kind is STOP else "acknowledge"]


async def test_of_two_turns_at_once_the_last_decides_whether_the_stop_came_too_late() -> None:
    async def both(world: World, delivery: Delivery) -> None:
        async with world.handling(delivery):
            turns = delivery.turn(), delivery.turn()
            with trio.CancelScope(shield=True):
                for turn in turns:
                    async with turn:
                        await trio.sleep(1)

    backend = Recorder(cancel=ending(COMPLETED))
    async with serving(handle=both, backend=backend, feed=retrying()) as world:
        await world.post("1")
        world.press(STOP)
        await trio.sleep(3)
        assert {one.ending for one in world.settlements} == {Ending.FINISHED, Ending.UNSTARTED}
        assert fates(world) == ["release"]


@kinds
async def test_a_turn_that_had_finished_is_handled_though_not_all_it_said_was_read(
    kind: ControlKind,
) -> None:
    async def slow(world: World, delivery: Delivery) -> None:
        async with world.handling(delivery), delivery.turn():
            await trio.sleep(10)

    async with serving(handle=slow, feed=retrying()) as world:
        await world.post("1")
        await world.finish()
        assert [one.ending for one in world.settlements] == [Ending.FINISHED]
        world.press(kind)
        await settle()
        assert fates(world) == ["acknowledge"]


@kinds
@pytest.mark.parametrize("end", [COMPLETED, FAILED])
async def test_an_error_of_a_handler_that_was_stopped_is_no_failure_of_the_message(
    kind: ControlKind, end: Any
) -> None:
    async def clumsy(world: World, delivery: Delivery) -> None:
        try:
            await world.handle(delivery)
        finally:
            raise ValueError

    async with serving(
        handle=clumsy, backend=Recorder(cancel=ending(end)), feed=retrying()
    ) as world:
        await world.post("1")
        world.press(kind)
        await settle()
        assert fates(world) == ["release" if kind is STOP else "acknowledge"]


@kinds
async def test_a_handler_without_turns_that_returns_in_the_step_of_a_stop_has_handled(
    kind: ControlKind,
) -> None:
    async def brief(world: World, delivery: Delivery) -> None:
        async with world.handling(delivery):
            await trio.sleep(1)
            world.press(kind)

    async with serving(handle=brief, feed=retrying()) as world:
        await world.post("1")
        await trio.sleep(1)
        await settle()
        await play_on(world)
        assert (fates(world), world.began) == (["acknowledge"], ["1"])


@kinds
async def test_a_turn_that_is_entered_after_the_stop_though_made_before_it_is_never_begun(
    kind: ControlKind,
) -> None:
    async def late(world: World, delivery: Delivery) -> None:
        turn = delivery.turn()
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            async with turn:
                pass

    async with serving(handle=late, feed=retrying()) as world:
        await world.post("1")
        world.press(kind, reason="enough")
        await trio.sleep(1)
        await settle()
        assert [one.ending for one in world.settlements] == [Ending.UNSTARTED]
        assert world.settlements[0].request.reason == "enough"
        assert fates(world) == ["release" if kind is STOP else "acknowledge"]


@kinds
async def test_a_handler_without_turns_that_is_cut_leaves_or_consumes_its_message(
    kind: ControlKind,
) -> None:
    async def wait(world: World, delivery: Delivery) -> None:
        async with world.handling(delivery):
            await trio.sleep(10)

    async with serving(handle=wait, feed=retrying()) as world:
        await world.post("1")
        world.press(kind)
        await settle()
        assert fates(world) == ["release" if kind is STOP else "acknowledge"]


async def test_a_handler_that_had_come_to_terms_with_a_failed_turn_has_handled() -> None:
    async def forgiving(world: World, delivery: Delivery) -> None:
        try:
            await world.handle(delivery)
        except OSError:
            world.press(STOP)

    async with serving(handle=forgiving) as world:
        await world.post("1")
        world.backend.remote.finish(OSError("gone"))
        await settle()
        assert fates(world) == ["acknowledge"]


async def test_the_second_stop_does_not_make_a_turn_that_won_the_race_lose_it() -> None:
    async def careful(world: World, delivery: Delivery) -> None:
        try:
            await world.handle(delivery)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    async with serving(handle=careful, backend=Recorder(cancel=ending(COMPLETED))) as world:
        await world.post("1")
        world.press(STOP)
        await trio.sleep(1)
        world.press(STOP)
        await trio.sleep(10)
        assert fates(world) == ["acknowledge"]


async def test_only_a_time_limit_takes_too_long() -> None:
    async with serving(
        backend=Recorder(cancel=ending(COMPLETED)), feed=retrying(), handle_within=5
    ) as world:
        await world.post("1")
        await trio.sleep(5.5)
        assert fates(world) == ["fail"]
        await trio.sleep(1)
        world.press(STOP)
        await settle()
        assert fates(world) == ["fail", "acknowledge"]


async def test_an_error_on_the_way_out_at_the_end_of_the_inbox_is_no_failure() -> None:
    async def clumsy(world: World, delivery: Delivery) -> None:
        try:
            await world.handle(delivery)
        finally:
            raise ValueError

    async with serving(handle=clumsy) as world:
        await world.post("1")
    assert ({*fates(world)}, world.left()) == ({"release"}, ["1"])


async def test_a_handler_that_swallows_the_end_of_the_inbox_has_not_handled_its_message() -> None:
    async def swallowing(world: World, delivery: Delivery) -> None:
        with suppress(trio.Cancelled):
            await world.handle(delivery)

    async with serving(handle=swallowing) as world:
        await world.post("1")
    assert ({*fates(world)}, world.left()) == ({"release"}, ["1"])
