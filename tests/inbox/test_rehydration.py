"""The scenarios E1 to E5: at the start each room is asked, and none of them touches another."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kernel.backend import Recorder, ending, settle

from turnstop import Control
from turnstop.feeds import MemoryFeed

from .world import PLAY, STOP, Tap, serving

ROOMS = "abcde"


def waiting() -> Tap:
    tap = Tap(MemoryFeed())
    for room in ROOMS:
        tap.post(room, "work", id=f"{room}1")
        tap.post(room, "more", id=f"{room}2")
    return tap


async def test_e1_a_stop_of_one_room_that_is_being_asked_leaves_the_other_four() -> None:
    tap = waiting()
    tap.answer_late("next", 1)
    async with serving(feed=tap) as world:
        assert len(tap.at("next")) == 5
        world.press(STOP, "b")
        await trio.sleep(2)
        assert sorted(world.live) == ["a1", "c1", "d1", "e1"]
        await world.post("new", room="f")
        await trio.sleep(2)
        assert "new" in world.live


async def test_e2_a_room_that_cannot_be_asked_is_reported_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tap = waiting()

    async def fail_for_b(call: Any, room: str) -> Any:
        if room == "b":
            raise OSError("the feed is broken")
        return await call(room)

    tap.levers["next"] = fail_for_b
    async with serving(feed=tap) as world:
        await trio.sleep(5)
        assert sorted(world.live) == ["a1", "c1", "d1", "e1"]
        assert "the feed's next failed" in caplog.text
        tap.levers.clear()
        await trio.sleep(30)
        assert "b1" in world.live


async def test_e3_the_end_of_the_serving_ends_all_of_it() -> None:
    tap = waiting()
    tap.slow("next", 1000)
    with trio.CancelScope() as scope:
        async with serving(feed=tap) as world:
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == 0
    assert world.began == []
    assert [tap.unfinished(room)[0].id for room in ROOMS] == ["a1", "b1", "c1", "d1", "e1"]


async def test_e4_a_message_that_was_stopped_comes_again_after_play() -> None:
    async with serving(feed=waiting()) as world:
        world.press(STOP, "b")
        await settle()
        assert "b1" not in world.live
        world.press(PLAY, "b")
        await settle()
        assert sorted(world.live) == ["a1", "b1", "c1", "d1", "e1"]
        assert world.began.count("b1") == 2


async def test_a_stop_that_was_posted_while_nobody_served_begins_nothing() -> None:
    tap = waiting()
    tap.control(Control(STOP))
    tap.slow("receive", 1)
    # Nor do they ask of themselves, before it is heard.
    async with serving(feed=tap, probe_every=1e6) as world:
        await trio.sleep(20)
        assert world.began == []
        assert all(world.inbox.is_paused(room) for room in ROOMS)
        world.press(PLAY, "b")
        await settle()
        assert world.live == ["b1"]


async def test_e5_a_stop_ends_what_runs_and_what_waits_in_its_room_and_only_there() -> None:
    async with serving(feed=waiting(), backend=Recorder(cancel=ending(takes=0.5))) as world:
        applied = world.press(STOP, "b")
        await trio.sleep(100)
        assert len(applied.turn_ids) == 1
        assert world.backend.calls.count("cancel") == 1
        assert sorted(world.live) == ["a1", "c1", "d1", "e1"]
        assert [message.id for message in world.feed.unfinished("b")] == ["b1", "b2"]
