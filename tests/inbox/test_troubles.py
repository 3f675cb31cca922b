"""Feeds that fail, that hang, that say strange things; and rooms that must not spin."""

from __future__ import annotations

import gc
import itertools
import sys
from typing import Any

import pytest
import trio
from kernel.backend import Recorder, ending, settle

from turnstop import Control, Delivery, serve_rooms
from turnstop.feeds import Claim, MemoryFeed, Standing

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving

DAY = 24 * 3600.0


@pytest.mark.parametrize("call", ["receive", "rooms", "next", "claim", "acknowledge", "applied"])
async def test_a_call_that_fails_is_tried_again_later_and_later_and_reported(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    tap = Tap(MemoryFeed())
    tap.break_(call, times=5)
    tap.post("a", "a secret", id="1")
    async with serving(feed=tap) as world:
        world.feed.control(Control(PLAY, "a"))
        await trio.sleep(10)
        world.backend.remote.finish(ending().ends)
        await trio.sleep(10)
        assert (world.began, world.left()) == (["1"], [])
        first = [when for when in tap.at(call) if when < 10 or call == "acknowledge"][:6]
        gaps = [later - sooner for sooner, later in itertools.pairwise(first)]
        assert all(0.1 * 2**n <= gap <= 0.1 * 2**n + 0.1 for n, gap in enumerate(gaps[:5]))
        assert world.inbox.statistics().troubles == 5
    assert caplog.text.count(f"the feed's {call} failed") == 5
    assert "secret" not in caplog.text


async def test_a_failing_feed_is_asked_every_half_minute_at_last() -> None:
    async with serving() as world:
        world.feed.break_("next")
        await world.post("1")
        await trio.sleep(3600)
        assert 120 <= len(world.feed.at("next")) <= 140
        del world.feed.levers["next"]
        await trio.sleep(31)
        assert world.began == ["1"]


@pytest.mark.parametrize("over", [trio.EndOfChannel, trio.ClosedResourceError])
async def test_a_feed_at_its_end_ends_the_serving(over: type[Exception]) -> None:
    async with serving() as world:
        await world.post("1")

        async def end(call: Any, *args: Any) -> None:
            raise over

        world.feed.levers["receive"] = end
    tap = world.feed
    with pytest.raises(BaseExceptionGroup) as caught:
        async with serving(feed=tap):
            await trio.sleep(1)
    assert caught.group_contains(over)
    assert world.left() == ["1"]


@pytest.mark.parametrize("call", ["next", "claim", "acknowledge", "release", "fail"])
async def test_a_call_that_hangs_in_one_room_leaves_the_others_and_the_controls_alone(
    call: str,
) -> None:
    async def handle(world: World, delivery: Delivery) -> None:
        if call == "fail" and delivery.room == "a":
            raise ValueError
        await world.handle(delivery)

    async with serving(handle=handle) as world:

        async def hang(real: Any, *args: Any) -> Any:
            if args[0] == "a" or getattr(args[0], "room", "") == "a":
                await trio.sleep_forever()
            return await real(*args)

        world.feed.levers[call] = hang
        await world.post("1")
        if call == "acknowledge":
            await world.finish()
        if call == "release":
            world.press(STOP)
        await world.post("2", room="b")
        assert world.live[-1] == "2"
        assert world.press(STOP).rooms == ("a",)
        await world.finish()
        assert "2" in world.done
        world.feed.levers.clear()
    assert trio.current_time() == 0
    assert "1" in world.left() or call in ("acknowledge", "fail")


async def test_what_it_needs_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenacity", None)
    with pytest.raises(ImportError, match=r"pip install 'turnstop\[inbox\]'"):
        await serve_rooms(None, None, MemoryFeed())


async def test_a_shutdown_during_a_claim_releases_the_message() -> None:
    async with serving() as world:
        world.feed.answer_late("claim", 5)
        await world.post("1")
    assert world.feed.told("claim", "release", "acknowledge") == [("claim", "1"), ("release", "1")]
    assert (world.began, world.left()) == ([], ["1"])


async def test_a_shutdown_during_an_acknowledgement_says_it_once_more() -> None:
    async with serving() as world:
        world.feed.slow("acknowledge", 1)
        await world.post("1")
        await world.finish()
    assert trio.current_time() == 1
    assert world.feed.told("acknowledge", "release") == [("acknowledge", "1")] * 2
    assert world.left() == []


async def test_a_shutdown_during_a_failure_counts_one_attempt() -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        raise ValueError

    async with serving(handle=failing, feed=Tap(MemoryFeed(attempts=3))) as world:
        world.feed.answer_late("fail", 1)
        await world.post("1")
    assert len(world.feed.at("fail")) == 2
    assert world.feed.unfinished("a")[0].attempt == 1


async def test_the_last_controls_are_told_on_the_way_out() -> None:
    async with serving() as world:
        await world.post("1")
        world.press(STOP)
        world.press(INTERRUPT)
    # The first, which was being told, perhaps twice.
    assert world.feed.told("applied")[-2:] == [("applied", "stop"), ("applied", "interrupt")]
    world.feed.log.clear()
    world.began.clear()
    async with serving(world=world) as world:
        await trio.sleep(30)
        assert (world.began, world.inbox.is_paused("a")) == ([], True)


async def test_the_last_controls_are_told_before_the_turns_are_settled() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=0.5))) as world:
        await world.post("1")
        world.press(STOP)
    assert trio.current_time() == 0.5
    assert set(world.feed.at("applied")) == {0.0}


