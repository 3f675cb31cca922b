"""The Claude adapter against processes in memory that speak as the real one was seen to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from reading import Reader, follow, request
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import BackendLost, BackendMisbehaved, BackendRefused
from turnstop.abc import End, How, Silenced
from turnstop.adapters.claude import open_claude
from turnstop.adapters.claude._asks import to_answer, to_ask
from turnstop.adapters.claude._events import Translator
from turnstop.adapters.claude._left import BackgroundTask
from turnstop.adapters.claude._program import Settings, mark_of
from turnstop.adapters.claude._wire import StreamJson
from turnstop.events import Ask, Event, Other, Text, Thought, ToolCall, Usage
from turnstop.testing import Work
from turnstop.testing.recording.claude import Cli, RecordingClaude, open_recorded
from turnstop.transports.dialect import Incoming, Reply, Said

Frame = dict[str, Any]


@asynccontextmanager
async def claude(**how: Any) -> AsyncGenerator[tuple[Any, RecordingClaude], None]:
    far_end = RecordingClaude(**how)
    async with open_recorded(far_end) as backend:
        yield backend, far_end


async def begun(far_end: RecordingClaude, number: int = 0) -> Work:
    """The work, once it has begun; and a little later, so that its beginning was heard."""
    with trio.fail_after(60.0):
        while not [one for one in far_end.works[number:] if one.runs]:  # noqa: ASYNC110
            await trio.sleep(0.001)
    await wait_all_tasks_blocked()
    return far_end.works[number]


def told(far_end: RecordingClaude, subtype: str) -> list[Frame]:
    """What Claude was told of this kind."""
    frames = [one.body for one in far_end.wire if one.direction == "->"]
    requests = [one["request"] for one in frames if one["type"] == "control_request"]
    if subtype == "user":
        return [one for one in frames if one["type"] == "user"]
    return [one for one in requests if one["subtype"] == subtype]


# Beginning.


async def test_a_message_has_a_name_and_begins_a_turn(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request(content="hello"))
        work = await begun(far_end)
        (message,) = told(far_end, "user")
        assert message["message"] == {"role": "user", "content": "hello"}
        assert message["uuid"] == work.name
        assert str(turn.session) == work.session


async def test_content_may_be_blocks(autojump_clock: MockClock) -> None:
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "source": {}}]
    async with claude() as (backend, far_end):
        await backend.start(request(content=blocks))
        await begun(far_end)
        assert told(far_end, "user")[0]["message"]["content"] == blocks


async def test_the_next_turn_goes_on_in_the_same_process(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        await far_end.finish(await begun(far_end))
        assert (await follow(first)).how is How.COMPLETED
        second = await backend.start(request(first.session))
        assert second.session is first.session
        assert len(far_end.processes) == 1


async def test_a_lost_process_is_begun_anew_and_resumes(autojump_clock: MockClock) -> None:
    """F6."""
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        await far_end.finish(await begun(far_end))
        await follow(first)
        far_end.die()
        await wait_all_tasks_blocked()
        await backend.start(request(first.session))
        assert [cli.session for cli in far_end.processes] == [str(first.session)] * 2


async def test_a_conversation_that_was_cleared_is_not_resumed(autojump_clock: MockClock) -> None:
    """A command such as /clear ends the conversation, and goes on in another."""
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        await far_end.finish(await begun(far_end))
        await follow(first)
        old = str(first.session)
        cleared = await backend.start(request(first.session, content="/clear"))
        await far_end.clear(await begun(far_end, 1))
        await follow(cleared)
        far_end.die()
        await wait_all_tasks_blocked()
        await backend.start(request(cleared.session))
        new = far_end.processes[0].session
        assert [cli.session for cli in far_end.processes] == [new, new] != [old, old]
        # What its processes carry stays, for what the first one has started is still the room's.
        assert cleared.session.mark == old


async def test_one_that_was_lost_before_its_first_end_begins_anew(
    autojump_clock: MockClock,
) -> None:
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        await begun(far_end)
        far_end.die()
        with pytest.raises(BackendLost):
            await follow(first)
        # It knows no conversation with this id: that is no reason to be refused.
        second = await backend.start(request(first.session))
        await far_end.finish(await begun(far_end, 1))
        assert (await follow(second)).how is How.COMPLETED


async def test_one_whose_first_message_never_began_begins_anew(autojump_clock: MockClock) -> None:
    """Claude has written nothing down, and so there is nothing to resume."""
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        with trio.fail_after(1.0):
            end, _ = await stop(first)
        assert end.how is How.CANCELLED
        assert far_end.works[0].began_at is None
        far_end.die()
        await wait_all_tasks_blocked()
        await backend.start(request(first.session))
        await begun(far_end, 1)
        assert [cli.session for cli in far_end.processes] == [str(first.session)] * 2


@pytest.mark.parametrize("content", [17, b"hi", [{"type": "image", "source": b"PNG"}]])
async def test_content_that_cannot_be_sent_is_refused_and_leaves_nothing(
    content: object, autojump_clock: MockClock
) -> None:
    async with claude() as (backend, far_end):
        with pytest.raises(BackendRefused, match="content"):
            await backend.start(request(content=content))
        assert far_end.processes == []


async def test_a_conversation_that_is_no_more_is_refused_with_the_way_out() -> None:
    async with claude() as (backend, _):
        with pytest.raises(BackendRefused, match=r"No conversation found.*retire the room"):
            await backend.start(request("an id that was kept"))


async def test_a_plain_id_is_resumed(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        far_end.on_disk.add("kept")
        turn = await backend.start(request("kept"))
        assert (await begun(far_end)).session == "kept" == str(turn.session)


async def test_after_an_unconfirmed_turn_everything_is_fresh(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        await begun(far_end)
        second = await backend.start(request(first.session, previous=object()))
        assert str(second.session) != str(first.session)
        # Nobody will continue the old one: what it works on is ended.
        assert not far_end.works[0].runs


async def test_a_start_that_is_cancelled_leaves_no_process(autojump_clock: MockClock) -> None:
    class Slow(RecordingClaude):
        def _hear(self, cli: Cli, frame: Frame) -> None:
            pass

    far_end = Slow()
    async with open_recorded(far_end) as backend:
        with trio.move_on_after(1.0):
            await backend.start(request())
        await wait_all_tasks_blocked()
        assert [cli.ended for cli in far_end.processes] == [True]


async def test_a_room_that_is_forgotten_has_no_process(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        await far_end.finish(await begun(far_end))
        await follow(turn)
        await backend.forget(turn.session)
        assert far_end.live == []
        await backend.forget("never seen")


# Ends.


async def test_only_its_own_result_ends_a_turn(autojump_clock: MockClock) -> None:
    """F7: what tells the end of an earlier turn, or of one that nobody asked for, does not."""
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        cli = far_end.processes[0]
        cli.result("another", "aborted_streaming")
        cli.result(None, "completed")
        cli.lifecycle("another", "cancelled")
        await far_end.finish(await begun(far_end))
        assert (await follow(turn)).how is How.COMPLETED


@pytest.mark.parametrize(
    ("state", "how"),
    [
        ("cancelled", How.CANCELLED),
        ("discarded", How.CANCELLED),
        ("refused", How.FAILED),
        ("completed", How.COMPLETED),
    ],
)
async def test_a_message_that_becomes_no_turn_has_an_end(
    state: str, how: How, autojump_clock: MockClock
) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        await wait_all_tasks_blocked()
        far_end.processes[0].lifecycle(far_end.works[0].name, state)
        assert (await follow(turn)).how is how


async def test_a_failure_tells_its_words_and_no_text(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader()
        await far_end.fail(await begun(far_end))
        end = await follow(turn, reader)
        assert (end.how, end.detail) == (How.FAILED, "API Error: no flour left")
        assert reader.of(Text) == []


async def test_late_words_of_an_earlier_turn_are_not_this_ones(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        first = await backend.start(request())
        work = await begun(far_end)
        await far_end.finish(work)
        await follow(first)
        second, reader = await backend.start(request(first.session)), Reader()
        await far_end.answer(work, "late before it began")
        mine = await begun(far_end, 1)
        await far_end.answer(work, "late")
        await far_end.answer(mine, "mine")
        await far_end.finish(mine)
        await follow(second, reader)
        assert reader.of(Text) == [Text("mine")]


# Stops.


async def stop(turn: Any) -> tuple[End, list[float]]:
    sent: list[float] = []
    ends: list[End] = []

    async def listen() -> None:
        ends.append(await follow(turn))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await turn.cancel(lambda: sent.append(trio.current_time()))
    return ends[0], sent


async def test_an_interrupt_is_told_once_and_read_to_the_end(autojump_clock: MockClock) -> None:
    """C01: it is written at once, and the turn is followed to its own end."""
    async with claude() as (backend, far_end):
        far_end.end_late(0.5)
        turn = await backend.start(request())
        work = await begun(far_end)
        asked = trio.current_time()
        end, sent = await stop(turn)
        assert end.how is How.CANCELLED
        assert sent == [asked]
        assert work.ended_at == trio.current_time() == asked + 0.5
        assert told(far_end, "interrupt") == [{"subtype": "interrupt", "cancel_queued": True}]


async def test_a_message_that_has_not_begun_is_cancelled(autojump_clock: MockClock) -> None:
    """C26, of a Claude that can: there is no result, and nothing ever began."""
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        end, _ = await stop(turn)
        assert end.how is How.CANCELLED
        await trio.sleep(1.0)
        assert far_end.works[0].began_at is None
        assert len(told(far_end, "interrupt")) == 1


async def test_an_old_claude_is_told_again_once_the_turn_has_begun(
    autojump_clock: MockClock,
) -> None:
    """C26: an interrupt before `init` is acknowledged and lost."""
    async with claude(old=True) as (backend, far_end):
        turn = await backend.start(request())
        end, sent = await stop(turn)
        assert end.how is How.CANCELLED
        assert len(sent) == 1
        assert len(told(far_end, "interrupt")) == 2
        assert not far_end.works[0].runs
        assert turn.session.lifecycle is False


async def test_an_old_claude_is_told_once_where_the_turn_has_begun(
    autojump_clock: MockClock,
) -> None:
    async with claude(old=True) as (backend, far_end):
        turn = await backend.start(request())
        await begun(far_end)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn)
            await wait_all_tasks_blocked()
            await turn.cancel(lambda: None)
        await trio.sleep(5.0)
        assert len(told(far_end, "interrupt")) == 1


async def test_an_old_claude_whose_turn_is_over_is_not_told_again(
    autojump_clock: MockClock,
) -> None:
    async with claude(old=True) as (backend, far_end):
        turn = await backend.start(request())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn)
            nursery.start_soon(turn.cancel, lambda: None)
            await far_end.finish(await begun(far_end))
        assert len(told(far_end, "interrupt")) == 1


async def test_a_refused_interrupt_says_so(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        far_end.refuse_cancels()
        turn = await backend.start(request())
        await begun(far_end)
        with pytest.raises(BackendMisbehaved, match="it cannot be interrupted"):
            await turn.cancel(lambda: None)


async def test_a_kill_ends_this_rooms_process_only(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        one = await backend.start(request())
        other = await backend.start(request())
        await begun(far_end, 1)
        await one.kill()
        assert [cli.ended for cli in far_end.processes] == [True, False]
        assert [cli.hastened for cli in far_end.processes] == [True, False]
        with pytest.raises(BackendLost) as caught:
            await follow(one)
        assert caught.value.gone
        await far_end.finish(far_end.works[1])
        assert (await follow(other)).how is How.COMPLETED


async def test_a_kill_that_ends_nothing_says_so(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        await begun(far_end)
        far_end.cut()
        with pytest.raises(BackendLost) as caught:
            await turn.kill()
        assert not caught.value.gone


# Turns that nobody has asked for.


async def test_a_turn_that_nobody_asked_for_is_interrupted(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        work = await begun(far_end)
        await far_end.run_behind(work)
        await far_end.finish(work)
        await follow(turn)
        await far_end.end_tasks()
        await wait_all_tasks_blocked()
        # Nothing that waits is cancelled by it.
        assert told(far_end, "interrupt") == [{"subtype": "interrupt"}]
        # One that was lost is followed by another, as soon as the model has begun to answer.
        far_end.processes[0].piece({"type": "message_start", "message": {}}, "nobody", "m")
        far_end.processes[0].piece({"type": "message_stop"}, "nobody", "m")
        await wait_all_tasks_blocked()
        assert told(far_end, "interrupt") == [{"subtype": "interrupt"}] * 2
        again = await backend.start(request(turn.session))
        await far_end.finish(await begun(far_end, 1))
        assert (await follow(again)).how is How.COMPLETED


async def test_what_it_asks_for_nobody_is_denied(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        await far_end.finish(await begun(far_end))
        await follow(turn)
        cli = far_end.processes[0]
        asked: Frame = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
        cli.write("control_request", request_id="q", request=asked)
        cli.write("control_request", request_id="h", request={"subtype": "hook_callback"})
        await wait_all_tasks_blocked()
        answers = answers_of(far_end)
        assert answers["q"]["response"]["behavior"] == "deny"
        assert answers["q"]["response"]["interrupt"] is True
        assert answers["h"]["subtype"] == "error"


def answers_of(far_end: RecordingClaude) -> dict[str, Frame]:
    """What Claude's own requests were answered, by their ids."""
    frames = [one.body for one in far_end.wire if one.direction == "->"]
    answers = [one["response"] for one in frames if one["type"] == "control_response"]
    return {one["request_id"]: one for one in answers}


