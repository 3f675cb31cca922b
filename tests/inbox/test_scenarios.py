"""The scenarios D1 to D24: messages and controls that meet, each named by its id."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
from kernel.backend import COMPLETED, Act, Recorder, ending, passes, settle

from turnstop import Control, ControlKind, Delivery, Ending, StopBudget, open_rooms, serve_rooms
from turnstop.feeds import Claim, MemoryFeed

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving


async def slow_hydration(delivery: Delivery) -> None:
    await trio.sleep(1)


async def test_d1_an_interrupt_during_hydration_consumes_the_message() -> None:
    async with serving(hydrate=slow_hydration) as world:
        await world.post("1")
        world.press(INTERRUPT)
        await settle()
        assert trio.current_time() == 0
        assert (world.began, world.backend.calls, world.left()) == ([], [], [])
        assert world.feed.told("acknowledge", "fail", "release") == [("acknowledge", "1")]


async def test_d2_a_stop_during_hydration_leaves_the_message_for_one_play() -> None:
    async with serving(hydrate=slow_hydration) as world:
        await world.post("1")
        world.press(STOP)
        await settle()
        assert (world.began, world.left()) == ([], ["1"])
        assert world.feed.told("acknowledge", "fail", "release") == [("release", "1")]
        world.press(PLAY)
        await trio.sleep(1.5)
        assert world.began == ["1"]
        assert world.backend.requests[0].content == "work on 1"
        await world.finish()
        await trio.sleep(1000)
        assert (world.began, world.left()) == (["1"], [])


async def test_d2_a_stop_is_no_attempt() -> None:
    async with serving(feed=Tap(MemoryFeed(attempts=2))) as world:
        await world.post("1")
        for _ in range(5):
            world.press(STOP)
            await settle()
            world.press(PLAY)
            await settle()
        assert world.feed.unfinished("a")[0].attempt == 0


async def test_d3_a_claim_that_says_paused_leaves_the_message() -> None:
    async with serving() as world:

        async def say_paused(call: Any, message: Any) -> Claim:
            return Claim.PAUSED

        world.feed.levers["claim"] = say_paused
        await world.post("1")
        assert (world.began, world.left()) == ([], ["1"])
        assert world.inbox.statistics().paused == 1
        del world.feed.levers["claim"]
        await trio.sleep(61)
        assert world.began == ["1"]


async def test_d3_a_play_during_a_claim_that_says_paused_is_not_lost() -> None:
    async with serving() as world:

        async def say_paused(call: Any, message: Any) -> Claim:
            await trio.sleep(1)
            del world.feed.levers["claim"]
            return Claim.PAUSED

        world.feed.levers["claim"] = say_paused
        await world.post("1")
        world.press(PLAY)
        await trio.sleep(1.5)
        assert (world.began, world.inbox.statistics().paused) == (["1"], 0)


async def test_d4_an_interrupted_message_is_not_run_again_when_its_acknowledgement_fails() -> None:
    async with serving() as world:
        await world.post("1")
        world.feed.break_("acknowledge", times=3)
        world.press(INTERRUPT)
        await trio.sleep(30)
        assert (world.began, world.left()) == (["1"], [])
        first, *rest = world.feed.at("acknowledge", "1")
        assert len(rest) == 3
        # Later and later.
        assert rest[0] - first < rest[1] - rest[0] < rest[2] - rest[1]
        assert world.inbox.statistics().troubles == 3


async def test_d5_a_stop_during_the_acknowledgement_retries_only_that() -> None:
    async with serving() as world:
        world.feed.break_("acknowledge", times=2)
        await world.post("1", "2")
        await world.finish()
        assert world.left() == ["1", "2"]
        world.press(STOP)
        await trio.sleep(30)
        assert (world.began, world.left()) == (["1"], ["2"])
        world.press(PLAY)
        await settle()
        assert world.began == ["1", "2"]


async def test_d6_a_stop_between_turns_has_the_next_message_not_even_claimed() -> None:
    async with serving() as world:
        await world.post("1")
        await world.finish()
        world.press(STOP)
        await world.post("2")
        await trio.sleep(30)
        assert (world.began, world.left()) == (["1"], ["2"])
        assert world.feed.at("claim", "2") == []


async def test_d6_a_stop_reaches_a_room_that_was_retired() -> None:
    async with serving(retire_after=10) as world:
        await world.post("1")
        await world.finish()
        await trio.sleep(20)
        assert world.inbox.statistics().rooms == 0
        assert world.press(STOP).rooms == ("a",)
        await world.post("2")
        await trio.sleep(30)
        assert (world.began, world.left()) == (["1"], ["2"])
        world.press(PLAY)
        await settle()
        assert world.began == ["1", "2"]


async def test_d6_a_stop_reaches_a_room_that_is_being_retired() -> None:
    backend = Recorder(session="s", forget=Act(takes=1.0))
    async with serving(backend=backend, retire_after=10) as world:
        await world.post("1")
        await world.finish()
        await trio.sleep(10.5)
        assert backend.forgotten == ["s"]
        world.press(STOP)
        await trio.sleep(2)
        await world.post("2")
        assert (world.began, world.inbox.statistics().paused) == (["1"], 1)


async def test_d7_a_control_with_an_id_is_applied_once_and_one_without_each_time() -> None:
    async with serving() as world:
        await world.post("1", "2")
        assert world.press(INTERRUPT, id="c").rooms == ("a",)
        await settle()
        assert world.began == ["1", "2"]
        again = world.press(INTERRUPT, id="c")
        await settle()
        assert (again.repeated, again.rooms, world.live) == (True, (), ["2"])
        await world.post("3")
        world.press(INTERRUPT)
        await settle()
        world.press(INTERRUPT)
        await settle()
        assert (world.began, world.left()) == (["1", "2", "3"], [])
        # The feed is told of the repeated one, so that it does not come again.
        assert len(world.feed.told("applied")) == 4


async def test_d7_ids_are_forgotten_one_by_one_and_the_oldest_first() -> None:
    async with serving() as world:
        await world.post("1")
        for number in range(257):
            world.press(INTERRUPT, id=str(number))
        assert world.press(INTERRUPT, id="1").repeated
        assert not world.press(INTERRUPT, id="0").repeated


async def test_d8_a_control_for_an_unknown_room_is_applied_when_it_comes_again() -> None:
    async with serving() as world:
        applied = world.press(STOP, id="c")
        assert (applied.rooms, applied.repeated) == ((), False)
        await world.post("1")
        assert world.live == ["1"]
        again = world.press(STOP, id="c")
        await settle()
        assert (again.rooms, again.repeated, world.live) == (("a",), False, [])


async def test_d9_a_stop_of_all_rooms_takes_as_long_as_the_slowest() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=0.5))) as world:
        for room in "abc":
            await world.post(f"{room}1", room=room)
        applied = world.press(STOP, None, reason="enough", source="test")
        assert sorted(applied.rooms) == ["a", "b", "c"]
        assert len(applied.turn_ids) == 3
        settled = await applied.settled()
        assert trio.current_time() == 0.5
        assert {one.ending for one in settled} == {Ending.STOPPED}
        assert {one.request.source for one in settled} == {"test"}
        await settle()
        assert (world.live, world.inbox.statistics().paused) == ([], 3)


async def test_d10_a_control_reaches_a_room_that_is_starting() -> None:
    async with serving() as world:
        world.feed.post("a", "work", id="1")
        world.inbox.nudge("a")
        # Its task has not run yet.
        assert world.press(STOP).rooms == ("a",)
        await trio.sleep(30)
        assert (world.began, world.feed.at("claim")) == ([], [])
        world.press(PLAY)
        await settle()
        assert world.began == ["1"]


async def test_d10_an_interrupt_reaches_a_turn_whose_start_is_out() -> None:
    async with serving(backend=Recorder(start=Act(takes=3.0))) as world:
        await world.post("1")
        applied = world.press(INTERRUPT)
        assert len(applied.turn_ids) == 1
        await trio.sleep(4)
        assert world.backend.calls == ["start", "follow", "cancel"]
        assert world.left() == []


@pytest.mark.parametrize("kind", [STOP, INTERRUPT])
@pytest.mark.parametrize("hydrates", [False, True])
async def test_d10_no_handler_begins_after_a_control_whatever_the_pass(
    kind: ControlKind, hydrates: bool
) -> None:
    async def hydrate(delivery: Delivery) -> None:
        await trio.lowlevel.checkpoint()

    for count in range(14):
        async with serving(hydrate=hydrate if hydrates else None) as world:
            world.feed.post("a", "work", id="1")
            world.inbox.nudge("a")
            await passes(count)
            began = [*world.began]
            world.press(kind)
            await settle()
            assert world.began[:1] == began or kind is INTERRUPT
            assert world.live == ([] if began or kind is STOP else world.began)


async def test_d11_a_stop_keeps_synthetic_messages_in_order_without_spinning() -> None:
    async with serving() as world:
        for name in "123":
            world.inbox.synthesize("a", name, id=name)
        world.inbox.synthesize("a", "again", id="2")
        await settle()
        assert world.began == ["1"]
        world.press(STOP)
        await trio.sleep(3600)
        assert world.began == ["1"]
        assert len(world.feed.at("next")) <= 61
        world.press(PLAY)
        for _ in range(3):
            await settle()
            await world.finish()
        assert world.began == ["1", "1", "2", "3"]
        assert world.done == ["1", "2", "3"]
        assert world.feed.told("claim", "acknowledge", "fail", "release") == []


async def test_d12_an_interrupt_drops_the_synthetic_message_and_the_next_runs() -> None:
    async with serving() as world:
        for name in "12":
            world.inbox.synthesize("a", name, id=name)
        await settle()
        world.press(INTERRUPT)
        await settle()
        assert (world.began, world.live) == (["1", "2"], ["2"])


async def test_d13_a_missed_play_is_found_by_a_probe() -> None:
    async with serving(probe_every=60) as world:
        await world.post("1")
        world.press(STOP)
        await trio.sleep(29)
        assert world.inbox.statistics().paused == 1
        world.feed.feed._paused.clear()
        await trio.sleep(32)
        assert (world.began, world.inbox.statistics().paused) == (["1", "1"], 0)


async def test_d13_a_feed_that_was_not_told_of_the_stop_does_not_seem_to_resume_it() -> None:
    async with serving(probe_every=60) as world:
        await world.post("1")
        world.feed.break_("applied")
        world.press(STOP)
        await trio.sleep(1000)
        assert (world.began, world.inbox.statistics().paused) == (["1"], 1)
        del world.feed.levers["applied"]
        await trio.sleep(100)
        assert world.inbox.statistics().paused == 1


async def test_d14_paused_probes_stay_as_they_are_and_idle_ones_double_to_a_cap() -> None:
    async with serving(probe_every=60) as world:
        await world.post("1", room="paused")
        world.press(STOP, "paused")
        await world.post("2", room="idle")
        await world.finish()
        began = trio.current_time()
        del world.feed.log[:]
        await trio.sleep(601)
        paused, idle = world.feed.at("next", "paused"), world.feed.at("next", "idle")
        assert 30 <= paused[0] - began <= 60
        assert [when - paused[0] for when in paused] == pytest.approx([60 * n for n in range(10)])
        gaps = [later - sooner for sooner, later in itertools.pairwise(idle)]
        assert gaps[-3:] == pytest.approx([120, 120, 120])
        world.press(STOP, "idle")
        stopped = trio.current_time()
        await trio.sleep(61)
        assert stopped + 30 <= world.feed.at("next", "idle")[-1] <= stopped + 60


async def test_d15_a_control_discards_what_the_feed_was_asked_before_it() -> None:
    async with serving() as world:
        world.feed.answer_late("next", 1)
        await world.post("1")
        world.press(STOP)
        await trio.sleep(2)
        assert (world.began, world.feed.at("claim")) == ([], [])
        world.press(PLAY)
        await trio.sleep(3)
        assert world.began == ["1"]


async def test_d16_a_message_that_takes_too_long_has_failed_and_the_next_runs() -> None:
    async with serving(handle_within=5) as world:
        await world.post("1", "2")
        await trio.sleep(6)
        assert world.failed == {"1": "took longer than 5 s"}
        assert (world.began, world.live) == (["1", "2"], ["2"])
        assert world.requests() == ["cancelled"]


async def test_d16_a_room_does_not_wait_for_its_place_in_its_own_time() -> None:
    async with serving(handle_within=5, at_once=1) as world:
        await world.post("1", room="a")
        await world.post("2", room="b")
        await trio.sleep(4)
        await world.finish()
        await trio.sleep(4)
        assert (world.live, world.failed) == (["2"], {})


async def test_d17_the_next_turn_waits_until_the_last_is_settled() -> None:
    backend = Recorder(cancel=ending(takes=3.0))
    async with serving(backend=backend) as world:
        await world.post("1", "2")
        world.press(INTERRUPT)
        await trio.sleep(2.9)
        assert world.began == ["1"]
        await trio.sleep(0.2)
        assert backend.at("start") == [0.0, 3.0]


@pytest.mark.parametrize("later", [0.0, 0.5])
async def test_d18_a_stop_and_a_play_before_it_unwound_replay_the_message_once(
    later: float,
) -> None:
    async with serving(backend=Recorder(cancel=ending(takes=1.0))) as world:
        await world.post("1")
        world.press(STOP)
        await trio.sleep(later)
        world.press(PLAY)
        await trio.sleep(2)
        assert world.began == ["1", "1"]
        await world.finish()
        await trio.sleep(1000)
        assert (world.began, world.done, world.left()) == (["1", "1"], ["1"], [])


async def test_d19_a_slow_stop_does_not_hold_up_the_control_behind_it() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=3.0))) as world:
        await world.post("1", "2")
        world.feed.control(Control(STOP, "a"))
        world.feed.control(Control(INTERRUPT, "a"))
        await settle()
        assert trio.current_time() == 0
        assert world.feed.told("applied") == [("applied", "stop"), ("applied", "interrupt")]
        await trio.sleep(4)
        # The last decides: it is consumed; and the room is paused all the same.
        assert (world.left(), world.began) == (["2"], ["1"])
        assert world.backend.calls.count("cancel") == 1


async def test_d20_a_shutdown_in_a_turn_waits_for_its_settlement_and_leaves_the_message() -> None:
    backend = Recorder(cancel=ending(takes=0.5))
    async with serving(backend=backend) as world:
        await world.post("1", "2")
    assert trio.current_time() == 0.5
    assert [one.ending for one in world.settlements] == [Ending.STOPPED]
    assert (world.left(), world.feed.at("acknowledge")) == (["1", "2"], [])
    world.feed.log.clear()
    async with serving(world=world) as world:
        assert world.began == ["1", "1"]


async def test_d21_a_stubborn_handler_is_waited_for_and_its_message_left() -> None:
    async def handle(world: World, delivery: Delivery) -> None:
        await world.handle(delivery)

    async def stubborn(world: World, delivery: Delivery) -> None:
        try:
            await handle(world, delivery)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(7)

    async with serving(handle=stubborn) as world:
        await world.post("1")
    assert trio.current_time() == 7
    assert world.left() == ["1"]


async def test_d21_a_feed_that_hangs_does_not_hold_up_the_end() -> None:
    async with serving(finish_within=2) as world:
        await world.post("1")
        world.feed.slow("release", 1000)
    assert trio.current_time() == 2
    # The next that serves it finds it, as after a crash.
    world.feed.levers.clear()
    async with serving(world=world) as world:
        assert world.began == ["1", "1"]


async def test_d22_a_shutdown_goes_from_the_turn_by_the_feed_and_the_rooms_to_the_backend() -> None:
    order: list[str] = []
    backend, tap = Recorder(cancel=ending(takes=0.5)), Tap(MemoryFeed())
    world = World(backend, tap)

    async def note_release(call: Any, message: Any) -> None:
        order.extend(name for name, _, _ in backend.log if name.endswith(" left"))
        await call(message)
        order.append("released")

    tap.levers["release"] = note_release
    with trio.CancelScope() as scope:
        try:
            async with open_rooms(backend) as rooms:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(serve_rooms, rooms, world.handle, tap)
                        await world.post("1")
                        scope.cancel()
                finally:
                    order.append("inbox")
        finally:
            order.append("rooms")
    assert order == ["start left", "cancel left", "follow left", "released", "inbox", "rooms"]


async def test_d23_what_is_made_here_during_a_stop_is_kept_without_the_feed() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=1.0))) as world:
        await world.post("1")
        world.press(STOP)
        world.inbox.synthesize("a", "someone came", id="s")
        await trio.sleep(10)
        assert world.began == ["1"]
        world.press(PLAY)
        await settle()
        assert world.began == ["1", "s"]
        assert ("claim", "s") not in world.feed.told("claim")


async def test_d24_a_shutdown_while_it_starts_is_applied() -> None:
    tap = Tap(MemoryFeed())
    tap.slow("rooms", 1000)
    with trio.move_on_after(1) as scope:
        async with serving(feed=tap):
            raise AssertionError("it never starts")
    assert scope.cancelled_caught
    assert trio.current_time() == 1


async def test_d24_a_control_that_was_posted_before_the_start_is_applied_after_it() -> None:
    tap = Tap(MemoryFeed())
    tap.post("a", "work", id="1")
    tap.control(Control(STOP, "a"))
    async with serving(feed=tap, budget=StopBudget()) as world:
        await trio.sleep(10)
        assert (world.live, world.left()) == ([], ["1"])
        assert world.inbox.statistics().paused == 1


async def test_the_last_message_finishes_although_a_stop_came_too_late() -> None:
    async with serving() as world:
        await world.post("1")
        world.backend.remote.finish(COMPLETED)
        while not world.backend.at("follow left"):
            await trio.lowlevel.checkpoint()
        world.press(STOP)
        await settle()
        assert world.settlements[0].ending is Ending.FINISHED
        assert world.left() == []
