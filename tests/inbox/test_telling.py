"""What the feed is told, also where it cannot take it; and what logs say of that."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
import trio
from kernel.backend import Recorder, settle

from turnstop import Control, Delivery
from turnstop.feeds import MemoryFeed, Standing

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving


async def served(world: World) -> None:
    """A message was handled."""
    await world.post("0")
    await world.finish()


# Errors and their texts.


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("no file \udcff"), r"OSError: no file \udcff"),
        (ValueError("\ud800 é"), r"ValueError: \ud800 é"),
        (Mute(), "Mute: cannot say what it is"),
    ],
)
async def test_why_a_message_failed_is_told_as_text_that_every_feed_can_keep(
    error: Exception, reason: str
) -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        raise error

    told: list[str] = []

    async def note(call: Any, message: Any, reason: str) -> None:
        told.append(reason)
        await call(message, reason)

    async with serving(handle=failing) as world:
        world.feed.levers["fail"] = note
        await world.post("1", "2")
        assert told == [reason, reason]
        assert world.left() == []


async def test_a_long_reason_is_cut() -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        raise ValueError("x" * 1_000_000)

    async with serving(handle=failing) as world:
        await world.post("1")
        assert len(world.failed["1"]) < 5000
        assert world.failed["1"].endswith("(996112 characters more)")


@pytest.mark.parametrize("error", [ValueError, TypeError, OverflowError])
async def test_what_a_feed_cannot_take_is_given_up_after_a_minute_and_the_next_runs(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        if delivery.message.id == "1":
            raise KeyError
        await world.handle(delivery)

    async with serving(handle=failing) as world:

        async def refuse(call: Any, message: Any, reason: str) -> None:
            # Behind it, so that the room can go on.
            await call(message, reason)
            raise error("the secret prompt")

        world.feed.levers["fail"] = refuse
        await world.post("1", "2")
        await trio.sleep(70)
        assert len(world.feed.at("fail", "1")) == 10
        assert world.live == ["2"]
    assert caplog.text.count(f"fail raised {error.__name__} each time: given up") == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize("call", ["next", "claim"])
async def test_a_room_whose_feed_cannot_say_what_is_next_asks_again_at_its_next_probe(
    call: str,
) -> None:
    async with serving(probe_every=600) as world:
        await served(world)

        async def broken(real: Any, *args: Any) -> Any:
            raise ValueError

        world.feed.levers[call] = broken
        world.feed.log.clear()
        await world.post("1")
        await trio.sleep(100)
        # With a probe in between, twice as often.
        assert 10 <= len(world.feed.at(call)) <= 20
        del world.feed.levers[call]
        await trio.sleep(1300)
        assert world.live == ["1"]


async def test_one_control_that_the_feed_cannot_take_does_not_hold_up_those_behind_it() -> None:
    async with serving() as world:
        await served(world)

        async def broken(real: Any, control: Control, rooms: Any) -> Any:
            if control.reason == "\ud800":
                raise UnicodeEncodeError("utf-8", control.reason, 0, 1, "no")
            await real(control, rooms)

        world.feed.levers["applied"] = broken
        world.press(INTERRUPT, reason="\ud800")
        world.press(STOP)
        await trio.sleep(70)
        assert await world.feed.rooms() == {"a": Standing(paused=True)}


async def test_receive_and_rooms_are_asked_whatever_they_raise() -> None:
    tap = Tap(MemoryFeed())
    left = 15

    async def broken(real: Any) -> Any:
        nonlocal left
        left -= 1
        if left > 0:
            raise ValueError
        return await real()

    tap.levers["receive"] = broken
    async with serving(feed=tap) as world:
        await trio.sleep(400)
        world.feed.control(Control(STOP, "a"))
        await settle()
        assert ("applied", "stop") in world.feed.told("applied")


async def test_no_text_of_an_error_is_logged_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(world: World, delivery: Delivery) -> None:
        raise ValueError("the secret prompt")

    caplog.set_level(logging.DEBUG)
    backend = Recorder(session="s")
    backend.forget_act.raises = OSError("a secret frame")
    async with serving(backend=backend, retire_after=1, feed=Tap(MemoryFeed(attempts=2))) as world:

        async def broken(real: Any, *args: Any) -> Any:
            del world.feed.levers["acknowledge"]
            raise OSError("INSERT the secret")

        world.feed.levers["acknowledge"] = broken
        await served(world)
        await trio.sleep(10)
        assert (backend.forgotten, world.inbox.statistics().troubles) == (["s"], 1)
    async with serving(handle=failing) as world:
        await world.post("1")
        await settle()
    above = [record for record in caplog.records if record.levelno > logging.DEBUG]
    formatter = logging.Formatter()
    said = "\n".join(formatter.format(record) for record in above)
    assert all(name in said for name in ("ValueError", "OSError", "acknowledge"))
    assert "secret" not in said
    assert "secret prompt" in caplog.text


# Controls that the feed has not been told of.


async def test_what_is_pressed_while_the_feed_fails_does_not_pile_up() -> None:
    async with serving() as world:
        for room in "abc":
            await world.post(f"of {room}", room=room)
            await world.finish()
        world.feed.break_("applied")
        for number in range(5000):
            world.press((STOP, INTERRUPT, PLAY)[number % 3], "abc"[number // 3 % 3])
        world.press(STOP, "b")
        world.press(INTERRUPT, "b")
        assert len(world.inbox.lane) < 1100
        for room in "abc":
            assert world.inbox.lane.owes(room)
        del world.feed.levers["applied"]
        await trio.sleep(60)
        assert (len(world.inbox.lane), await world.feed.rooms()) == (
            0,
            {"b": Standing(paused=True)},
        )
        assert [world.inbox.is_paused(room) for room in "abc"] == [False, True, False]
        assert all(world.inbox.is_idle(room) for room in "abc")


async def test_controls_for_all_rooms_do_not_pile_up_either() -> None:
    async with serving() as world:
        for number in range(50):
            world.feed.post(f"r{number}", "work", id="1")
        await settle()
        world.feed.break_("applied")
        for number in range(1000):
            world.press((STOP, PLAY)[number % 2], None)
        assert len(world.inbox.lane) < 100
        await settle()
        del world.feed.levers["applied"]
        await trio.sleep(60)
        assert (len(world.inbox.lane), await world.feed.rooms()) == (
            0,
            {f"r{number}": Standing(waiting=True) for number in range(50)},
        )


async def test_a_control_of_the_feeds_own_is_told_whatever_piles_up() -> None:
    async with serving() as world:
        await served(world)
        world.feed.break_("applied")
        world.press(INTERRUPT)
        await settle()
        theirs = Control(INTERRUPT, "a", reason="theirs")
        world.feed.control(theirs)
        await settle()
        for number in range(3000):
            world.press((STOP, PLAY)[number % 2])
        told: list[Control] = []

        async def note(real: Any, control: Control, rooms: Any) -> None:
            told.append(control)
            await real(control, rooms)

        world.feed.levers["applied"] = note
        await trio.sleep(60)
        assert any(one is theirs for one in told)


# The end.


async def test_what_comes_when_the_inbox_has_ended_changes_nothing_and_raises_nothing() -> None:
    async with serving() as world:
        await served(world)
        inbox = world.inbox
    inbox.nudge("a")
    inbox.nudge("never seen")
    inbox.synthesize("never seen either", "work")
    inbox.drop("a")
    assert inbox.control(Control(STOP)).turn_ids == ()
    assert len(inbox.lane) == 0


# The first probe.


async def test_rooms_that_begin_or_are_stopped_at_once_do_not_probe_at_once() -> None:
    async with serving(probe_every=60) as world:
        for number in range(200):
            world.feed.post(f"r{number}", "work")
        await settle()
        for _ in range(200):
            for remote in world.backend.remotes:
                remote.finish(world.backend.cancel.ends)
            await settle()
        world.feed.log.clear()
        await trio.sleep(60.5)
        begin = world.feed.at("next")
        world.feed.log.clear()
        world.press(STOP, None)
        await trio.sleep(60.5)
        stopped = world.feed.at("next")
    for found in (begin, stopped):
        rooms = itertools.groupby(sorted(found))
        assert len(found) >= 200
        assert max(len([*same]) for _, same in rooms) < 5


# The feed learns of a stop, and not yet of the play behind it.


@pytest.mark.parametrize("late", [0.0, 2.0])
async def test_a_stop_that_the_feed_learns_of_late_undoes_no_play_behind_it(late: float) -> None:
    async with serving(probe_every=600) as world:
        await world.post("1")
        world.feed.slow("applied", 1)
        world.feed.slow("next", 0.3)

        async def claim(call: Any, message: Any) -> Any:
            await trio.sleep(0.7)
            found = await call(message)
            # By then it knows of the play too.
            await trio.sleep(late)
            return found

        world.feed.levers["claim"] = claim
        world.press(STOP)
        await trio.sleep(0.2)
        world.press(PLAY)
        for _ in range(70):
            await trio.sleep(0.1)
            assert not world.inbox.is_paused("a")
        assert world.live == ["1"]


async def test_that_a_room_is_paused_is_believed_while_only_an_interrupt_is_untold() -> None:
    async with serving(probe_every=600) as world:
        await served(world)
        await world.feed.applied(Control(STOP), ["a"])
        world.feed.slow("applied", 5)
        world.press(INTERRUPT)

        async def unaware(call: Any, room: str) -> Any:
            return world.feed.unfinished(room)[0]

        world.feed.levers["next"] = unaware
        await world.post("1")
        assert world.inbox.is_paused("a")


async def test_a_room_of_which_the_feed_cannot_say_what_is_next_is_not_idle() -> None:
    async with serving(retire_after=100) as world:
        await served(world)

        async def broken(call: Any, room: str) -> Any:
            raise ValueError

        world.feed.levers["next"] = broken
        await world.post("1")
        await trio.sleep(100)
        assert not world.inbox.is_idle("a")