async def test_what_is_asked_before_the_turn_begins_is_denied(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader("allow")
        asked: Frame = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
        far_end.processes[0].write("control_request", request_id="q", request=asked)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn, reader)
            await far_end.finish(await begun(far_end))
        assert answers_of(far_end)["q"]["response"]["behavior"] == "deny"
        assert reader.of(Ask) == []


async def test_what_is_no_question_is_refused_in_a_turn_too(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn, reader)
            work = await begun(far_end)
            asked: Frame = {"subtype": "hook_callback"}
            far_end.processes[0].write("control_request", request_id="h", request=asked)
            await wait_all_tasks_blocked()
            await far_end.finish(work)
        assert "hook_callback" in answers_of(far_end)["h"]["error"]
        assert reader.of(Ask) == []


# What it leaves.


async def test_background_tasks_are_told_of_and_stopped(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        work = await begun(far_end)
        await far_end.run_behind(work)
        await far_end.set_to_work(work)
        await stop(turn)
        left = await turn.leftovers()
        # A sub-agent that does not run behind the turn ends with it.
        assert left == [BackgroundTask("b_1")]
        assert str(left[0]) == "background task b_1 (local_bash): wait"
        assert await turn.sweep(left) == []
        assert far_end.tasks == {}
        assert await turn.leftovers() == []


async def test_a_task_that_cannot_be_stopped_is_named(autojump_clock: MockClock) -> None:
    class Deaf(RecordingClaude):
        def _hear(self, cli: Cli, frame: Frame) -> None:
            if frame.get("request", {}).get("subtype") != "stop_task":
                super()._hear(cli, frame)

    far_end = Deaf()
    async with open_recorded(far_end) as backend:
        turn: Any = await backend.start(request())
        await far_end.run_behind(await begun(far_end))
        await stop(turn)
        left = await turn.leftovers()
        assert await turn.sweep(left) == left
        assert await turn.leftovers() == left
        # With its process, its tasks are gone.
        far_end.die()
        await wait_all_tasks_blocked()
        assert await turn.sweep(left) == []
        assert await turn.leftovers() == []


async def test_a_task_that_claude_does_not_know_has_ended(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn = await backend.start(request())
        work = await begun(far_end)
        await far_end.run_behind(work)
        await far_end.run_behind(work)
        await stop(turn)
        left = await turn.leftovers()
        del far_end.tasks["b_1"]
        assert await turn.sweep(left) == []
        assert far_end.tasks == {}


# Questions.


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("allow", {"behavior": "allow", "updatedInput": {"command": "touch a.txt"}}),
        ("deny", {"behavior": "deny", "message": "It was denied."}),
        ("later", {"behavior": "deny", "message": "later"}),
        ({"behavior": "allow", "updatedInput": {}}, {"behavior": "allow", "updatedInput": {}}),
    ],
)
async def test_a_permission_is_answered(
    reply: object, answer: Frame, autojump_clock: MockClock
) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader(reply)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn, reader)
            work = await begun(far_end)
            await far_end.want_permission(work)
            await wait_all_tasks_blocked()
            assert work.replies == [answer]
            await far_end.finish(work)
        (ask,) = reader.of(Ask)
        assert isinstance(ask, Ask)
        assert (ask.kind, ask.text, ask.choices) == ("approval", "touch a.txt", ("allow", "deny"))