async def test_controls_that_the_feed_does_not_take_do_not_hold_up_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(finish_within=2) as world:
        await world.post("1")
        world.feed.break_("applied")
        world.press(STOP)
        world.press(PLAY)
    assert trio.current_time() == 0
    assert caplog.text.count("the feed was not told of a") == 2
    async with serving(feed=world.feed, finish_within=2) as world:
        world.feed.slow("applied", 1000)
        world.press(STOP)
    assert trio.current_time() == 2


async def test_what_is_pressed_while_the_rooms_unwind_is_told_at_the_end() -> None:
    async def press(world: World) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.2)
            world.press(STOP)

    async with serving(backend=Recorder(cancel=ending(takes=0.5))) as world:
        await world.post("1")
        world.nursery.start_soon(press, world)
        await settle()
    assert world.feed.at("applied", "stop") == [0.5]
    assert await world.feed.rooms() == {"a": Standing(paused=True, waiting=True)}


async def test_an_interrupt_in_the_step_of_a_shutdown_consumes_its_message() -> None:
    async with serving() as world:
        await world.post("1")
        world.press(INTERRUPT)
    assert world.left() == []


async def test_a_room_that_the_feed_says_is_paused_is_asked_as_often_as_any_paused_one() -> None:
    async def say_paused(call: Any, message: Any) -> Claim:
        return Claim.PAUSED

    async with serving(probe_every=60) as world:
        await world.post("0")
        await world.finish()
        await trio.sleep(1000)
        world.feed.levers["claim"] = say_paused
        await world.post("1")
        del world.feed.levers["claim"]
        await trio.sleep(61)
        assert world.began == ["0", "1"]


async def test_a_room_that_is_paused_in_the_feed_is_paused_from_the_start() -> None:
    async with serving() as world:
        await world.post("1")
        world.press(STOP)
    world.began.clear()
    async with serving(world=world) as world:
        assert world.inbox.statistics().paused == 1
        world.inbox.synthesize("a", "work", id="s")
        await trio.sleep(1)
        assert world.began == []
        assert world.press(PLAY).rooms == ("a",)
        await settle()
        assert world.began == ["s"]


async def test_a_message_that_is_finished_already_makes_way_for_the_next() -> None:
    async with serving() as world:

        async def finished(call: Any, message: Any) -> Claim:
            await trio.sleep(1)
            if message.id in ("1", "2"):
                await world.feed.feed.acknowledge(message)
                return Claim.FINISHED
            found: Claim = await call(message)
            return found

        world.feed.levers["claim"] = finished
        await world.post("1", "2", "3")
        await trio.sleep(4)
        assert world.began == ["3"]


