"""The adapter `letta` against a recording server, in virtual time."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import BackendError, BackendLost, BackendMisbehaved, BackendRefused, Ending, Proof
from turnstop.abc import Request
from turnstop.events import Ask, Event, Other, Text, Thought, ToolCall, Usage
from turnstop.testing import Work

try:
    import httpx

    import turnstop.adapters.letta as adapter
    from turnstop.adapters.letta import LettaSession, open_letta
    from turnstop.testing.recording.letta import URL, RecordingLetta
    from turnstop.testing.recording.letta._frames import event, stop_reason
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

BUDGET = turnstop.StopBudget(5.0, 2.0)
AGENT = "agent-1"


@attrs.define
class Double:
    server: RecordingLetta
    rooms: turnstop.Rooms[Any]
    nursery: trio.Nursery

    def enter(self, room: str = "kitchen", text: str = "bake") -> Actor:
        actor = Actor(self.rooms.turn(room, text))
        self.nursery.start_soon(actor.run)
        return actor

    async def work(self, number: int = 0) -> Work:
        """The work of that number, once it was sent and its reader waits."""
        with trio.fail_after(20):
            while len(self.server.works) <= number:  # noqa: ASYNC110
                await trio.sleep(0.001)
        await wait_all_tasks_blocked()
        return self.server.works[number]

    def sent(self, last: str) -> list[tuple[str, Any]]:
        """Path and body of what was sent to paths that end so."""
        calls = self.server.calls
        return [(path, body) for _, path, body in calls if path.endswith(f"/{last}")]


@attrs.define
class Actor:
    turn: turnstop.Turn
    events: list[Event] = attrs.field(factory=list)
    error: Exception | None = None
    left: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        try:
            async with self.turn:
                async for one in self.turn:
                    self.events.append(one)
        except BackendError as error:
            self.error = error
        self.left.set()

    async def settled(self) -> turnstop.Settlement:
        await self.left.wait()
        assert self.turn.settlement is not None
        return self.turn.settlement


@asynccontextmanager
async def open_double(
    agent_id: str | Callable[[str], Awaitable[str]] = AGENT, **options: Any
) -> AsyncGenerator[Double, None]:
    async with trio.open_nursery() as nursery:
        server = RecordingLetta(nursery)
        async with open_letta(URL, agent_id=agent_id, transport=server, **options) as backend:
            async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
                yield Double(server, rooms, nursery)
        server.die()
        nursery.cancel_scope.cancel()


async def test_a_run_is_told_in_the_common_words(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        run = double.server.run_of(work)
        for text in ("first ", "flour"):
            run.say("reasoning_message", reasoning=text)
        call = {"name": "weigh", "arguments": '{"g":', "tool_call_id": "call-1"}
        run.say("tool_call_message", tool_call=call, tool_calls=call)
        run.say("tool_call_message", tool_call={"name": None, "arguments": "9}"})
        back = {"tool_call_id": "call-1", "status": "success", "tool_return": "9 g"}
        run.say("tool_return_message", **back)
        burnt = {"tool_call_id": "call-2", "status": "error", "tool_return": "burnt"}
        run.say("tool_return_message", name="bake", tool_returns=[burnt])
        run.say("hidden_reasoning_message", state="omitted")
        run.say("assistant_message", content=[{"type": "text", "text": "It "}])
        run.say("assistant_message", content="is done")
        double.server.end(work)
        settlement = await actor.settled()
        gc.collect()
    thoughts = "".join(one.delta for one in actor.events if isinstance(one, Thought))
    texts = "".join(one.delta for one in actor.events if isinstance(one, Text))
    assert (thoughts, texts) == ("first flour", "It is done")
    assert [one for one in actor.events if not isinstance(one, Thought | Text)] == [
        ToolCall("call-1", "weigh", "started", '{"g":'),
        ToolCall("call-1", "weigh", "completed", "9 g"),
        ToolCall("call-2", "bake", "failed", "burnt"),
        Other("hidden_reasoning_message"),
        Usage(1, 1),
    ]
    assert (settlement.ending, settlement.proof, settlement.usage) == (
        Ending.FINISHED,
        Proof.EVENT,
        Usage(1, 1),
    )


async def test_what_is_sent(autojump_clock: MockClock) -> None:
    headers: list[httpx.Headers] = []

    async def note(request: httpx.Request) -> None:
        headers.append(request.headers)

    async with open_double(api_key="s3cret", headers={"x-house": "9"}) as double:
        handle = double.server.handle_async_request

        async def tapped(request: httpx.Request) -> httpx.Response:
            await note(request)
            return await handle(request)

        double.server.handle_async_request = tapped  # type: ignore[method-assign]
        actor, _ = double.enter(text="bake"), await double.work()
        actor.turn.stop()
        await actor.settled()
        parts = [{"type": "text", "text": "again"}]
        other = Actor(double.rooms.turn("kitchen", parts))
        double.nursery.start_soon(other.run)
        double.server.end(await double.work(1))
        await other.settled()
    ((path, first), (_, second)) = double.sent("messages")
    assert path == "/v1/conversations/conv-1/messages"
    assert first == {
        "messages": [{"role": "user", "content": "bake"}],
        "streaming": True,
        "stream_tokens": True,
        "include_pings": True,
    }
    assert second["messages"] == [{"role": "user", "content": parts}]
    for one in headers:
        assert one["authorization"] == "Bearer s3cret"
        assert one["x-house"] == "9"
        assert "turnstop-call" not in one


# Whom a cancel reaches: F16.


async def agent_of(room: str) -> str:
    return f"agent-of-{room}"


@pytest.mark.parametrize(
    ("agent_id", "conversations", "owner"),
    [
        (AGENT, True, AGENT),
        (agent_of, False, "agent-of-kitchen"),
        (agent_of, True, "agent-of-kitchen"),
        (AGENT, False, AGENT),
    ],
    ids=["a conversation a room", "an agent a room", "both", "one history for all"],
)
async def test_a_cancel_names_its_own_run_and_reaches_no_other(
    agent_id: Any, conversations: bool, owner: str, autojump_clock: MockClock
) -> None:
    async with open_double(agent_id, conversations=conversations) as double:
        actor, work = double.enter(), await double.work()
        other, its = double.enter("garden"), await double.work(1)
        actor.turn.stop()
        settlement = await actor.settled()
        assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.EVENT)
        assert double.sent("cancel") == [
            (f"/v1/agents/{owner}/messages/cancel", {"run_ids": [work.name]})
        ]
        assert its.runs
        assert other.turn.settlement is None
        double.server.end(its)
        assert (await other.settled()).ending is Ending.FINISHED


async def test_a_run_that_its_stream_names_later_is_not_the_turns(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        other = {"message_type": "assistant_message", "content": "hm", "run_id": "run-99"}
        double.server.run_of(work).stream.say_raw(event(other))
        await wait_all_tasks_blocked()
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.STOPPED
        assert [body["run_ids"] for _, body in double.sent("cancel")] == [[work.name]]


async def test_a_room_goes_on_in_its_conversation(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        for number in range(3):
            actor, work = double.enter(), await double.work(number)
            if number == 1:
                actor.turn.stop()
            else:
                double.server.end(work)
            await actor.settled()
    assert {work.session for work in double.server.works} == {"conv-1"}
    assert len(double.sent("conversations")) == 1


async def test_a_stopped_message_is_not_sent_again_with_the_next(autojump_clock: MockClock) -> None:
    """Field case C82."""
    async with open_double() as double:
        actor, _ = double.enter(text="first"), await double.work()
        actor.turn.stop()
        await actor.settled()
        second, its = double.enter(text="second"), await double.work(1)
        double.server.say(its, "own words")
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED
    said = [body["messages"] for _, body in double.sent("messages")]
    assert said == [[{"role": "user", "content": one}] for one in ("first", "second")]
    assert [one for one in second.events if not isinstance(one, Usage)] == [Text("own words")]


# What shows that the work ended.


async def test_a_stop_is_settled_by_the_trace_and_not_by_the_stop_reason(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        double.server.drops_after = 1.5
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        await trio.sleep(1.0)
        assert double.server.run_of(work).reason == "cancelled"
        assert actor.turn.settlement is None
        settlement = await actor.settled()
    assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.EVENT)
    assert work.ended_at is not None
    assert 0 <= settlement.settled_at - work.ended_at <= 0.25
    assert len(double.sent("steps")) == 1


@pytest.mark.parametrize("agent_id", [AGENT, agent_of])
async def test_a_call_that_nothing_ends_is_unconfirmed_and_its_history_is_left(
    agent_id: Any, autojump_clock: MockClock
) -> None:
    async with open_double(agent_id, conversations=agent_id is AGENT) as double:
        double.server.drops_after = None
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        settlement = await actor.settled()
        assert (settlement.ending, settlement.proof) == (Ending.UNCONFIRMED, Proof.CLAIMED)
        assert settlement.asked_at is not None
        assert settlement.settled_at - settlement.asked_at < BUDGET.cancel_within
        second, its = double.enter(), await double.work(1)
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED
        double.enter()
        third = await double.work(2)
    assert work.runs or work.session != its.session
    assert its.session == third.session != work.session
    assert its.session is not None
    assert its.session.startswith("conv-")


@pytest.mark.parametrize(
    ("agent_id", "path"),
    [(AGENT, "/v1/conversations/conv-1/fork"), (agent_of, "/v1/conversations/default/fork")],
)
async def test_what_was_said_is_kept_where_the_server_can_fork_a_conversation(
    agent_id: Any, path: str, autojump_clock: MockClock
) -> None:
    async with open_double(agent_id, conversations=agent_id is AGENT) as double:
        double.server.cancels = "held"
        for number in range(2):
            actor, work = double.enter(), await double.work(number)
            actor.turn.stop()
            await actor.settled()
        double.server.instead["fork"] = httpx.Response(404, json={"detail": "Not Found"})
        double.enter()
        last = await double.work(2)
        paths = [one for one, _ in double.sent("fork")]
        # The second one could not be forked.
        fresh = 2 if agent_id is AGENT else 1
        assert len(double.sent("conversations")) == fresh
    assert paths == [path, f"/v1/conversations/{work.session}/fork"]
    assert len({one.session for one in double.server.works}) == 3
    assert last.session is not None


async def test_a_server_that_cannot_be_asked_proves_nothing(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.instead["trace"] = httpx.Response(404, json={"detail": "Not Found"})
        actor, _ = double.enter(), await double.work()
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.UNCONFIRMED


async def test_a_look_that_fails_is_not_the_last(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.instead["steps"] = httpx.ReadError("no")
        actor, _ = double.enter(), await double.work()
        actor.turn.stop()
        await trio.sleep(1.0)
        del double.server.instead["steps"]
        assert (await actor.settled()).ending is Ending.STOPPED


async def test_a_run_that_came_to_no_step_has_no_call(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.drops_after = None
        double.server.instead["steps"] = httpx.Response(200, json=[])
        actor, _ = double.enter(), await double.work()
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.STOPPED


async def test_a_parked_model_is_unconfirmed_at_the_bound(autojump_clock: MockClock) -> None:
    """The server says `cancelled` at once, and goes on waiting for the model."""
    async with open_double() as double:
        double.server.cancels = "ignored"
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        settlement = await actor.settled()
        assert settlement.ending is Ending.UNCONFIRMED
        assert not settlement.gone
        assert work.runs
        assert settlement.acked_at == settlement.asked_at
        assert settlement.settled_at - (settlement.asked_at or 0) == pytest.approx(7.0)


async def test_a_model_that_speaks_again_in_time_is_stopped(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.ends_after = 3.0
        actor, _ = double.enter(), await double.work()
        actor.turn.stop()
        settlement = await actor.settled()
    assert settlement.ending is Ending.STOPPED
    assert settlement.settled_at - (settlement.asked_at or 0) == pytest.approx(3.0)


async def test_a_run_that_flips_back_to_completed_is_finished(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.cancels = "ignored"
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        await trio.sleep(1.0)
        double.server.end(work)
        settlement = await actor.settled()
    assert (settlement.ending, settlement.gone) == (Ending.FINISHED, True)


async def test_cancelled_of_a_run_that_is_over_is_an_answer(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingLetta(nursery)
        async with open_letta(URL, agent_id=AGENT, transport=server) as backend:
            remote = await backend.start(Request("kitchen", "1", "bake"))
            server.end(server.works[0])
            await remote.cancel(lambda: None)
            assert server.works[0].told_at


async def test_a_run_that_somebody_else_cancels_is_stopped(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        double.server.run_of(work).end("cancelled")
        await trio.sleep(0.5)
        double.server.drop(work)
        settlement = await actor.settled()
    assert (settlement.ending, settlement.request) == (Ending.STOPPED, None)


# Errors of a cancel: F17.

SAYS_NO = httpx.Response(409, json={"detail": "CONFLICT: No active runs to cancel"})


@pytest.mark.parametrize(
    ("instead", "kind", "text"),
    [
        (httpx.Response(500, json={"detail": "An unknown error"}), BackendMisbehaved, "HTTP 500"),
        (SAYS_NO, BackendRefused, "No active runs"),
        (httpx.ReadError("reset"), BackendLost, "reset"),
        (httpx.ConnectError("refused"), BackendRefused, "nothing answers"),
        (httpx.Response(200, json={"run-1": "failed"}), BackendRefused, "'failed'"),
        (httpx.Response(200, text="<html>"), BackendRefused, "<html>"),
    ],
)
async def test_an_error_of_a_cancel_is_told_and_the_next_turn_runs(
    instead: Any, kind: type, text: str, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        double.server.instead["cancel"] = instead
        actor, _ = double.enter(), await double.work()
        actor.turn.stop()
        settlement = await actor.settled()
        assert settlement.ending is Ending.UNCONFIRMED
        assert actor.error is None
        (error,) = settlement.errors
        assert type(error) is kind
        assert text in str(error)
        assert len(double.sent("cancel")) == 1
        second, its = double.enter(), await double.work(1)
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED


# Starts.


@pytest.mark.parametrize(
    ("instead", "kind", "text"),
    [
        (httpx.Response(409, json={"detail": "busy (run_id=run-7)"}), BackendRefused, "run-7"),
        (httpx.Response(404, json={"detail": "Agent not found"}), BackendRefused, "Agent not"),
        (httpx.Response(401, json={"detail": "Unauthorized"}), BackendRefused, "api_key"),
        (httpx.Response(422, text="nonsense"), BackendRefused, "nonsense"),
        (httpx.Response(429, json=["slow down"]), BackendRefused, "slow down"),
        (httpx.Response(503, json={"detail": "no database"}), BackendMisbehaved, "server's log"),
        (httpx.Response(200, json={"messages": []}), BackendMisbehaved, "no stream"),
        (httpx.ConnectError("refused"), BackendRefused, "nothing answers"),
        (httpx.ReadTimeout("slow"), BackendLost, "read_gap"),
        (httpx.ReadError("reset"), BackendLost, "reset"),
    ],
)
async def test_what_comes_instead_of_a_run(
    instead: Any, kind: type, text: str, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        double.server.instead["messages"] = instead
        actor = double.enter()
        settlement = await actor.settled()
        assert type(actor.error) is kind
        assert text in str(actor.error)
        assert settlement.gone is (kind is BackendRefused)
        # A start that is sent again may begin a second run.
        assert len(double.sent("messages")) == 1


async def test_a_busy_conversation_refuses_and_nothing_began(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        first, work = double.enter(), await double.work()
        double.server.end(work)
        await first.settled()
        double.server.run_of(work).reason = None
        actor = double.enter()
        settlement = await actor.settled()
        assert settlement.ending is Ending.FAILED
        assert settlement.gone
        assert f"run_id={work.name}" in str(actor.error)


@pytest.mark.parametrize("made", [{}, {"id": 7}])
async def test_a_conversation_without_an_id_is_misbehaviour(
    made: Any, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        double.server.instead["conversations"] = httpx.Response(200, json=made)
        actor = double.enter()
        await actor.settled()
        assert isinstance(actor.error, BackendMisbehaved)
        assert "its id" in str(actor.error)


@pytest.mark.parametrize("made", [{}, {"id": 7}, [], "<html>"])
async def test_a_fork_without_an_id_is_none(made: Any, autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.cancels = "held"
        double.server.instead["fork"] = httpx.Response(200, json=made)
        actor, _ = double.enter(), await double.work()
        actor.turn.stop()
        await actor.settled()
        double.enter()
        assert (await double.work(1)).session == "conv-2"


async def test_an_error_of_the_agents_function_is_raised(autojump_clock: MockClock) -> None:
    async def broken(room: str) -> str:
        raise LookupError(room)

    async with open_double(broken) as double:
        with pytest.raises(LookupError, match="kitchen"):
            async with double.rooms.turn("kitchen", "bake") as turn:
                async for _ in turn:
                    pass


async def test_a_start_that_is_revealed_after_the_bound_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        double.server.hold_starts()
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        settlement = await actor.settled()
        assert settlement.ending is Ending.UNCONFIRMED
        # It may take its time to end: nobody listens to that.
        double.server.ends_after = 60.0
        double.server.release_starts()
        await trio.sleep(0.1)
        assert len(work.told_at) == 1
        assert double.server.run_of(work).stream.closed
        await trio.sleep(60.0)
        assert not work.runs


async def test_a_conversation_that_came_too_late_is_deleted_and_nothing_sent(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        converse, late = double.server._answer, trio.Event()

        async def slow(request: httpx.Request, path: list[str], body: Any) -> httpx.Response:
            if path == ["conversations"]:
                await late.wait()
            return await converse(request, path, body)

        double.server._answer = slow  # type: ignore[method-assign]
        actor = double.enter()
        await trio.sleep(0.1)
        actor.turn.stop()
        await actor.settled()
        late.set()
        await trio.sleep(0.1)
        assert not double.server.works
        assert ("DELETE", "/v1/conversations/conv-1", None) in double.server.calls


# Ends that are none, or not good ones.


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("end_turn", Ending.FINISHED),
        ("max_steps", Ending.FINISHED),
        ("tool_rule", Ending.FINISHED),
        ("max_tokens_exceeded", Ending.FAILED),
        ("insufficient_credits", Ending.FAILED),
        ("a reason of tomorrow", Ending.FAILED),
    ],
)
async def test_what_a_stop_reason_means(
    reason: str, ending: Ending, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        double.server.end(work, reason)
        settlement = await actor.settled()
    assert (settlement.ending, settlement.proof) == (ending, Proof.EVENT)
    assert (reason in str(actor.error)) is (ending is Ending.FAILED)


async def test_a_failed_run_says_what_went_wrong(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        # The server may say two reasons, the second one nearer to the cause.
        double.server.run_of(work).stream.say_raw(event(stop_reason("error")))
        double.server.end(work, "llm_api_error", "no flour left")
        settlement = await actor.settled()
    assert settlement.ending is Ending.FAILED
    assert settlement.gone
    assert str(actor.error) == "llm_error: no flour left"


async def test_an_error_without_a_reason_is_a_failure(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        stream = double.server.run_of(work).stream
        stream.say_raw(event({"error": "boom", "code": "INTERNAL_SERVER_ERROR"}, "error"))
        stream.end()
        assert (await actor.settled()).ending is Ending.FAILED
    assert str(actor.error) == "boom"


async def test_the_event_of_a_cancelled_run_is_understood(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        double.server.cancels = "ignored"
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        await trio.sleep(0.1)
        stream = double.server.run_of(work).stream
        stream.say_raw(event({"message": "Run was cancelled"}, "cancelled"))
        stream.end()
        double.server.drop(work)
        assert (await actor.settled()).ending is Ending.STOPPED


async def test_a_run_that_was_over_when_it_was_cancelled_is_finished(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        stream = double.server.run_of(work).stream
        stream.say_raw(event(stop_reason("end_turn")))
        stream.say_raw(event({"message": "Run was cancelled"}, "cancelled"))
        stream.end()
        assert (await actor.settled()).ending is Ending.FINISHED


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("", BackendLost, "before the run's end"),
        ("data: lorem ipsum\n\n", BackendMisbehaved, "no event: 'lorem"),
        ("data: 7\n\n", BackendMisbehaved, "no event: '7'"),
        (f"data: {'[' * 50_000}\n\n", BackendMisbehaved, "no event"),
    ],
    ids=["nothing", "garbage", "a number", "too deep"],
)
async def test_a_stream_that_makes_no_sense_is_told_to_stop(
    said: str, kind: type, text: str, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        stream = double.server.run_of(work).stream
        stream.say_raw(said)
        stream.end()
        settlement = await actor.settled()
        assert type(actor.error) is kind
        assert text in str(actor.error)
        assert settlement.ending is Ending.FAILED
        assert not settlement.gone
        assert len(work.told_at) == 1
        gc.collect()


@pytest.mark.parametrize(
    "frame",
    [
        {"message_type": "tool_call_message", "tool_call": None},
        {"message_type": "tool_call_message", "tool_calls": [7, {"name": None}]},
        {"message_type": "tool_return_message", "tool_returns": [None, 3]},
        {"message_type": "tool_return_message", "tool_return": {"deep": [1]}},
        {"message_type": "approval_request_message", "tool_call": "x"},
        {"message_type": "assistant_message", "content": [None, {"text": 7}]},
        {"message_type": "assistant_message"},
        {"message_type": "reasoning_message", "reasoning": 5},
        {"message_type": "usage_statistics", "prompt_tokens": "many"},
        {"message_type": ["odd"], "run_id": 9},
        {},
    ],
)
async def test_odd_frames_break_nothing(frame: Any, autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        double.server.run_of(work).stream.say_raw(event(frame))
        double.server.end(work)
        assert (await actor.settled()).ending is Ending.FINISHED


async def test_a_server_without_run_ids_is_heard_all_the_same(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        said = event({"message_type": "assistant_message", "content": "hi"})
        whole = said + event(stop_reason("end_turn"))
        headers = {"content-type": "text/event-stream"}
        double.server.instead["messages"] = httpx.Response(200, headers=headers, text=whole)
        actor = double.enter()
        assert (await actor.settled()).ending is Ending.FINISHED
        assert actor.events == [Text("hi")]


# Approvals.


async def ask_of(double: Double, actor: Actor, work: Work) -> Ask:
    double.server.ask(work)
    await wait_all_tasks_blocked()
    found = [one for one in actor.events if isinstance(one, Ask)]
    assert found
    return found[-1]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("approve", {"approve": True}),
        ("deny", {"approve": False}),
        ("use less sugar", {"approve": False, "reason": "use less sugar"}),
        (None, {"approve": False}),
    ],
)
async def test_an_approval_goes_on_in_another_run(
    reply: object, told: dict[str, object], autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        assert ask == Ask(ask.id, "approval", 'bake {"what": "a cake"}', ("approve", "deny"))
        assert actor.turn.answer(ask, reply)
        await wait_all_tasks_blocked()
        assert work.replies == [{"type": "approval", "tool_call_id": ask.id, **told}]
        # What is cancelled is the run that goes on.
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.STOPPED
    ((_, body),) = double.sent("cancel")
    assert body["run_ids"] == [double.server.run_of(work).id] != [work.name]


async def test_pieces_of_a_question_are_one_and_two_calls_are_two(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        run = double.server.run_of(work)
        for call_id, name, piece in (
            ("call-1", "bake", '{"a"'),
            (None, None, ": 1}"),
            ("call-2", "eat", "{}"),
        ):
            call = {"tool_call_id": call_id, "name": name, "arguments": piece}
            run.say("approval_request_message", tool_call=call, tool_calls=call)
        run.end("requires_approval")
        for number in (1, 2):
            await wait_all_tasks_blocked()
            asks = [one for one in actor.events if isinstance(one, Ask)]
            assert len(asks) == number
            assert actor.turn.answer(asks[-1], "approve")
        await wait_all_tasks_blocked()
        assert [ask.text for ask in asks] == ['bake {"a": 1}', "eat {}"]
        replies: list[Any] = work.replies
        assert [one["tool_call_id"] for one in replies] == ["call-1", "call-2"]
        double.server.end(work)
        assert (await actor.settled()).ending is Ending.FINISHED


async def test_a_stop_denies_what_is_asked_and_cancels_the_run_that_this_begins(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        actor.turn.stop()
        settlement = await actor.settled()
        assert settlement.ending is Ending.STOPPED
        assert work.replies == [{"type": "approval", "tool_call_id": ask.id, "approve": False}]
        assert len(work.told_at) == 1
        second, its = double.enter(), await double.work(1)
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED


async def test_a_stop_waits_for_the_run_that_the_denial_begins(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        await ask_of(double, actor, work)
        double.server.approvals_wait_for = trio.Event()
        actor.turn.stop()
        await trio.sleep(1.0)
        assert (len(work.replies), work.told_at) == (1, [])
        double.server.approvals_wait_for.set()
        assert (await actor.settled()).ending is Ending.STOPPED
        assert len(work.told_at) == 1


async def test_each_question_is_asked_once(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        for number in (1, 2):
            assert actor.turn.answer(await ask_of(double, actor, work), "approve")
            await wait_all_tasks_blocked()
            assert len(work.replies) == number
        double.server.end(work)
        await actor.settled()
    assert len([one for one in actor.events if isinstance(one, Ask)]) == 2


async def test_an_answer_that_is_lost_fails_the_turn_at_once(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        double.server.instead["messages"] = httpx.ReadError("reset")
        actor.turn.answer(ask, "approve")
        answered = trio.current_time()
        settlement = await actor.settled()
        assert settlement.ending is Ending.FAILED
        assert not settlement.gone
        assert settlement.settled_at == answered
        assert [type(one) for one in settlement.errors] == [BackendLost, BackendLost]


async def test_a_denial_that_is_lost_settles_the_stop_at_once(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        await ask_of(double, actor, work)
        double.server.instead["messages"] = httpx.ReadError("reset")
        actor.turn.stop()
        settlement = await actor.settled()
    assert settlement.ending is Ending.UNCONFIRMED
    assert settlement.settled_at == settlement.asked_at


async def test_a_question_that_crosses_the_stop_is_denied_by_the_next_turn(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        double.server.cancels = "ignored"
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        await trio.sleep(0.5)
        double.server.ask(work)
        settlement = await actor.settled()
        assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.EVENT)
        assert not work.replies
        assert len(work.told_at) == 1
        second, its = double.enter(text="second"), await double.work(1)
        assert its.session == work.session
        number = f"call-{work.name.removeprefix('run-')}"
        assert work.replies == [{"type": "approval", "tool_call_id": number, "approve": False}]
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED
        third, last = double.enter(), await double.work(2)
        double.server.end(last)
        await third.settled()
    assert [len(body["messages"]) for _, body in double.sent("messages")] == [1, 2, 1]


async def test_a_question_that_was_left_is_denied_in_the_fork_of_its_conversation(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        double.server.cancels = "ignored"
        actor, work = double.enter(), await double.work()
        actor.turn.stop()
        await trio.sleep(0.5)
        double.server.ask(work)
        await actor.settled()
        double.server.instead["messages"] = httpx.ReadError("reset")
        await double.enter().settled()
        del double.server.instead["messages"]
        double.enter()
        its = await double.work(1)
        assert its.session != work.session
        assert its.runs
        assert len(work.replies) == 1
    assert [len(body["messages"]) for _, body in double.sent("messages")] == [1, 2, 2]


async def ask_two(double: Double, actor: Actor, work: Work) -> Ask:
    """Have two tool calls wait; the first one's question."""
    run = double.server.run_of(work)
    for number in ("call-1", "call-2"):
        call = {"tool_call_id": number, "name": "bake", "arguments": "{}"}
        run.say("approval_request_message", tool_call=call, tool_calls=call)
    run.end("requires_approval")
    await wait_all_tasks_blocked()
    (ask,) = (one for one in actor.events if isinstance(one, Ask))
    return ask