async def test_a_question_has_its_options(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader("coffee")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn, reader)
            work = await begun(far_end)
            await far_end.want_permission(work, "AskUserQuestion")
            await wait_all_tasks_blocked()
            await far_end.finish(work)
        (ask,) = reader.of(Ask)
        assert isinstance(ask, Ask)
        assert (ask.kind, ask.text, ask.choices) == ("question", "Which?", ("tea", "coffee"))
        (told_reply,) = work.replies
        assert isinstance(told_reply, dict)
        assert told_reply["updatedInput"]["answers"] == {"Which?": "coffee"}


async def test_a_stop_takes_an_open_question_back(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader(Silenced())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, turn, reader)
            work = await begun(far_end)
            await far_end.want_permission(work)
        assert [one["behavior"] for one in work.replies if isinstance(one, dict)] == ["deny"]
        assert not work.runs


async def test_a_question_that_claude_withdraws_is_no_more(autojump_clock: MockClock) -> None:
    async with claude() as (backend, far_end):
        turn, reader = await backend.start(request()), Reader()
        ends: list[End] = []

        async def listen() -> None:
            ends.append(await follow(turn, reader))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            work = await begun(far_end)
            await far_end.want_permission(work)
            await reader.asked.wait()
            await turn.cancel(lambda: None)
        assert ends[0].how is How.CANCELLED


