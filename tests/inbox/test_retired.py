"""Rooms that are retired, what is known of them, and whoever watches controls and states."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from kernel.backend import COMPLETED, Act, Recorder, ending, settle

from turnstop import Applied, Control, Inbox
from turnstop.events import Ask
from turnstop.feeds import Claim, MemoryFeed, Standing

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def served(world: World, *rooms: str) -> None:
    """In each of these rooms a message was handled."""
    for room in rooms:
        await world.post(f"first of {room}", room=room)
        await world.finish()


async def test_an_observer_sees_each_control_in_its_step_and_what_it_has_found() -> None:
    seen: list[tuple[Control, Applied]] = []
    async with serving(observe=lambda *found: seen.append(found)) as world:
        await world.post("1")
        turn_id = world.backend.remote.turn_id
        applied = world.press(STOP, id="c")
        assert [(one.kind, found) for one, found in seen] == [(STOP, applied)]
        assert seen[0][1].turn_ids == (turn_id,)
        await settle()
        world.press(STOP, id="c")
        assert len(seen) == 1
        world.feed.control(Control(PLAY, "a"))
        await settle()
        assert (seen[1][0].kind, seen[1][1].rooms) == (PLAY, ("a",))
        world.press(STOP, "unknown")
        assert seen[2][1].rooms == ()


async def test_an_observer_that_raises_is_logged_without_its_words_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def observe(control: Control, applied: Applied) -> None:
        raise ValueError("the secret prompt")

    async with serving(observe=observe) as world:
        await world.post("1")
        assert world.press(STOP).rooms == ("a",)
        await settle()
        assert world.left() == ["1"]
    assert caplog.text.count("ValueError") == 1
    assert "secret" not in caplog.text


async def test_what_waits_for_a_person_and_what_is_paused_can_be_asked_of_the_inbox() -> None:
    async with serving() as world:
        assert (world.inbox.asks("a"), world.inbox.is_paused("a")) == ((), False)
        await world.post("1")
        emit = world.backend.remote.emit
        world.nursery.start_soon(emit.ask, Ask("q", "question", "which?"))
        await settle()
        assert world.inbox.asks("a") == ("q",)
        assert world.inbox.answer("a", "q", "this")
        assert world.inbox.asks("a") == ()
        await settle()
        world.press(STOP)
        assert world.inbox.is_paused("a")
        await settle()
        world.press(PLAY)
        assert not world.inbox.is_paused("a")


async def test_a_room_that_a_claim_finds_paused_is_paused_here_too() -> None:
    async def say_paused(call: Any, message: Any) -> Claim:
        return Claim.PAUSED

    async with serving() as world:
        world.feed.levers["claim"] = say_paused
        await world.post("1")
        assert (world.inbox.is_paused("a"), world.inbox.is_idle("a")) == (True, False)


async def test_a_room_is_idle_while_it_has_nothing_to_do_paused_or_not() -> None:
    async with serving() as world:
        assert world.inbox.is_idle("a")
        world.feed.slow("acknowledge", 1)
        await world.post("1")
        assert not world.inbox.is_idle("a")
        await world.finish()
        assert not world.inbox.is_idle("a")
        await trio.sleep(2)
        assert world.inbox.is_idle("a")
        world.press(STOP)
        # The feed does not know.
        assert not world.inbox.is_idle("a")
        await settle()
        assert (world.inbox.is_idle("a"), world.inbox.is_paused("a")) == (True, True)
        await world.post("2")
        assert not world.inbox.is_idle("a")
        await trio.sleep(1000)
        assert not world.inbox.is_idle("a")


async def test_a_room_is_idle_soon_behind_an_interrupt_that_the_feed_learns_of_late() -> None:
    async with serving() as world:
        world.feed.slow("applied", 1)
        await world.post("1")
        world.press(INTERRUPT)
        await trio.sleep(2)
        assert world.inbox.is_idle("a")


async def test_a_stop_that_leaves_its_message_leaves_no_idle_room() -> None:
    async with serving() as world:
        await world.post("1")
        world.press(STOP)
        await trio.sleep(1000)
        assert not world.inbox.is_idle("a")
        world.inbox.drop("a")
        await trio.sleep(1)
        assert world.inbox.statistics().rooms == 1
        world.press(PLAY)
        await settle()
        assert world.live == ["1"]


async def test_a_room_that_is_dropped_forgets_its_session_and_comes_again() -> None:
    backend = Recorder(session="s")
    async with serving(backend=backend) as world:
        await served(world, "b")
        before = living()
        await served(world, "a")
        world.inbox.drop("a")
        await trio.sleep(1)
        assert (backend.forgotten, world.inbox.statistics().rooms) == (["s"], 1)
        assert living() == before
        await world.post("2")
        assert world.live == ["2"]
        # It is at work.
        world.inbox.drop("a")
        world.inbox.drop("unknown")
        await trio.sleep(1)
        assert world.live == ["2"]
        await world.finish()
        await world.post("3")
        assert world.live == ["3"]


async def test_a_room_that_is_paused_at_the_start_and_has_no_messages_is_known_and_not_served() -> (
    None
):
    tap = Tap(MemoryFeed())
    tap.post("b", "work", id="1")
    await tap.feed.applied(Control(STOP), [*"abc"])
    async with serving(feed=tap) as world:
        assert world.inbox.statistics().rooms == 1
        assert [world.inbox.is_idle(room) for room in "abc"] == [True, False, True]
        assert [world.inbox.is_paused(room) for room in "abcd"] == [True, True, True, False]
        await world.post("2", room="c")
        assert (world.began, world.inbox.is_paused("c")) == ([], True)
        assert {*world.press(PLAY, None).rooms} == {*"abc"}
        await settle()
        assert sorted(world.live) == ["1", "2"]
        assert {*await tap.rooms()} == {*"bc"}


@pytest.mark.parametrize("more", [(), ("2",)])
async def test_a_room_that_was_stopped_and_whose_message_is_finished_all_the_same_is_idle(
    more: tuple[str, ...],
) -> None:
    async with serving(backend=Recorder(cancel=ending(COMPLETED)), probe_every=600) as world:
        await world.post("1", *more)
        world.feed.slow("applied", 1)
        world.press(STOP)
        await trio.sleep(2)
        assert (world.left(), world.inbox.is_paused("a")) == ([*more], True)
        assert world.inbox.is_idle("a") is not bool(more)


async def test_a_room_that_only_its_feed_knows_to_be_paused_is_paused_here_with_its_message() -> (
    None
):
    async with serving(retire_after=100) as world:
        await world.feed.applied(Control(STOP), ["a"])
        await world.post("1")
        assert (world.inbox.is_paused("a"), world.inbox.is_idle("a")) == (True, False)
        await trio.sleep(1000)
        assert world.inbox.statistics().rooms == 1
        world.press(PLAY)
        await settle()
        assert world.live == ["1"]


async def test_a_message_that_comes_while_its_room_is_dropped_is_handled() -> None:
    backend = Recorder(session="s", forget=Act(takes=1.0))
    async with serving(backend=backend) as world:
        await served(world, "a")
        world.inbox.drop("a")
        await world.post("2")
        await trio.sleep(2)
        assert world.live == ["2"]


async def test_a_paused_room_without_messages_is_retired_and_stays_paused() -> None:
    async with serving(retire_after=100) as world:
        await served(world, "a")
        world.press(STOP)
        await trio.sleep(200)
        assert (world.inbox.statistics().rooms, world.inbox.is_paused("a")) == (0, True)
        await world.post("2")
        await trio.sleep(200)
        assert (world.began[1:], world.inbox.is_paused("a")) == ([], True)
        world.press(PLAY)
        await settle()
        assert world.live == ["2"]


async def test_a_control_for_all_opens_no_room_that_is_retired() -> None:
    async with serving(retire_after=100) as world:
        await served(world, *"abc")
        await trio.sleep(200)
        before = living()
        world.feed.log.clear()
        assert {*world.press(STOP, None).rooms} == {*"abc"}
        assert [world.inbox.is_paused(room) for room in "abc"] == [True] * 3
        await settle()
        assert dict.fromkeys("abc", Standing(paused=True)) == await world.feed.rooms()
        assert {*world.press(PLAY, None).rooms} == {*"abc"}
        assert [world.inbox.is_paused(room) for room in "abc"] == [False] * 3
        assert world.press(INTERRUPT, None).rooms == ()
        await settle()
        assert (world.inbox.statistics().rooms, world.feed.at("next"), living()) == (0, [], before)
        assert await world.feed.rooms() == {}


@pytest.mark.parametrize("room", ["a", None])
async def test_a_message_behind_a_play_that_the_feed_does_not_know_yet_is_handled(
    room: str | None,
) -> None:
    async with serving(retire_after=100) as world:
        await served(world, "a")
        world.press(STOP)
        await trio.sleep(200)
        assert world.inbox.statistics().rooms == 0
        world.feed.slow("applied", 5)
        world.press(PLAY, room)
        await world.post("2")
        assert world.live == []
        await trio.sleep(6)
        assert world.live == ["2"]


async def test_retired_rooms_are_remembered_up_to_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnstop._inbox._inbox._RETIRED", 3)
    async with serving(retire_after=1) as world:
        for room in "abcde":
            await served(world, room)
            await trio.sleep(10)
        assert {*world.press(STOP, None).rooms} == {*"cde"}
        # Of one that is not remembered the feed knows.
        await world.post("2", room="a")
        assert world.live == ["2"]


async def test_a_play_finds_a_room_that_only_the_feed_knew_to_be_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnstop._inbox._inbox._RETIRED", 1)
    async with serving(retire_after=1) as world:
        await served(world, "a")
        world.press(STOP)
        await trio.sleep(10)
        await served(world, "b")
        await trio.sleep(10)
        await world.post("2")
        await trio.sleep(10)
        assert (world.inbox.is_paused("a"), world.left()) == (True, ["2"])
        world.press(PLAY)
        await settle()
        assert world.live == ["2"]


async def test_a_message_that_was_only_found_by_a_probe_and_left_makes_no_idle_room() -> None:
    async with serving(probe_every=60) as world:
        await served(world, "a")

        async def deaf(call: Any) -> Any:
            await trio.sleep_forever()

        world.feed.levers["receive"] = deaf
        # The call that is out already.
        await world.post("of b", room="b")
        world.press(STOP, "b")
        await world.post("2")
        await trio.sleep(121)
        assert world.live == ["2"]
        world.press(STOP)
        await settle()
        assert (world.left(), world.inbox.is_idle("a")) == (["2"], False)


async def test_nobody_opens_a_room_but_for_a_message() -> None:
    assert not hasattr(Inbox, "open")


async def test_an_id_of_a_control_is_its_rooms_and_its_kinds_own() -> None:
    async with serving() as world:
        await world.post("1", room="a")
        await world.post("2", room="b")
        assert world.press(STOP, "a", id="1").rooms == ("a",)
        await settle()
        assert world.press(STOP, "b", id="1").rooms == ("b",)
        await settle()
        assert world.live == []
        assert world.press(PLAY, "a", id="1").rooms == ("a",)
        await settle()
        assert world.live == ["1"]
        assert world.press(STOP, None, id="1").rooms == ("a", "b")
        # And what comes twice is applied once.
        assert world.press(STOP, "a", id="1").repeated
        assert world.press(STOP, None, id="1").repeated