@pytest.mark.parametrize("claim", [Claim.FINISHED, Claim.BUSY])
async def test_a_feed_that_gives_what_may_not_be_handled_is_not_asked_without_end(
    claim: Claim,
) -> None:
    async with serving(probe_every=60) as world:

        async def say(call: Any, message: Any) -> Claim:
            return claim

        world.feed.levers["claim"] = say
        await world.post("1", "2")
        await trio.sleep(600)
        assert len(world.feed.at("claim")) <= 13
        assert world.began == []
        del world.feed.levers["claim"]
        await trio.sleep(121)
        assert world.began == ["1"]


async def test_a_room_that_is_retired_is_forgotten_and_comes_again() -> None:
    backend = Recorder(session="s")
    async with serving(backend=backend, retire_after=100) as world:
        await world.post("1")
        await world.finish()
        await trio.sleep(99)
        assert backend.forgotten == []
        await trio.sleep(2)
        assert (backend.forgotten, world.inbox.statistics().rooms) == (["s"], 0)
        await world.post("2")
        assert world.live == ["2"]


async def test_a_message_that_comes_while_its_room_is_retired_is_handled() -> None:
    backend = Recorder(session="s")
    backend.forget_act.takes = 1.0
    async with serving(backend=backend, retire_after=100) as world:
        await world.post("1")
        await world.finish()
        await trio.sleep(100.5)
        await world.post("2")
        await trio.sleep(1)
        assert world.live == ["2"]


async def test_a_session_that_is_not_forgotten_does_not_keep_its_room() -> None:
    backend = Recorder(session="s")
    backend.forget_act.raises = OSError("no")
    async with serving(backend=backend, retire_after=0) as world:
        await world.post("1")
        await world.finish()
        await trio.sleep(1)
        assert world.inbox.statistics().rooms == 0


async def test_a_room_that_cannot_be_retired_yet_does_not_spin() -> None:
    async with serving(retire_after=1) as world:
        await world.post("1")
        await world.finish()
        world.feed.slow("applied", 1000)
        world.press(INTERRUPT)
        await trio.sleep(500)
        assert world.inbox.statistics().rooms == 1
        await trio.sleep(501)
        assert world.inbox.statistics().rooms == 0


async def test_a_day_of_paused_and_idle_rooms_is_a_few_probes_and_no_memory() -> None:
    async def half(world: World) -> tuple[int, int, int]:
        for _ in range(12):
            await trio.sleep(DAY / 24)
        gc.collect()
        taken = len(world.feed.log)
        world.feed.log.clear()
        return taken, len(gc.get_objects()), trio.lowlevel.current_statistics().tasks_living

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    steps = Steps()
    async with serving(backend=Recorder(cancel=ending())) as world:
        for number in range(3):
            await world.post(f"p{number}", room=f"paused {number}")
            world.inbox.synthesize(f"paused {number}", "work")
            world.press(STOP, f"paused {number}")
            await settle()
            await world.post(f"i{number}", room=f"idle {number}")
            await world.finish()
        trio.lowlevel.add_instrument(steps)
        first, second = await half(world), await half(world)
    # A minute for each that is paused, and two for each that is idle.
    assert second[0] == pytest.approx(3 * 720 + 3 * 360, abs=6)
    assert steps.count < 10 * (first[0] + second[0])
    assert abs(second[1] - first[1]) < 100
    assert second[2] == first[2]


async def test_a_stop_of_a_hundred_rooms_takes_as_long_as_that_of_one() -> None:
    async with serving(backend=Recorder(cancel=ending(takes=0.05)), at_once=100) as world:
        for number in range(100):
            world.feed.post(f"r{number}", "work")
        await settle()
        assert len(world.live) == 100
        settled = await world.press(STOP, None).settled()
        assert len(settled) == 100
        assert trio.current_time() == 0.05
        await settle()
        assert world.inbox.statistics().paused == 100