def denials(*numbers: str) -> list[dict[str, Any]]:
    return [{"type": "approval", "tool_call_id": one, "approve": False} for one in numbers]


async def test_what_was_approved_and_had_not_left_is_denied_by_a_stop(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        assert actor.turn.answer(await ask_two(double, actor, work), "approve")
        await wait_all_tasks_blocked()
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.STOPPED
        assert work.replies == denials("call-1", "call-2")


@pytest.mark.parametrize("passes", [0, 1])
async def test_a_stop_in_the_steps_of_an_approval_denies(
    passes: int, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        # In which order Trio runs the tasks of a pass is luck.
        for number in range(8):
            actor, work = double.enter(), await double.work(number)
            ask = await ask_of(double, actor, work)
            assert actor.turn.answer(ask, "approve")
            for _ in range(passes):
                await trio.lowlevel.checkpoint()
            actor.turn.stop()
            assert (await actor.settled()).ending is Ending.STOPPED
            assert work.replies == denials(ask.id)


@pytest.mark.parametrize("seen", ["before it left", "when it had left", "by nobody"])
async def test_an_approval_that_is_on_its_way_is_taken_back_while_it_is_seen_to_be_here(
    seen: str, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        handle = double.server.handle_async_request

        async def slow(request: httpx.Request) -> httpx.Response:
            approves = b'"approval"' in request.content
            if seen == "by nobody":
                request.extensions.pop("trace", None)
            if approves and seen == "before it left":
                await trio.sleep(1.0)
            answer = await handle(request)
            if approves and seen != "before it left":
                await trio.sleep(1.0)
            return answer

        double.server.handle_async_request = slow  # type: ignore[method-assign]
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        assert actor.turn.answer(ask, "approve")
        await trio.sleep(0.5)
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.STOPPED
        told = [body["messages"][0]["approvals"] for _, body in double.sent("messages")[1:]]
        approved = [{"type": "approval", "tool_call_id": ask.id, "approve": True}]
        assert told == [denials(ask.id) if seen == "before it left" else approved]
        assert len(work.told_at) == 1
        assert not work.runs


async def test_an_approval_that_leaves_in_the_step_of_the_stop_is_not_called_denied(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        handle = double.server.handle_async_request

        async def busy(request: httpx.Request) -> httpx.Response:
            with trio.CancelScope(shield=b'"approval"' in request.content):
                await trio.sleep(0.1)
                answer = await handle(request)
            await trio.lowlevel.checkpoint()
            return answer

        double.server.handle_async_request = busy  # type: ignore[method-assign]
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        assert actor.turn.answer(ask, "approve")
        await trio.sleep(0.05)
        actor.turn.stop()
        settlement = await actor.settled()
        assert work.runs
        assert (settlement.ending, settlement.gone) == (Ending.UNCONFIRMED, False)
        assert "an approval left" in str(settlement.errors)
        double.server.handle_async_request = handle  # type: ignore[method-assign]
        second, its = double.enter(), await double.work(1)
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED


UNREACHED = pytest.mark.parametrize(
    ("instead", "gone"),
    [
        (httpx.ConnectError("refused"), True),
        (httpx.Response(401, json={"detail": "no"}), True),
        (httpx.ReadError("reset"), False),
        (httpx.Response(503, json={"detail": "no database"}), False),
    ],
    ids=["nobody listens", "the key is wrong", "the connection breaks", "the server is ill"],
)


@UNREACHED
@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("conversations", [True, False])
async def test_a_question_whose_answer_did_not_arrive_is_denied_by_the_next_turn(
    instead: Any, gone: bool, stops: bool, conversations: bool, autojump_clock: MockClock
) -> None:
    async with open_double(agent_of, conversations=conversations) as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        double.server.instead["messages"] = instead
        if stops:
            actor.turn.stop()
        else:
            actor.turn.answer(ask, "approve")
        settlement = await actor.settled()
        assert settlement.gone is gone
        assert settlement.errors
        if gone:
            (error,) = settlement.errors
            assert "was not answered" in str(error)
        stopped = Ending.STOPPED if gone else Ending.UNCONFIRMED
        assert settlement.ending is (stopped if stops else Ending.FAILED)
        assert not work.replies
        # The first one does not get there either.
        await double.enter().settled()
        del double.server.instead["messages"]
        for number, denied in ((1, denials(ask.id)), (2, None)):
            second, its = double.enter(), await double.work(number)
            assert its.runs
            double.server.end(its)
            assert (await second.settled()).ending is Ending.FINISHED
            said = double.sent("messages")[-1][1]["messages"]
            assert said[0].get("approvals") == denied
        assert work.replies == denials(ask.id)


async def test_a_denial_of_which_nothing_is_heard_is_said_again_and_does_no_harm(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        double.server.approvals_wait_for = trio.Event()
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.UNCONFIRMED
        for number, denied in ((1, denials(ask.id)), (2, None)):
            second, its = double.enter(), await double.work(number)
            double.server.end(its)
            assert (await second.settled()).ending is Ending.FINISHED
            said = double.sent("messages")[-1][1]["messages"]
            assert said[0].get("approvals") == denied


async def test_a_denial_whose_run_is_cancelled_before_it_says_anything_is_said_again(
    autojump_clock: MockClock,
) -> None:
    """A server that looks for the cancel first has not written the answer down."""
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        actor.turn.stop()
        assert (await actor.settled()).ending is Ending.STOPPED
        double.enter()
        await double.work(1)
        assert double.sent("messages")[-1][1]["messages"][0]["approvals"] == denials(ask.id)


async def test_a_history_that_is_new_is_not_told_of_questions(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        await ask_of(double, actor, work)
        double.server.instead["messages"] = httpx.ReadError("reset")
        actor.turn.stop()
        await actor.settled()
        del double.server.instead["messages"]
        double.server.instead["fork"] = httpx.Response(404, json={"detail": "Not Found"})
        second, its = double.enter(), await double.work(1)
        double.server.end(its)
        assert (await second.settled()).ending is Ending.FINISHED
    assert [len(body["messages"]) for _, body in double.sent("messages")] == [1, 1, 1]


async def test_a_run_that_asks_again_after_the_stop_is_not_answered(
    autojump_clock: MockClock,
) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        gate = double.server.approvals_wait_for = trio.Event()
        actor.turn.stop()
        await wait_all_tasks_blocked()
        # All of the run that the denial begins comes in one chunk.
        double.server.ask(work)
        gate.set()
        settlement = await actor.settled()
        assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.EVENT)
        assert work.replies == denials(ask.id)


@pytest.mark.parametrize("forks", [False, True])
async def test_a_start_that_is_refused_leaves_no_conversation(
    forks: bool, autojump_clock: MockClock
) -> None:
    async with open_double() as double:
        if forks:
            double.server.cancels = "held"
            actor, _ = double.enter(), await double.work()
            actor.turn.stop()
            await actor.settled()
        before = {*double.server._conversations}
        double.server.refuses = True
        for _ in range(2):
            actor = double.enter()
            await actor.settled()
            assert isinstance(actor.error, BackendRefused)
        await wait_all_tasks_blocked()
        assert {*double.server._conversations} == before
        assert len(before) == forks


async def test_an_answer_that_is_refused_ends_the_turn(autojump_clock: MockClock) -> None:
    async with open_double() as double:
        actor, work = double.enter(), await double.work()
        ask = await ask_of(double, actor, work)
        double.server.instead["messages"] = httpx.Response(400, json={"detail": "answered before"})
        actor.turn.answer(ask, "approve")
        settlement = await actor.settled()
    assert settlement.ending is Ending.FAILED
    assert settlement.gone
    assert "answered before" in str(actor.error)


async def test_a_question_left_by_somebody_else_fails_the_turn(autojump_clock: MockClock) -> None:
    async with open_double(agent_of, conversations=False) as double:
        actor, work = double.enter(), await double.work()
        double.server.run_of(work).reason = "requires_approval"
        double.server.run_of(work).stream.break_off()
        await actor.settled()
        double.server.locks = False
        await double.rooms.retire("kitchen")
        second = double.enter()
        assert (await second.settled()).ending is Ending.FAILED
    assert "waiting for approval" in str(second.error)


# Opening.


@pytest.mark.parametrize(
    ("instead", "kind", "text"),
    [
        (httpx.ConnectError("refused"), BackendRefused, "start the Letta server"),
        (httpx.ConnectTimeout("slow"), BackendRefused, "start the Letta server"),
        (httpx.Response(401, json={}), BackendRefused, "api_key"),
        (httpx.Response(403, text="not you"), BackendRefused, "not you"),
        (httpx.Response(404, text="not here"), BackendMisbehaved, "no Letta server.* as /v1"),
        (httpx.Response(500, text="oh"), BackendMisbehaved, "HTTP 500"),
        (httpx.Response(200, text="<html>"), BackendMisbehaved, "no Letta server"),
        (httpx.Response(200, json={"status": "ok"}), BackendMisbehaved, "no Letta server"),
        (httpx.ReadError("reset"), BackendLost, "broke"),
    ],
)
async def test_what_answers_must_be_a_letta_server(instead: Any, kind: type, text: str) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingLetta(nursery)
        server.instead["health"] = instead
        with pytest.raises(kind, match=text):
            async with open_letta(URL, agent_id=AGENT, transport=server):
                raise AssertionError("it was opened")
    assert len(server.calls) == 1


@pytest.mark.parametrize("url", ["", "localhost:8283", "ftp://localhost"])
async def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BackendRefused, match=r"is no address: write it as http://"):
        async with open_letta(url, agent_id=AGENT):
            raise AssertionError("it was opened")


@pytest.mark.parametrize("agent_id", [None, 7, ["agent-1"]])
async def test_an_agent_that_is_none_is_a_mistake(agent_id: Any) -> None:
    with pytest.raises(TypeError, match="an agent's id, or an async function"):
        async with open_letta(URL, agent_id=agent_id, transport=httpx.MockTransport(fine)):
            raise AssertionError("it was opened")


async def no_agent(room: str) -> None:
    pass


@pytest.mark.parametrize("agent_id", [str.upper, no_agent])
async def test_a_function_that_names_no_agent_is_a_mistake(
    agent_id: Any, autojump_clock: MockClock
) -> None:
    async with open_double(agent_id) as double:
        with pytest.raises(TypeError, match=r"async function .* for 'kitchen' it does not"):
            async with double.rooms.turn("kitchen", "bake") as turn:
                async for _ in turn:
                    pass


@pytest.mark.parametrize("found", ["1.6.5", "1.7.0", "0.1.9", "2.0.0"])
async def test_another_sdk_is_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    with pytest.raises(ImportError, match=rf"letta-client {found} .*>=1\.7\.1,<2.*\[letta\]"):
        async with open_letta(URL, agent_id=AGENT, transport=httpx.MockTransport(fine)):
            raise AssertionError("it was opened")


def fine(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"version": "0.16.8", "status": "ok"})


def test_a_missing_sdk_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.delitem(sys.modules, adapter.__name__)
    with pytest.raises(ImportError, match=r"needs letta-client: .*turnstop\[letta\]"):
        importlib.import_module(adapter.__name__)


@pytest.mark.parametrize("found", ["1.7.1", "1.12.1"])
async def test_the_floor_itself_will_do(
    found: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    async with open_double():
        pass


async def test_the_first_call_asks_no_thread_for_the_platform(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    def never() -> str:
        raise AssertionError("it was asked")

    monkeypatch.setattr("letta_client._base_client.get_platform", never)
    async with open_double():
        pass


async def test_no_request_is_sent_on_a_connection_that_was_used() -> None:
    connections: list[bytes] = []
    body = b'{"version": "0.16.8", "status": "ok"}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

    async def serve(stream: trio.SocketStream) -> None:
        connections.append(await stream.receive_some())
        await stream.send_all(head % len(body) + body)
        # What answered 500 would reset the connection under this one.
        rest = b"".join([chunk async for chunk in stream])
        assert b"HTTP/1.1" not in rest

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            async with open_letta(url, agent_id=AGENT) as backend:
                with pytest.raises(BackendMisbehaved, match="its id"):
                    await backend.start(Request("kitchen", "1", "bake"))
            nursery.cancel_scope.cancel()
    assert [one.split()[1] for one in connections] == [
        b"/v1/health/",
        b"/v1/conversations/?agent_id=agent-1",
    ]


def test_a_session_says_where_it_is() -> None:
    assert str(LettaSession("agent-1")) == "agent-1, its own history"
    assert str(LettaSession("agent-1", "conv-2")) == "agent-1, conv-2"


async def test_a_server_that_is_closed_under_its_turn_ends_it(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingLetta(nursery)
        async with open_letta(URL, agent_id=AGENT, transport=server) as backend:
            remote = await backend.start(Request("kitchen", "1", "bake"))
        with pytest.raises(BackendLost, match="open it around its rooms"):
            await remote.follow(lambda one: None)  # type: ignore[arg-type]
