"""The scenarios C1 to C7: a turn that waits for a person's decision."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from kernel.backend import COMPLETED, Recorder, Remote, ending, settle

from turnstop import Delivery, Ending
from turnstop.abc import Emit, End, Silenced
from turnstop.events import Ask, Event

from .world import INTERRUPT, PLAY, STOP, World, serving

ASK = Ask("ask-1", "approval", "may it?", ("yes", "no"))


@attrs.define(eq=False, slots=False)
class Asking(Remote):
    """Asks at once, and finishes with the answer."""

    async def _follow(self) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, self.emit)
            end: End = await super()._follow()
            nursery.cancel_scope.cancel()
        return end

    async def _ask(self, emit: Emit) -> None:
        try:
            answer = await emit.ask(ASK)
            self.backend.log.append((f"answer {answer}", self.turn_id, trio.current_time()))
            self.finish(COMPLETED)
        except Silenced:
            self.backend.log.append(("silenced", self.turn_id, trio.current_time()))


def asking(**levers: Any) -> Recorder:
    return Recorder(**levers, make=Asking)


async def test_c1_a_turn_that_asks_is_still_the_rooms_turn() -> None:
    async with serving(backend=asking()) as world:
        await world.post("1", "2")
        await trio.sleep(1000)
        assert world.inbox.is_asking("a")
        assert (world.live, world.left()) == (["1"], ["1", "2"])
        assert not world.inbox.is_asking("b")


async def test_c2_a_stop_then_is_one_cancel_and_the_question_is_closed() -> None:
    said: list[Event] = []

    async def handle(world: World, delivery: Delivery) -> None:
        async with delivery.turn() as turn:
            async for event in turn:
                said.append(event)

    async with serving(backend=asking(), handle=handle) as world:
        await world.post("1")
        assert said == [ASK]
        world.press(STOP)
        assert not world.inbox.is_asking("a")
        assert not world.inbox.answer("a", "ask-1", "yes")
        await trio.sleep(10)
        assert world.backend.calls.count("cancel") == 1
        assert "answer yes" not in world.backend.calls
        assert (said, world.left()) == ([ASK], ["1"])


async def test_c3_a_message_waits_its_turn() -> None:
    async with serving(backend=asking()) as world:
        await world.post("1", "2")
        assert world.inbox.answer("a", "ask-1", "yes")
        await settle()
        assert (world.done, world.live) == (["1"], ["2"])


async def test_c3_a_message_is_refused_where_that_is_chosen() -> None:
    async with serving(backend=asking(), while_asking="refuse") as world:
        await world.post("1")
        await world.post("2")
        assert world.failed == {"2": "the room waits for a decision"}
        assert (world.live, world.left()) == (["1"], ["1"])
        await world.post("other", room="b")
        assert world.live == ["1", "other"]
        assert world.inbox.answer("a", "ask-1", "yes")
        await settle()
        await world.post("3")
        assert (world.done, world.live) == (["1"], ["other", "3"])


async def test_c3_a_message_that_is_handled_by_now_is_not_refused() -> None:
    async with serving(backend=asking(), while_asking="refuse") as world:
        world.feed.slow("refuse", 5)
        await world.post("1")
        await world.post("2")
        assert world.inbox.answer("a", "ask-1", "yes")
        await trio.sleep(10)
        assert (world.done, world.live, world.failed) == (["1"], ["2"], {})


async def test_c3_a_message_that_was_to_be_refused_and_could_not_be_is_handled() -> None:
    async with serving(backend=asking(), while_asking="refuse", probe_every=1e6) as world:
        await world.post("1")

        async def too_late(call: Any, message: Any, reason: str) -> None:
            # Somebody else had it, and gave it back meanwhile.
            await trio.sleep(5)

        world.feed.levers["refuse"] = too_late
        world.feed.levers["next"] = nothing_at_first(world)
        await world.post("2")
        assert world.inbox.answer("a", "ask-1", "yes")
        await trio.sleep(10)
        assert (world.done, world.live) == (["1"], ["2"])


def nothing_at_first(world: World) -> Any:
    """The message that is about to be refused is nobody's until that is over."""
    until = trio.current_time() + 5

    async def lever(call: Any, room: str) -> Any:
        return None if trio.current_time() < until else await call(room)

    return lever


async def test_c4_an_answer_reaches_the_turn_and_it_goes_on() -> None:
    async with serving(backend=asking()) as world:
        await world.post("1")
        assert not world.inbox.answer("a", "another", "yes")
        assert world.inbox.answer("a", "ask-1", "yes")
        assert not world.inbox.answer("a", "ask-1", "no")
        await settle()
        assert "answer yes" in world.backend.calls
        assert (world.done, world.left()) == (["1"], [])


@pytest.mark.parametrize("takes", [0.5, 3.0])
async def test_c5_a_message_during_a_stop_is_accepted_and_runs_when_it_is_settled(
    takes: float,
) -> None:
    async with serving(backend=asking(cancel=ending(takes=takes))) as world:
        await world.post("1")
        world.press(INTERRUPT)
        await trio.sleep(0.1)
        await world.post("2")
        await trio.sleep(10)
        assert world.backend.at("start") == [0.0, takes]
        assert world.left() == ["2"]


async def test_c6_a_shutdown_while_it_asks_settles_it_once() -> None:
    async with serving(backend=asking(cancel=ending(takes=0.5))) as world:
        await world.post("1")
    assert [one.ending for one in world.settlements] == [Ending.STOPPED]
    assert world.settlements[0].settled_at == 0.5
    assert world.left() == ["1"]


async def test_c7_a_handler_that_is_cancelled_takes_its_turn_with_it() -> None:
    scopes: list[trio.CancelScope] = []

    async def handle(world: World, delivery: Delivery) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await world.handle(delivery)

    async with serving(backend=asking(), handle=handle) as world:
        await world.post("1")
        scopes[0].cancel()
        await settle()
        assert world.requests() == ["cancelled"]
        assert world.backend.calls.count("cancel") == 1
        world.press(PLAY)
