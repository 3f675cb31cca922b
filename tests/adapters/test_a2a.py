"""The adapter `a2a` against a recording agent, in virtual time."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import Ending, Proof, StopBudget
from turnstop.abc import Backend, How, Request
from turnstop.events import Event, Other, Text, Thought
from turnstop.transports.sse import EventParser

try:
    import httpx

    import turnstop.adapters.a2a as adapter
    from turnstop.adapters.a2a import A2ASession, open_a2a
    from turnstop.adapters.a2a._address import Address
    from turnstop.testing.recording.a2a import (
        URL,
        ScriptedAgent,
        always,
        card,
        in_turn,
        moved,
        never,
        piece,
        refused,
        task,
    )
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)


BUDGET = StopBudget(5.0, 2.0)


@asynccontextmanager
async def open_double(
    *, streaming: bool = True, **options: Any
) -> AsyncGenerator[tuple[ScriptedAgent, turnstop.Rooms[Any]], None]:
    agent = ScriptedAgent(streaming=streaming)
    async with open_a2a(URL, transport=agent, **options) as backend:
        async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
            yield agent, rooms


async def read(turn: turnstop.Turn, into: list[Event] | None = None) -> list[Event]:
    events = [] if into is None else into
    async with turn:
        async for event in turn:
            events.append(event)
    return events


def joined(events: list[Event]) -> list[Event]:
    """Neighbouring texts as one, whether the reader was behind or not."""
    found: list[Event] = []
    for event in events:
        if found and isinstance(event, Text) and isinstance(last := found[-1], Text):
            found[-1] = Text(last.delta + event.delta)
        else:
            found.append(event)
    return found


async def hold(turn: turnstop.Turn) -> None:
    async with turn:
        await trio.sleep_forever()


async def test_a_stream_is_told_in_the_common_words(autojump_clock: MockClock) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        turn, events = rooms.turn("a", "bake"), []
        nursery.start_soon(read, turn, events)
        stream = await agent.stream()
        stream.say(
            {"task": task("submitted")},
            moved("working", "hm"),
            moved("working"),
            piece("one "),
            piece("two", append=True),
            piece("", artifact="picture"),
            piece("", artifact="picture"),
            piece("three", artifact="story"),
            moved("completed", "done"),
        )
        await wait_all_tasks_blocked()
        assert turn.settlement is None
        stream.end()
    assert joined(events) == [
        Other("submitted"),
        Thought("hm"),
        Other("working"),
        Text("one two"),
        Other("artifact"),
        Text("threedone"),
    ]
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.FINISHED, Proof.STREAM)
    message = agent.made("SendStreamingMessage")[0]["message"]
    assert message["parts"] == [{"text": "bake"}]
    assert message["contextId"]
    assert not any("turnstop-call" in headers for headers in agent.headers)


async def test_a_stop_before_the_first_event_is_told_with_the_revealed_id(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        stream = await agent.stream()
        rooms.stop("a")
        await trio.sleep(1)
        assert not agent.made("CancelTask")
        stream.say({"task": task("submitted", task_id="t9")})
        await agent.called("CancelTask")
        stream.say(moved("canceled", task_id="t9"))
        await trio.sleep(1)
        assert turn.settlement is None
        stream.end()
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.STOPPED, Proof.STREAM)
    assert [call["id"] for call in agent.made("CancelTask")] == ["t9"]
    assert turn.settlement.sent_at <= turn.settlement.acked_at < turn.settlement.ended_at


async def test_canceled_and_no_end_of_the_stream_is_unconfirmed(autojump_clock: MockClock) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        stream = await agent.stream()
        stream.say({"task": task("working")})
        rooms.stop("a")
        await agent.called("CancelTask")
        stream.say(moved("canceled"))
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.UNCONFIRMED, None)
    assert turn.settlement.settled_at - turn.settlement.asked_at >= BUDGET.cancel_within


async def test_a_stop_after_the_end_tells_the_agent_nothing(autojump_clock: MockClock) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        stream = await agent.stream()
        stream.say({"task": task("completed")})
        stream.end()
        await wait_all_tasks_blocked()
        rooms.stop("a")
    assert turn.settlement.ending is Ending.FINISHED
    assert [method for method, _ in agent.calls] == ["SendStreamingMessage"]


async def test_the_turn_after_an_unconfirmed_one_begins_a_fresh_context(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = never
        first = rooms.turn("a", "bake")
        nursery.start_soon(hold, first)
        (await agent.stream()).say({"task": task("working")})
        await wait_all_tasks_blocked()
        rooms.stop("a")
        second = rooms.turn("a", "bake again")
        nursery.start_soon(read, second)
        stream = await agent.stream(1)
        assert first.settlement.ending is Ending.UNCONFIRMED
        stream.say({"task": task("completed", task_id="t2")})
        stream.end()
    one, two = (call["message"] for call in agent.made("SendStreamingMessage"))
    assert one["contextId"] != two["contextId"]
    assert "taskId" not in two


async def test_a_stopped_room_keeps_its_context_and_not_its_task(autojump_clock: MockClock) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))
        nursery.start_soon(hold, rooms.turn("a", "bake"))
        stream = await agent.stream()
        stream.say({"task": task("working")})
        await wait_all_tasks_blocked()
        rooms.stop("a")
        stream.say(moved("canceled"))
        stream.end()
        nursery.start_soon(read, rooms.turn("a", "bake again"))
        again = await agent.stream(1)
        again.say({"task": task("completed", task_id="t2")})
        again.end()
    one, two = (call["message"] for call in agent.made("SendStreamingMessage"))
    assert one["contextId"] == two["contextId"]
    assert "taskId" not in two
    assert one["messageId"] != two["messageId"]


async def test_a_waiting_task_is_continued_and_a_retired_room_cancels_it(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))
        agent.on["GetTask"] = always(task("input_required"))
        events: list[Event] = []
        nursery.start_soon(read, rooms.turn("a", "bake"), events)
        stream = await agent.stream()
        stream.say({"task": task("working")}, moved("input_required", "which?"))
        stream.end()
        await agent_is_quiet()
        assert events[-1] == Text("which?")
        nursery.start_soon(read, rooms.turn("a", "the red one"))
        stream = await agent.stream(1)
        stream.say(moved("working"), moved("auth_required"))
        stream.end()
        await agent_is_quiet()
        await rooms.retire("a")
    assert agent.made("SendStreamingMessage")[1]["message"]["taskId"] == "t1"
    assert [call["id"] for call in agent.made("CancelTask")] == ["t1"]


async def agent_is_quiet() -> None:
    await wait_all_tasks_blocked()
    await trio.sleep(0.1)


@pytest.mark.parametrize(
    ("answer", "acknowledged"),
    [
        (refused(-32002), True),
        (refused(-32004), False),
        (refused(-32601), False),
        (refused(-12345), False),
    ],
)
async def test_what_an_agent_may_answer_to_a_cancel(
    answer: dict[str, Any], acknowledged: bool, autojump_clock: MockClock
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(answer)
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        stream = await agent.stream()
        stream.say({"task": task("working")})
        await wait_all_tasks_blocked()
        rooms.stop("a")
    settled = turn.settlement
    assert settled.ending is Ending.UNCONFIRMED
    assert (settled.acked_at is not None) is acknowledged
    assert [str(error).startswith("the agent does not cancel") for error in settled.errors] == (
        [] if acknowledged else [True]
    )
    assert len(agent.made("CancelTask")) == 1


async def test_a_task_that_is_not_known_yet_is_told_until_it_is(autojump_clock: MockClock) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = in_turn(refused(-32001), refused(-32001), task("canceled"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        stream = await agent.stream()
        stream.say({"task": task("working")})
        await wait_all_tasks_blocked()
        rooms.stop("a")
        await agent.called("CancelTask", times=3)
        stream.say(moved("canceled"))
        stream.end()
    assert turn.settlement.ending is Ending.STOPPED
    assert len(agent.made("CancelTask")) == 3


async def test_a_polled_task_says_each_word_once_and_is_claimed(autojump_clock: MockClock) -> None:
    async with open_double(streaming=False, poll_every=0.5) as (agent, rooms):
        agent.on["SendMessage"] = always({"task": task("submitted")})
        agent.on["GetTask"] = in_turn(
            task("working", "one "),
            task("working", "one two "),
            *[task("working", "one two ")] * 20,
            task("completed", "one two ", "three"),
        )
        turn = rooms.turn("a", "bake")
        events = await read(turn)
    assert agent.made("SendMessage")[0]["configuration"]["returnImmediately"] is True
    assert [event.delta for event in events if isinstance(event, Text)] == [
        "one ",
        "two ",
        "three",
    ]
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.FINISHED, Proof.CLAIMED)
    pauses = [after - before for before, after in zip(agent.times, agent.times[1:], strict=False)]
    assert max(pauses) <= 0.51
    assert len(agent.made("GetTask")) == 23


async def test_a_message_that_a_polled_agent_refuses_began_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_double(streaming=False) as (agent, rooms):

        async def refuse(params: dict[str, Any]) -> dict[str, Any]:
            await trio.sleep(1)
            return refused(-32005)

        agent.on.update(SendMessage=refuse, ListTasks=always({}))
        turn = rooms.turn("a", "bake")
        with pytest.raises(turnstop.BackendRefused, match="refused the message"):
            await read(turn)
        assert turn.settlement.gone
        async with rooms.turn("a", "bake") as turn:
            pass
    assert turn.settlement.ending is Ending.UNSTARTED


async def test_a_polled_stop_is_unconfirmed_at_once(autojump_clock: MockClock) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["SendMessage"] = always({"task": task("submitted")})
        agent.on["GetTask"] = always(task("working"))
        agent.on["CancelTask"] = always(task("canceled"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        await agent.called("GetTask", times=3)
        rooms.stop("a")
        before = trio.current_time()
    settled = turn.settlement
    assert (settled.ending, settled.proof) == (Ending.UNCONFIRMED, Proof.CLAIMED)
    assert settled.settled_at == pytest.approx(before, abs=0.01)


async def test_an_agent_that_answers_at_its_end_is_found_by_our_message(
    autojump_clock: MockClock,
) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["SendMessage"] = never
        agent.on["CancelTask"] = always(task("canceled", task_id="mine"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        ours = (await agent.called("SendMessage"))["message"]
        others = task("working", task_id="other", history="another message")
        mine = task("working", task_id="mine", history=ours["messageId"])
        agent.on["ListTasks"] = in_turn({}, {"tasks": [others]}, {"tasks": [others, mine]})
        rooms.stop("a")
    assert turn.settlement.ending is Ending.UNCONFIRMED
    assert [call["id"] for call in agent.made("CancelTask")] == ["mine"]
    assert [call["contextId"] for call in agent.made("ListTasks")] == [ours["contextId"]] * 3


async def test_what_is_never_published_is_looked_for_and_not_too_often(
    autojump_clock: MockClock,
) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["SendMessage"] = never
        agent.on["ListTasks"] = always({})
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        await agent.called("SendMessage")
        rooms.stop("a")
    settled = turn.settlement
    assert settled.ending is Ending.UNCONFIRMED
    assert (settled.sent_at, settled.acked_at) == (None, None)
    looks = [time for (call, _), time in zip(agent.calls, agent.times, strict=True)][1:]
    assert looks[0] - settled.asked_at < 0.01
    assert looks[1] - looks[0] < 0.01
    assert 20 <= len(looks) <= 40


async def test_a_task_that_is_shown_after_the_bound_is_ended_all_the_same(
    autojump_clock: MockClock,
) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:
        agent.on.update(SendMessage=never, ListTasks=always({}))
        agent.on["CancelTask"] = always(task("canceled"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        ours = (await agent.called("SendMessage"))["message"]
        rooms.stop("a")
        await turn.wait_settled()
        await trio.sleep(10)
        assert not agent.made("CancelTask")
        agent.on["ListTasks"] = always({"tasks": [task("working", history=ours["messageId"])]})
        await agent.called("CancelTask")
        await trio.sleep(10)
    assert turn.settlement.ending is Ending.UNCONFIRMED
    assert [call["id"] for call in agent.made("CancelTask")] == ["t1"]
    assert trio.current_time() - agent.times[-1] >= 9


async def test_a_look_that_fails_is_not_the_last(autojump_clock: MockClock) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:

        async def fail(params: dict[str, Any]) -> dict[str, Any]:
            raise httpx.ConnectError("down for a moment")

        agent.on.update(SendMessage=never, ListTasks=fail)
        agent.on["CancelTask"] = always(task("canceled"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        ours = (await agent.called("SendMessage"))["message"]
        await agent.called("ListTasks", times=2)
        agent.on["ListTasks"] = always({"tasks": [task("working", history=ours["messageId"])]})
        rooms.stop("a")
    assert [call["id"] for call in agent.made("CancelTask")] == ["t1"]


@pytest.mark.parametrize("late", [refused(-32004), refused(-32002), {}])
async def test_a_late_turn_that_cannot_be_ended_hurts_nobody(
    late: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(late) if late else fail_with(httpx.ReadError("cut"), agent)
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        stream = await agent.stream()
        rooms.stop("a")
        await turn.wait_settled()
        stream.say({"task": task("working")})
        await agent.called("CancelTask")
        await trio.sleep(10)
        assert stream.closed is (late != {})
        later = rooms.turn("a", "bake again")
        nursery.start_soon(read, later)
        stream = await agent.stream(1)
        stream.say({"task": task("completed", task_id="t2")})
        stream.end()
    assert later.settlement.ending is Ending.FINISHED


@pytest.mark.parametrize("late", [{"task": task("completed")}, refused(-32005)])
async def test_a_late_turn_that_is_over_or_refused_is_told_nothing(
    late: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with backend_of(agent := ScriptedAgent()) as backend:
        agent.on["GetTask"] = always(task("input_required"))
        async with trio.open_nursery() as nursery:
            request = Request("a", "2", "x", A2ASession("context", "t1"))
            nursery.start_soon(backend.start, request)
            stream = await agent.stream()
            nursery.cancel_scope.cancel()
        stream.say(late)
        await trio.sleep(10)
        assert not agent.made("CancelTask")


async def test_a_late_turn_that_breaks_its_protocol_is_ended_too(
    autojump_clock: MockClock,
) -> None:
    async with backend_of(agent := ScriptedAgent()) as backend:
        agent.on["CancelTask"] = always(task("canceled"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(backend.start, Request("a", "1", "x"))
            stream = await agent.stream()
            nursery.cancel_scope.cancel()
        shown = json.dumps({"result": {"task": task("working")}})
        stream.say_raw(f"data: {shown}\n\ndata: lorem ipsum\n\n")
        await trio.sleep(10)
        assert [call["id"] for call in agent.made("CancelTask")] == ["t1"]


async def test_an_answer_that_breaks_is_polled_where_its_task_was_found_before(
    autojump_clock: MockClock,
) -> None:
    async with open_double(streaming=False) as (agent, rooms):

        async def break_off(params: dict[str, Any]) -> dict[str, Any]:
            found = task("working", history=params["message"]["messageId"])
            agent.on["ListTasks"] = always({"tasks": [found]})
            await agent.called("ListTasks")
            await trio.sleep(1)
            agent.on["ListTasks"] = never
            raise httpx.ReadTimeout("300 s")

        agent.on.update(SendMessage=break_off, GetTask=always(task("completed", "cake")))
        events = await read(rooms.turn("a", "bake"))
    assert Text("cake") in events


async def test_a_task_may_be_named_by_a_later_event(autojump_clock: MockClock) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        turn = rooms.turn("a", "bake")
        nursery.start_soon(read, turn)
        stream = await agent.stream()
        stream.say(moved("working", task_id=""), piece("cake"), moved("completed"))
        stream.end()
    assert turn.settlement.ending is Ending.FINISHED


async def test_an_agent_that_cannot_be_asked_for_its_tasks_is_asked_once(
    autojump_clock: MockClock,
) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["ListTasks"] = always(refused(-32601))

        async def answer(params: dict[str, Any]) -> dict[str, Any]:
            await trio.sleep(1)
            return {"task": task("working")}

        agent.on.update(SendMessage=answer, CancelTask=always(task("canceled")))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(hold, turn)
        await agent.called("SendMessage")
        rooms.stop("a")
    assert len(agent.made("ListTasks")) == 1
    assert turn.settlement.sent_at == pytest.approx(agent.times[0] + 1, abs=0.01)


async def test_an_answer_that_breaks_is_looked_for_once_more(autojump_clock: MockClock) -> None:
    async with open_double(streaming=False) as (agent, rooms):
        agent.on["ListTasks"] = always({})

        async def break_off(params: dict[str, Any]) -> dict[str, Any]:
            await trio.sleep(1)
            agent.on["ListTasks"] = fail_with(httpx.ConnectError("down"), agent)
            raise httpx.RemoteProtocolError("lorem")

        agent.on["SendMessage"] = break_off
        turn = rooms.turn("a", "bake")
        with pytest.raises(turnstop.BackendLost, match="broke"):
            await read(turn)
    # Nothing is known of it: an agent that is down now may have begun before.
    assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FAILED, False)
    assert turn.settlement.settled_at == pytest.approx(agent.times[0] + 1, abs=0.01)


async def test_a_long_silent_answer_is_taken_up_by_polling(autojump_clock: MockClock) -> None:
    async with open_double(streaming=False) as (agent, rooms), trio.open_nursery() as nursery:
        events: list[Event] = []
        agent.on["SendMessage"] = fail_with(httpx.ReadTimeout("300 s"), agent)
        turn = rooms.turn("a", "bake")
        agent.on["GetTask"] = in_turn(task("working"), task("completed", "cake"))
        nursery.start_soon(read, turn, events)
    assert Text("cake") in events
    assert turn.settlement.ending is Ending.FINISHED


def fail_with(error: Exception, agent: ScriptedAgent) -> Any:
    async def handle(params: dict[str, Any]) -> dict[str, Any]:
        found = task("working", history=params.get("message", {}).get("messageId", ""))
        agent.on["ListTasks"] = always({"tasks": [found]})
        raise error

    return handle


async def test_a_broken_stream_is_taken_up_again_and_repeats_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["GetTask"] = always(task("working", "one "))
        turn, events = rooms.turn("a", "bake"), []
        nursery.start_soon(read, turn, events)
        stream = await agent.stream()
        stream.say({"task": task("working")}, piece("one "))
        stream.break_off()
        stream = await agent.stream(1)
        stream.say({"task": task("working", "one two ")}, piece("three", append=True))
        stream.end()
        stream = await agent.stream(2)
        stream.say({"task": task("working", "one two three")}, moved("completed"))
        stream.end()
    text = "".join(event.delta for event in events if isinstance(event, Text))
    assert text == "one two three"
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.FINISHED, Proof.STREAM)
    assert [call["id"] for call in agent.made("SubscribeToTask")] == ["t1", "t1"]
    assert all(stream.closed for stream in agent.streams)


async def test_what_a_waiting_task_said_before_is_not_the_next_turns(
    autojump_clock: MockClock,
) -> None:
    async with backend_of(agent := ScriptedAgent(streaming=False)) as backend:
        agent.on["GetTask"] = in_turn(
            task("input_required", "old "),
            task("input_required", "old new ", "more"),
            task("completed", "old new ", "more"),
        )
        agent.on["SendMessage"] = always({"task": task("input_required", "old new ")})
        turn = await backend.start(Request("a", "2", "x", A2ASession("context", "t1")))
        ears = Ears()
        end = await turn.follow(ears)
    assert end.how is How.COMPLETED
    assert len(agent.made("GetTask")) == 3
    assert ears.text == "new more"


async def test_a_stream_that_closes_early_and_then_breaks_proves_nothing(
    autojump_clock: MockClock,
) -> None:
    async with backend_of(agent := ScriptedAgent()) as backend, trio.open_nursery() as nursery:
        agent.on["GetTask"] = always(task("working"))

        async def play() -> None:
            stream = await agent.stream()
            stream.say({"task": task("working")})
            stream.end()
            stream = await agent.stream(1)
            stream.say(moved("canceled"))
            stream.break_off()

        nursery.start_soon(play)
        turn = await backend.start(Request("a", "1", "bake"))
        end = await turn.follow(Ears())
    assert (end.how, end.proof) == (How.CANCELLED, Proof.CLAIMED)


async def test_an_answer_that_did_not_arrive_is_lost_and_not_completed(
    autojump_clock: MockClock,
) -> None:
    async with backend_of(agent := ScriptedAgent(streaming=False)) as backend:

        async def cut(params: dict[str, Any]) -> dict[str, Any]:
            raise httpx.ReadError("cut")

        agent.on.update(SendMessage=cut, GetTask=always(task("input_required")))
        agent.on["ListTasks"] = always({"tasks": [task("input_required", history="older")]})
        with pytest.raises(turnstop.BackendLost):
            await backend.start(Request("a", "2", "x", A2ASession("context", "t1")))


@pytest.mark.parametrize("final", ["completed", "input_required", "canceled"])
async def test_a_state_found_after_a_break_is_a_claim(
    final: str, autojump_clock: MockClock
) -> None:
    async with backend_of(agent := ScriptedAgent()) as backend:
        agent.on["GetTask"] = always(task(final))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_first_stream, agent)
            turn = await backend.start(Request("a", "1", "bake"))
        end = await turn.follow(Ears())
    assert end.proof is Proof.CLAIMED
    assert end.how is (How.CANCELLED if final == "canceled" else How.COMPLETED)


@asynccontextmanager
async def backend_of(agent: ScriptedAgent) -> AsyncGenerator[Backend[Any], None]:
    async with open_a2a(URL, transport=agent) as backend:
        yield backend


async def break_first_stream(agent: ScriptedAgent) -> None:
    stream = await agent.stream()
    stream.say({"task": task("working")})
    stream.break_off()


class Ears:
    def __init__(self) -> None:
        self.text = ""

    def __call__(self, event: Event, /) -> None:
        self.text += event.delta if isinstance(event, Text) else ""

    async def ask(self, ask: object, /) -> object:
        raise AssertionError(ask)


async def test_a_subscription_to_a_task_that_waits_does_not_hang(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["GetTask"] = in_turn(task("working"), task("input_required"))
        turn = rooms.turn("a", "bake")
        nursery.start_soon(read, turn)
        await break_first_stream(agent)
        (await agent.stream(1)).say({"task": task("working")}, moved("input_required"))
    assert turn.settlement.ending is Ending.FINISHED


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (httpx.ConnectError("down"), "start the agent"),
        (refused(-32001, "never heard of it"), "never heard of it"),
    ],
)
async def test_a_task_that_cannot_be_taken_up_again_is_lost(
    again: Exception | dict[str, Any], text: str, autojump_clock: MockClock
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:

        async def handle(params: dict[str, Any]) -> dict[str, Any]:
            if isinstance(again, Exception):
                raise again
            return again

        agent.on["GetTask"] = agent.on["CancelTask"] = handle
        nursery.start_soon(break_first_stream, agent)
        turn = rooms.turn("a", "bake")
        with pytest.raises(turnstop.BackendLost, match=text):
            await read(turn)
    assert turn.settlement.ending is Ending.FAILED
    assert not turn.settlement.gone


@pytest.mark.parametrize(
    ("instead", "kind", "text"),
    [
        (httpx.ConnectError("down"), turnstop.BackendRefused, "start the agent"),
        (httpx.ConnectTimeout("slow"), turnstop.BackendRefused, "start the agent"),
        (httpx.ReadTimeout("slow"), turnstop.BackendLost, "read_gap"),
        (httpx.ReadError("cut"), turnstop.BackendLost, "look at the agent"),
        (httpx.Response(401, text="who?"), turnstop.BackendRefused, "HTTP 401: who"),
        (httpx.Response(500, text="fire"), turnstop.BackendMisbehaved, "HTTP 500: fire"),
        (httpx.Response(200, text="lorem"), turnstop.BackendMisbehaved, "no A2A agent answers"),
        (httpx.Response(200, json=[1, 2]), turnstop.BackendMisbehaved, "no JSON-RPC"),
        (httpx.Response(200, json={"result": {"x": 1}}), turnstop.BackendMisbehaved, "a kind that"),
        (httpx.Response(200, json=refused(-32602)), turnstop.BackendRefused, "refused the message"),
        (httpx.Response(200, json=refused(-32006)), turnstop.BackendMisbehaved, "may go on"),
        (httpx.Response(200, json=refused(-32603, "oven")), turnstop.BackendError, "oven"),
        (httpx.Response(200, json=refused([], "list")), turnstop.BackendError, "list"),
    ],
)
async def test_what_comes_instead_of_an_answer(
    instead: Exception | httpx.Response,
    kind: type[Exception],
    text: str,
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms):
        agent.instead = instead
        turn = rooms.turn("a", "bake")
        with pytest.raises(kind, match=text):
            await read(turn)
        assert turn.settlement.ending is Ending.FAILED
        assert turn.settlement.gone is (kind in (turnstop.BackendRefused, turnstop.BackendError))
    assert len(agent.calls) == 1


async def test_garbage_after_the_reveal_is_cancelled_before_the_room_opens(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))

        async def babble() -> None:
            stream = await agent.stream()
            # In one piece: nobody hears of the task before the garbage is there as well.
            shown = json.dumps({"result": {"task": task("working")}})
            stream.say_raw(f"data: {shown}\n\ndata: lorem ipsum\n\n")
            stream.say(moved("completed"))

        nursery.start_soon(babble)
        turn = rooms.turn("a", "bake")
        with pytest.raises(turnstop.BackendMisbehaved):
            await read(turn)
    assert len(agent.made("CancelTask")) == 1
    assert not turn.settlement.gone


async def test_an_event_ends_at_a_newline_and_at_no_other_character(
    autojump_clock: MockClock,
) -> None:
    said = "one\u2028two\x85three"
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:

        async def speak() -> None:
            stream = await agent.stream()
            stream.say({"task": task("working")})
            shown = json.dumps({"result": piece(said)}, ensure_ascii=False)
            stream.say_raw(f"data: {shown}\n")
            stream.say_raw("\n")
            stream.say(moved("completed"))
            stream.end()

        nursery.start_soon(speak)
        events = await read(rooms.turn("a", "bake"))
    assert "".join(one.delta for one in events if isinstance(one, Text)) == said


async def test_a_line_without_an_end_is_not_kept_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = partial(EventParser, limit=1000)
    monkeypatch.setattr("turnstop.transports.httpcalls.EventParser", parser)
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))

        async def babble() -> None:
            stream = await agent.stream()
            stream.say({"task": task("working")})
            stream.say_raw("data: ")
            for _ in range(11):
                stream.say_raw("x" * 100)

        nursery.start_soon(babble)
        with pytest.raises(turnstop.BackendMisbehaved, match="a line of more than 1000 bytes"):
            await read(rooms.turn("a", "bake"))


@pytest.mark.parametrize("code", [-32001, -32004, -32602])
async def test_a_waiting_task_that_is_over_begins_anew_once(
    code: int, autojump_clock: MockClock
) -> None:
    async with backend_of(agent := ScriptedAgent()) as backend, trio.open_nursery() as nursery:
        agent.on["SendStreamingMessage"] = in_turn(refused(code), {})
        nursery.start_soon(break_first_stream, agent)
        agent.on["GetTask"] = in_turn(task("input_required"), task("completed"))
        turn = await backend.start(Request("a", "2", "x", A2ASession("context", "t1")))
        await turn.follow(Ears())
    one, two = (call["message"] for call in agent.made("SendStreamingMessage"))
    assert (one["taskId"], "taskId" in two) == ("t1", False)
    assert one["contextId"] == two["contextId"] == "context"


async def test_a_stopped_answer_to_a_waiting_task_never_begins_anew(
    autojump_clock: MockClock,
) -> None:
    async with backend_of(agent := ScriptedAgent(streaming=False)) as backend:
        cancelled = trio.Event()

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            await cancelled.wait()
            return refused(-32004)

        async def cancel(params: dict[str, Any]) -> dict[str, Any]:
            cancelled.set()
            await wait_all_tasks_blocked()
            return refused(-32002)

        agent.on.update(SendMessage=send, CancelTask=cancel)
        agent.on["GetTask"] = always(task("input_required"))
        agent.on["ListTasks"] = in_turn({}, {"tasks": [waiting := task("working")]})
        async with trio.open_nursery() as nursery:

            async def show() -> None:
                ours = (await agent.called("SendMessage"))["message"]
                waiting["history"].append(ours)

            nursery.start_soon(show)
            turn = await backend.start(Request("a", "2", "x", A2ASession("context", "t1")))
            nursery.start_soon(turn.cancel, lambda: None)
            end = await turn.follow(Ears())
    assert end.how is How.FAILED
    assert len(agent.made("SendMessage")) == 1


async def test_another_task_in_the_stream_ends_and_says_nothing_here(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        turn, events = rooms.turn("a", "bake"), []
        nursery.start_soon(read, turn, events)
        stream = await agent.stream()
        stream.say({"task": task("working")})
        stream.say(moved("completed", "stray", task_id="t2"), piece("stray", task_id="t2"))
        stream.say({"task": task("canceled", "stray", task_id="t2")})
        await wait_all_tasks_blocked()
        assert turn.settlement is None
        stream.say(piece("own"), moved("completed"))
        stream.end()
    assert turn.settlement.ending is Ending.FINISHED
    assert joined(events) == [Other("working"), Text("own"), Other("completed")]


async def test_a_stream_that_does_not_tell_which_task_is_its_own_is_misbehaviour() -> None:
    async with open_double() as (agent, rooms), trio.open_nursery() as nursery:
        agent.on["CancelTask"] = always(task("canceled"))

        async def confuse() -> None:
            stream = await agent.stream()
            stream.say(moved("working"))
            stream.say(moved("completed", task_id="t2"))

        nursery.start_soon(confuse)
        turn = rooms.turn("a", "bake")
        with pytest.raises(turnstop.BackendMisbehaved, match="t2 in the stream of task t1"):
            await read(turn)
    assert turn.settlement is not None
    assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FAILED, False)


@pytest.mark.parametrize(
    ("shown", "kind", "text"),
    [
        (httpx.Response(404), turnstop.BackendRefused, "HTTP 404"),
        (httpx.Response(200, text="<html>"), turnstop.BackendMisbehaved, "no A2A agent"),
        (httpx.Response(200, json=[]), turnstop.BackendMisbehaved, "no A2A agent"),
        (httpx.Response(200, json={"name": "x"}), turnstop.BackendMisbehaved, "JSONRPC only"),
    ],
)
async def test_a_card_that_is_none(
    shown: httpx.Response, kind: type[Exception], text: str, autojump_clock: MockClock
) -> None:
    agent = ScriptedAgent()
    agent.card = shown
    with pytest.raises(kind, match=text):
        async with backend_of(agent):
            pytest.fail("it opened")


async def test_an_agent_of_version_0_3_is_polled(autojump_clock: MockClock) -> None:
    agent = ScriptedAgent()
    agent.card = {
        "name": "old",
        "url": URL,
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": True},
    }
    old = {"kind": "task", "id": "t1", "contextId": "c", "status": {"state": "completed"}}
    agent.on["message/send"] = always(old)
    async with backend_of(agent) as backend:
        turn = await backend.start(Request("a", "1", "bake"))
        end = await turn.follow(Ears())
    assert (end.how, end.proof) == (How.COMPLETED, Proof.CLAIMED)


async def test_headers_go_with_every_request(autojump_clock: MockClock) -> None:
    async with open_double(headers={"Authorization": "Bearer x"}) as (agent, rooms):
        agent.instead = httpx.Response(500)
        with pytest.raises(turnstop.BackendMisbehaved):
            await read(rooms.turn("a", "bake"))
    assert [headers["authorization"] for headers in agent.headers] == ["Bearer x"] * 2


def test_a_session_says_what_waits() -> None:
    assert str(A2ASession("c")) == "context c"
    assert str(A2ASession("c", "t")) == "context c, task t waits"


@pytest.mark.parametrize("found", ["1.1.1", "0.3.26", "2.0.0"])
async def test_another_sdk_is_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    with pytest.raises(ImportError) as caught:
        async with open_a2a(URL):
            pytest.fail("it opened")
    assert f"a2a-sdk {found} is here" in str(caught.value)
    assert ">=1.1.2,<2 is needed: python -m pip install 'turnstop[a2a]'" in str(caught.value)


def test_a_missing_sdk_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.delitem(sys.modules, adapter.__name__)
    with pytest.raises(ImportError, match=r"python -m pip install 'turnstop\[a2a\]'$"):
        importlib.import_module(adapter.__name__)


async def test_a_message_that_is_cut_off_while_it_is_sent_leaves_nothing_half_read() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    meets_message = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        first = await stream.receive_some(4)
        if first != b"GET ":
            meets_message.set()
            await trio.sleep_forever()
        await stream.receive_some()
        shown = json.dumps({**card(streaming=True), "supportedInterfaces": [interface]}).encode()
        head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(shown)}\r\n\r\n"
        await stream.send_all(head.encode() + shown)
        await stream.aclose()

    url = f"http://127.0.0.1:{port}/"
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            async with open_a2a(url) as backend, trio.open_nursery() as starters:
                starters.start_soon(backend.start, Request("a", "1", "x" * 20_000_000))
                await meets_message.wait()
                starters.cancel_scope.cancel()
            gc.collect()
            nursery.cancel_scope.cancel()


async def test_an_agent_that_is_closed_under_its_turn_ends_it(autojump_clock: MockClock) -> None:
    agent = ScriptedAgent()
    async with backend_of(agent) as backend, trio.open_nursery() as nursery:
        nursery.start_soon(speak_once, agent)
        turn = await backend.start(Request("a", "1", "bake"))
    with pytest.raises(turnstop.BackendLost, match="open it around its rooms"):
        await turn.follow(Ears())


async def speak_once(agent: ScriptedAgent) -> None:
    (await agent.stream()).say({"task": task("working")})


async def test_what_lets_one_in_stands_in_no_journal_and_in_no_error(
    autojump_clock: MockClock,
) -> None:
    agent = ScriptedAgent()
    said: list[str] = []

    async def announce(address: str) -> None:
        said.append(address)

    async with (
        open_a2a("http://cook:s3cret@far.test/a2a?token=s3cret", transport=agent) as backend,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(speak_once, agent)
        turn = await backend.start(Request("a", "1", "bake", announce=announce))
        said += [str(getattr(turn, "address", "")), str(getattr(backend, "name", ""))]
        # Another password is let in, and it is the same agent.
        async with open_a2a("http://cook:new@far.test/a2a", transport=agent) as again:
            agent.instead = httpx.ConnectError("down")
            with pytest.raises(turnstop.BackendLost) as caught:
                await again.attach(said[0])  # type: ignore[attr-defined]
            assert getattr(again, "name", "") == said[-1] == "a2a http://far.test/a2a"
    assert "nothing answers at http://far.test/a2a" in str(caught.value)
    assert "s3cret" not in " ".join([*said, str(caught.value)])


def waiting(*told: str, question: str = "") -> dict[str, Any]:
    """A task that waits for an answer, after these messages."""
    found = task("input_required")
    if question:
        found["status"] = moved("input_required", question)["statusUpdate"]["status"]
    words = [{"messageId": one, "role": "ROLE_USER", "parts": [{"text": "x"}]} for one in told]
    return {**found, "history": words}


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("found", "known"),
    [
        (waiting("before", question="which?"), False),  # not come, or never sent
        (waiting("before", "m-which?", "mine"), False),  # taken, and nothing said of it yet
        (waiting("before", "m-which?", "mine", question="which one?"), True),
        (waiting("before", "m-which?", "mine", "said"), True),
    ],
)
async def test_a_task_that_waits_is_not_said_to_have_dealt_with_an_answer_it_never_got(
    found: dict[str, Any], known: bool, streaming: bool, autojump_clock: MockClock
) -> None:
    agent = ScriptedAgent(streaming=streaming)
    agent.on["GetTask"] = always(found)
    address = str(Address(URL.rstrip("/"), "context", "mine", "t1", "t1"))
    async with backend_of(agent) as backend:
        if not known:
            with pytest.raises(turnstop.BackendLost, match="look at what it does"):
                await backend.attach(address)  # type: ignore[attr-defined]
            assert trio.current_time() > 1.0  # it may have been on its way
            return
        turn = await backend.attach(address)  # type: ignore[attr-defined]
        end = await turn.follow(Ears())
    assert (end.how, end.proof) == (How.COMPLETED, Proof.CLAIMED)


async def test_an_answer_that_comes_late_is_taken_up_and_cancelled(
    autojump_clock: MockClock,
) -> None:
    agent = ScriptedAgent(streaming=False)
    ended = [task("working"), task("working"), task("canceled")]
    agent.on["GetTask"] = in_turn(waiting("before", question="which?"), *ended)
    agent.on["CancelTask"] = always(task("canceled"))
    address = str(Address(URL.rstrip("/"), "context", "mine", "t1", "t1"))
    async with backend_of(agent) as backend:
        turn = await backend.attach(address)  # type: ignore[attr-defined]
        await turn.cancel(lambda: None)
        end = await turn.follow(Ears())
    assert end.how is How.CANCELLED
    assert agent.made("CancelTask")


async def test_what_is_announced_tells_an_answer_from_a_message_of_its_own(
    autojump_clock: MockClock,
) -> None:
    said: list[str] = []

    async def announce(address: str) -> None:
        said.append(address)
        raise turnstop.BackendRefused("stopped")

    async with backend_of(ScriptedAgent()) as backend:
        for session in (A2ASession("context", "t1"), A2ASession("context")):
            with pytest.raises(turnstop.BackendRefused):
                await backend.start(Request("a", "1", "x", session, announce=announce))
    answers, begins = (Address.parse(one, URL.rstrip("/")) for one in said)
    assert (answers.task_id, answers.answers) == ("t1", "t1")
    assert (begins.task_id, begins.answers) == ("", "")