def incoming(method: str, params: Mapping[str, Any]) -> Incoming:
    return Incoming(method, dict(params), dict(params), lambda frame: None)


def test_several_questions_have_no_choices() -> None:
    questions = [{"question": one, "options": [{"label": "x"}]} for one in ("a?", "b?")]
    asked = incoming(
        "can_use_tool", {"tool_name": "AskUserQuestion", "input": {"questions": questions}}
    )
    ask = to_ask(asked)
    assert ask is not None
    assert (ask.text, ask.choices) == ("a?\nb?", ())
    answer = to_answer(asked, "whatever")
    assert answer["updatedInput"]["answers"] == {"a?": "whatever", "b?": "whatever"}


# Events.


def heard(frames: Sequence[Frame]) -> list[Event]:
    translator = Translator()
    lines = [incoming(str(frame.pop("method")), frame) for frame in frames]
    return [event for line in lines for event in translator.translate(line)]


def piece(kind: str, **event: Any) -> Frame:
    return {"method": "stream_event", "event": {"type": kind, **event}}


def whole(kind: str, block: Frame, **more: Any) -> Frame:
    return {"method": kind, "message": {"id": "m", "content": [block]}, **more}


def test_what_was_streamed_is_not_told_twice() -> None:
    events = heard(
        [
            piece("message_start", message={"id": "m"}),
            piece("content_block_delta", delta={"type": "thinking_delta", "thinking": "hm"}),
            piece("content_block_delta", delta={"type": "text_delta", "text": "hi"}),
            whole("assistant", {"type": "thinking", "thinking": "hm"}),
            whole("assistant", {"type": "text", "text": "hi"}),
        ]
    )
    assert [one for one in events if isinstance(one, Text | Thought)] == [Thought("hm"), Text("hi")]


