"""The scenarios B1 to B11, as far as a scope of Trio has the notion: stops of a handler's scope."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from kernel.backend import CANCELLED, COMPLETED, Act, Recorder, ending, hang, settle

from turnstop import Delivery, Ending, RoomsClosed, StopBudget, open_rooms, serve_rooms
from turnstop._inbox._inbox import _closed_in
from turnstop._unwrap import open_private_nursery
from turnstop.feeds import Claim, MemoryFeed

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving

BUDGET = StopBudget(cancel_within=5, kill_within=2)


async def test_b1_two_stops_are_one_cancel_and_one_deadline() -> None:
    async with serving(backend=Recorder(cancel=hang()), budget=BUDGET) as world:
        await world.post("1")
        world.press(STOP)
        await trio.sleep(3)
        world.press(STOP)
        await trio.sleep(10)
        assert world.backend.calls.count("cancel") == 1
        assert [one.settled_at for one in world.settlements] == [7]


async def test_b2_what_a_handler_shields_is_not_cut_off() -> None:
    async def careful(world: World, delivery: Delivery) -> None:
        try:
            await world.handle(delivery)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
                world.done.append("cleaned up")

    async with serving(handle=careful) as world:
        await world.post("1", "2")
        world.press(INTERRUPT)
        await trio.sleep(2.5)
        assert world.began == ["1"]
        await trio.sleep(1)
        assert (world.done, world.began) == (["cleaned up"], ["1", "2"])


async def test_b3_a_stubborn_body_holds_its_room_but_not_the_settlement() -> None:
    async def stubborn(world: World, delivery: Delivery) -> None:
        async with world.handling(delivery), delivery.turn():
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async with serving(handle=stubborn, budget=BUDGET) as world:
        await world.post("1", "2")
        applied = world.press(INTERRUPT)
        with trio.fail_after(7.1):
            await applied.settled()
        assert world.began == ["1"]
        await trio.sleep(101)
        assert world.began == ["1", "2"]


async def test_b4_a_stop_of_a_stopping_turn_joins_it() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=2.0))) as world:
        await world.post("1")
        first = world.press(STOP)
        await trio.sleep(1)
        second = world.press(STOP)
        assert first.turn_ids == second.turn_ids
        assert await first.settled() == await second.settled()
        assert trio.current_time() == 2


async def test_b5_a_waiter_that_gives_up_leaves_the_stop_alone() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=2.0))) as world:
        await world.post("1")
        applied = world.press(STOP)
        with trio.move_on_after(1):
            await applied.settled()
        assert trio.current_time() == 1
        await trio.sleep(1.5)
        assert [one.ending for one in world.settlements] == [Ending.STOPPED]
        assert world.left() == ["1"]


async def test_b6_a_stop_under_a_time_limit_is_a_stop() -> None:
    async with serving(handle_within=5) as world:
        await world.post("1")
        await trio.sleep(1)
        world.press(STOP)
        await trio.sleep(30)
        assert (world.failed, world.left()) == ({}, ["1"])
        assert world.requests() == ["stop"]


async def test_b7_a_stop_while_a_time_limit_unwinds_moves_no_deadline() -> None:
    backend = Recorder(cancel=hang())
    async with serving(backend=backend, budget=BUDGET, handle_within=5) as world:
        await world.post("1")
        await trio.sleep(11.7)
        world.press(STOP)
        await trio.sleep(10)
        assert [one.settled_at for one in world.settlements] == [12]
        assert (world.left(), world.failed) == (["1"], {})


async def test_b8_a_turn_that_is_made_after_the_stop_is_never_begun() -> None:
    async def persistent(world: World, delivery: Delivery) -> None:
        with trio.CancelScope(shield=True):
            async with world.handling(delivery):
                for _ in range(3):
                    async with delivery.turn() as turn:
                        async for _ in turn:
                            pass

    async with serving(handle=persistent) as world:
        await world.post("1")
        world.press(STOP, reason="enough")
        await settle()
        assert world.backend.calls.count("start") == 1
        assert [one.ending for one in world.settlements] == [
            Ending.STOPPED,
            Ending.UNSTARTED,
            Ending.UNSTARTED,
        ]
        assert {one.request.reason for one in world.settlements} == {"enough"}
        assert (world.live, world.left()) == ([], ["1"])


async def test_b9_a_stop_that_names_an_old_turn_leaves_the_new_one_alone() -> None:
    async with serving() as world:
        await world.post("1", "2")
        (old,) = world.press(INTERRUPT).turn_ids
        await settle()
        stale = world.press(STOP, turn_id=old, id="c")
        await settle()
        assert (stale.rooms, stale.turn_ids) == ((), ())
        assert (world.live, world.inbox.statistics().paused) == (["2"], 0)
        (new,) = world.press(STOP, turn_id=world.backend.remote.turn_id, id="c").turn_ids
        await settle()
        assert (new != old, world.live, world.left()) == (True, [], ["2"])


async def test_b9_a_stop_that_names_the_first_of_two_turns_leaves_the_second_alone() -> None:
    async def twice(world: World, delivery: Delivery) -> None:
        await world.handle(delivery)
        await world.handle(delivery)

    async with serving(handle=twice) as world:
        await world.post("1")
        first = world.backend.remote.turn_id
        await world.finish()
        assert world.press(STOP, turn_id=first).rooms == ()
        await settle()
        assert world.live == ["1"]
        assert world.press(STOP, turn_id=world.backend.remote.turn_id).rooms == ("a",)


async def test_b10_an_interrupt_stays_one_when_the_feed_then_says_paused() -> None:
    async with serving() as world:

        async def say_paused(call: Any, message: Any) -> Claim:
            await trio.sleep(1)
            return Claim.PAUSED

        world.feed.levers["claim"] = say_paused
        await world.post("1")
        world.press(INTERRUPT)
        await trio.sleep(2)
        assert (world.began, world.left()) == ([], [])
        assert world.inbox.statistics().paused == 1


async def test_b11_what_a_stopped_handler_raises_on_its_way_out_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def clumsy(world: World, delivery: Delivery) -> None:
        try:
            await world.handle(delivery)
        finally:
            raise ValueError("the secret prompt")

    caplog.set_level(logging.INFO)
    async with serving(handle=clumsy) as world:
        await world.post("1")
        world.press(STOP)
        await settle()
        assert (world.left(), world.failed) == (["1"], {})
    assert caplog.text.count("ValueError") == 1
    assert "prompt" not in caplog.text


# Handlers that are not what they should be.


async def test_a_handler_that_swallows_its_stop_has_not_handled_the_message() -> None:
    async def swallowing(world: World, delivery: Delivery) -> None:
        with suppress(trio.Cancelled):
            await world.handle(delivery)

    async with serving(handle=swallowing) as world:
        await world.post("1")
        world.press(STOP)
        await settle()
        assert world.left() == ["1"]


async def test_a_handler_that_swallows_its_time_limit_has_failed() -> None:
    async def swallowing(world: World, delivery: Delivery) -> None:
        with suppress(trio.Cancelled):
            await world.handle(delivery)

    async with serving(handle=swallowing, handle_within=5) as world:
        await world.post("1")
        await trio.sleep(6)
        assert world.failed == {"1": "took longer than 5 s"}


async def test_a_stop_in_the_second_turn_of_a_handler_leaves_its_message() -> None:
    async def twice(world: World, delivery: Delivery) -> None:
        await world.handle(delivery)
        await world.handle(delivery)

    async with serving(handle=twice) as world:
        await world.post("1")
        await world.finish()
        world.press(STOP)
        await settle()
        assert [one.ending for one in world.settlements] == [Ending.FINISHED, Ending.STOPPED]
        assert world.left() == ["1"]


async def test_a_handler_that_makes_a_turn_when_it_is_over_is_told_so() -> None:
    kept: list[Delivery] = []

    async def keeping(world: World, delivery: Delivery) -> None:
        kept.append(delivery)

    async with serving(handle=keeping) as world:
        await world.post("1")
        with pytest.raises(RuntimeError, match="1 was handled"):
            kept[0].turn()


async def test_errors_in_groups_fail_the_message_and_nothing_else() -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(world.handle, delivery)
            async with trio.open_nursery():
                await trio.sleep(1)
                raise KeyError(delivery.message.id)

    async with serving(handle=failing) as world:
        await world.post("1", "2")
        await world.post("other", room="b")
        await trio.sleep(1.5)
        assert world.failed == {"1": "KeyError: '1'", "other": "KeyError: 'other'"}
        await trio.sleep(1)
        assert world.left() == []


async def test_a_stop_wins_over_an_error_in_a_group_with_its_cancellation() -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.handle, delivery)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError

    async with serving(handle=failing) as world:
        await world.post("1")
        world.press(STOP)
        await settle()
        assert (world.left(), world.failed) == (["1"], {})


async def test_a_failed_turn_fails_its_message_and_the_next_runs() -> None:
    async with serving() as world:
        await world.post("1", "2")
        world.backend.remote.finish(OSError("gone"))
        await settle()
        assert world.failed == {"1": "OSError: gone"}
        assert world.live == ["2"]


async def test_a_message_is_tried_as_often_as_the_feed_says() -> None:
    attempts: list[int] = []

    async def failing(world: World, delivery: Delivery) -> None:
        attempts.append(delivery.message.attempt)
        raise ValueError

    async with serving(handle=failing, feed=Tap(MemoryFeed(attempts=3))) as world:
        await world.post("1")
        assert attempts == [0, 1, 2]
        assert world.left() == []


@pytest.mark.parametrize("grouped", [False, True])
async def test_rooms_that_close_end_the_serving_and_leave_the_messages(grouped: bool) -> None:
    async def handle(world: World, delivery: Delivery) -> None:
        if not grouped:
            await world.handle(delivery)
            return
        try:
            await world.handle(delivery)
        except RoomsClosed as error:
            raise ExceptionGroup("two", [ValueError(), ExceptionGroup("one", [error])]) from error

    world = World(Recorder(), Tap(MemoryFeed()))
    raised: list[BaseException] = []

    async def serve(rooms: Any) -> None:
        try:
            await serve_rooms(rooms, lambda delivery: handle(world, delivery), world.feed)
        except RoomsClosed as error:
            raised.append(error)

    async with trio.open_nursery() as nursery:
        async with open_rooms(world.backend) as rooms:
            nursery.start_soon(serve, rooms)
            await world.post("1")
            await world.post("2", room="b")
    assert len(raised) == 1
    assert (world.left("a"), world.left("b")) == (["1"], ["2"])
    assert world.feed.at("acknowledge") == world.feed.at("fail") == []


async def test_a_room_that_is_retired_finds_the_rooms_closed() -> None:
    world = World(Recorder(), Tap(MemoryFeed()))
    with pytest.raises(RoomsClosed):
        async with open_private_nursery() as nursery:
            async with open_rooms(world.backend) as rooms:
                serve = partial(serve_rooms, rooms, world.handle, world.feed, retire_after=5)
                nursery.start_soon(serve)
                await world.post("1")
                await world.finish()
            await trio.sleep(10)
    assert world.done == ["1"]


def test_rooms_that_close_hide_no_other_error() -> None:
    closed = RoomsClosed("closed")
    group = BaseExceptionGroup("two", [closed, BaseExceptionGroup("one", [closed])])
    assert _closed_in(group) is _closed_in(closed) is closed
    assert _closed_in(BaseExceptionGroup("two", [closed, KeyboardInterrupt()])) is None
    assert _closed_in(ExceptionGroup("one", [ValueError()])) is None


async def test_a_message_that_finds_the_rooms_closed_at_the_end_is_no_error() -> None:
    """In the pass of the cancellation itself, whichever task runs first."""
    for number in range(30):
        world = World(Recorder(), Tap(MemoryFeed()))
        with trio.CancelScope() as scope:
            async with open_rooms(world.backend) as rooms:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(serve_rooms, rooms, world.handle, world.feed)
                    await settle()
                    for room in "abcdefgh":
                        world.feed.post(room, "work", id=room)
                    for _ in range(4 + number % 8):
                        await trio.lowlevel.cancel_shielded_checkpoint()
                    scope.cancel()
        assert scope.cancelled_caught
        assert [world.left(room) for room in "abcdefgh"] == [[room] for room in "abcdefgh"]


async def test_a_keyboard_interrupt_of_a_handler_leaves_its_message() -> None:
    async def handle(world: World, delivery: Delivery) -> None:
        raise KeyboardInterrupt

    world = World(Recorder(), Tap(MemoryFeed()))
    world.feed.post("a", "work", id="1")
    with pytest.raises(BaseExceptionGroup) as caught:
        async with serving(world=world, handle=handle):
            await trio.sleep(1)
    assert caught.group_contains(KeyboardInterrupt)
    assert world.left() == ["1"]


async def test_a_control_from_another_thread_is_refused_and_changes_nothing() -> None:
    async with serving() as world:
        await world.post("1")
        with pytest.raises(RuntimeError):
            await trio.to_thread.run_sync(world.press, STOP)
        assert (world.live, world.inbox.statistics().paused) == (["1"], 0)
        await trio.to_thread.run_sync(trio.from_thread.run_sync, world.press, STOP)
        await settle()
        assert world.live == []


async def test_a_backend_that_refuses_to_stop_does_not_hold_up_the_others() -> None:
    backend = Recorder(cancel=Act(stubborn=50.0, ends=CANCELLED))
    async with serving(backend=backend, budget=BUDGET) as world:
        await world.post("1")
        world.press(INTERRUPT)
        await world.post("2", "3")
        await trio.sleep(7.5)
        assert world.live == ["2"]
        backend.remote.finish(COMPLETED)
        await settle()
        assert world.live == ["3"]
        world.press(PLAY)