def test_what_was_not_streamed_is_told() -> None:
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}]
    assert heard([whole("assistant", one) for one in blocks]) == [Thought("hm"), Text("hi")]


def test_what_a_sub_agent_says_is_not_the_answer_and_its_tools_are_told() -> None:
    sub = {"parent_tool_use_id": "toolu_1"}
    use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    assert heard(
        [
            whole("assistant", {"type": "text", "text": "hi"}, **sub),
            whole("user", {"type": "text", "text": "[turn] look"}, **sub),
            whole("assistant", use, **sub),
        ]
    ) == [Other("assistant/text"), Other("user/text"), ToolCall("t", "Bash", "started", "ls")]


@pytest.mark.parametrize(("is_error", "state"), [(True, "failed"), (None, "completed")])
def test_a_tool_has_a_beginning_and_an_end(is_error: bool | None, state: Any) -> None:
    use = {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a"}}
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": is_error}
    assert heard([whole("assistant", use), whole("user", result)]) == [
        ToolCall("t", "Read", "started", '{"path": "a"}'),
        ToolCall("t", "Read", state, "one\ntwo"),
    ]


def test_tokens_add_up_over_the_messages_of_a_turn() -> None:
    def message(number: str) -> list[Frame]:
        return [
            piece("message_start", message={"id": number, "usage": {"input_tokens": 10}}),
            # An interrupted message tells here once more what went in.
            piece("message_delta", delta={}, usage={"input_tokens": 10, "output_tokens": 5}),
        ]

    usages = [one for one in heard([*message("m"), *message("n")]) if isinstance(one, Usage)]
    assert usages == [Usage(10, 0), Usage(10, 5), Usage(20, 5), Usage(20, 10)]


@pytest.mark.parametrize(
    ("result", "usage"),
    [
        (
            {"model_usage_since_last_result": {"a": {"inputTokens": 3, "outputTokens": 4}}},
            Usage(3, 4),
        ),
        ({"usage": {"input_tokens": 1, "output_tokens": 2}}, Usage(1, 2)),
        # An interrupted turn's result says nothing: what the pieces told stands.
        ({"usage": {"input_tokens": 0}}, Usage(10, 0)),
    ],
)
def test_the_cost_of_a_turn_is_its_results(result: Frame, usage: Usage) -> None:
    translator = Translator()
    start = piece("message_start", message={"id": "m", "usage": {"input_tokens": 10}})
    list(translator.translate(incoming(str(start.pop("method")), start)))
    assert translator.total(incoming("result", result)) == usage


# How it is run.


def test_the_command_line_has_the_settings() -> None:
    settings = Settings(
        ("claude",),
        model="opus",
        permission_mode="plan",
        allowed_tools=("Read", "Bash(git log:*)"),
        disallowed_tools=("WebFetch",),
        setting_sources=("user", "project"),
        args=("--max-turns", "3"),
    )
    command = settings.to_command("S", False)
    assert command[0] == "claude"
    assert command[-2:] == ["--max-turns", "3"]
    assert {
        "--model=opus",
        "--permission-mode=plan",
        "--allowedTools=Read,Bash(git log:*)",
        "--disallowedTools=WebFetch,Monitor,ScheduleWakeup",
        "--setting-sources=user,project",
        "--session-id=S",
        "--permission-prompt-tool=stdio",
    } <= set(command)
    assert "--resume=S" in settings.to_command("S", True)
    assert "--session-id=S" not in settings.to_command("S", True)


def test_what_is_not_said_is_left_to_claude() -> None:
    command = Settings(("claude",), background=True).to_command("S", False)
    for name in ("model", "permission-mode", "allowedTools", "disallowedTools", "setting-sources"):
        assert not any(word.startswith(f"--{name}") for word in command)


def test_nothing_runs_behind_unless_it_is_wanted() -> None:
    env = Settings(("claude",)).to_env("S")
    assert env["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"
    assert "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS" not in Settings((), background=True).to_env("S")
    assert mark_of("S") in env.items()
    # Whoever runs this in a tool of Claude's must not be taken for one of its own.
    assert env["CLAUDECODE"] is None


def test_the_settings_tell_no_secret() -> None:
    assert "secret" not in repr(Settings(("claude",), env={"ANTHROPIC_API_KEY": "secret"}))


def test_the_given_environment_wins_but_for_the_mark() -> None:
    name, value = mark_of("S")
    env = Settings((), env={"CLAUDE_CODE_DISABLE_CRON": None, name: "mine"}).to_env("S")
    assert env["CLAUDE_CODE_DISABLE_CRON"] is None
    assert env[name] == value


async def test_an_empty_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="command is empty"):
        async with open_claude([]):
            pass


def test_importing_it_imports_no_sdk() -> None:
    code = (
        "import sys, turnstop.adapters.claude; print({'claude_agent_sdk', 'mcp'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"


# The wire.


@pytest.mark.parametrize(
    ("frame", "read"),
    [
        (
            {"type": "control_response", "response": {"request_id": "7", "response": {"a": 1}}},
            Reply(7, {"a": 1}),
        ),
        (
            {"type": "control_response", "response": {"request_id": "unasked"}},
            Reply("unasked", None),
        ),
        (
            {"type": "control_response", "response": {"request_id": "9" * 5000}},
            Reply("9" * 5000, None),
        ),
        ({"type": "keep_alive"}, Said("keep_alive", {"type": "keep_alive"})),
        (
            {"type": "result", "subtype": "success"},
            Said("result", {"type": "result", "subtype": "success"}),
        ),
        (
            {"type": "control_request", "request_id": "q", "request": {"subtype": "can_use_tool"}},
            Said("can_use_tool", {"subtype": "can_use_tool"}, "q"),
        ),
    ],
)
def test_lines_are_understood(frame: Frame, read: object) -> None:
    assert StreamJson().read(frame) == read


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"type": 3},
        {"type": "control_request", "request": {"subtype": "x"}},
        {"type": "control_response"},
        {"type": "control_response", "response": {"request_id": [1]}},
    ],
)
def test_what_is_no_line_of_it_is_told(frame: Frame) -> None:
    with pytest.raises(BackendMisbehaved):
        StreamJson().read(frame)
