"""The codex adapter against a recording app server that speaks as the real one was seen to."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from reading import Reader, follow, request
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import BackendError, BackendLost, BackendMisbehaved, BackendRefused, Ending, Proof
from turnstop.abc import End, How
from turnstop.adapters.codex import open_codex
from turnstop.adapters.codex._asks import decline
from turnstop.adapters.codex._open import _Backend, _Settings, _topic_of
from turnstop.adapters.codex._session import CodexSession
from turnstop.events import Ask, Text, Thought, ToolCall, Usage
from turnstop.testing.recording.codex import NO_TURN, AppServer
from turnstop.transports.dialect import JsonRpc
from turnstop.transports.jsonrpc import Connection, open_connection
from turnstop.transports.orphans import ProcessAddress, new_mark

Frame = dict[str, Any]


@attrs.define(eq=False)
class Once:
    """Stands for the restarting process: one connection, and it stays."""

    rpc: Connection
    broken: trio.Event = attrs.field(factory=trio.Event)
    address: ProcessAddress = attrs.field(factory=lambda: ProcessAddress.ahead(new_mark()))

    @property
    def process(self) -> "Once":
        return self

    @property
    def current(self) -> "Once":
        return self

    async def get(self) -> "Once":
        return self


def no_settings(**given: Any) -> _Settings:
    blank = {"cwd": None, "model": None, "sandbox": None, "approval": None, "tools": ()}
    return _Settings(**{**blank, **given})


@asynccontextmanager
async def codex(**settings: Any) -> AsyncGenerator[tuple[Any, AppServer], None]:
    server = AppServer()
    near = server.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        async with open_connection(
            near, near, topic_of=_topic_of, fallback=decline, dialect=JsonRpc(version=False)
        ) as rpc:
            backend: Any = _Backend(Once(rpc), no_settings(**settings))  # type: ignore[arg-type]
            yield backend, server
        nursery.cancel_scope.cancel()


async def test_a_turn_begins_in_a_fresh_thread_with_the_settings() -> None:
    tools = [{"type": "function", "name": "t"}]
    async with codex(cwd="/w", model="m", sandbox="read-only", approval="never", tools=tools) as (
        backend,
        server,
    ):
        turn = await backend.start(request())
        assert turn.session == "T1"
        assert server.params("thread/start") == [
            {
                "cwd": "/w",
                "model": "m",
                "sandbox": "read-only",
                "approvalPolicy": "never",
                "config": {"features.goals": False},
                "dynamicTools": tools,
            }
        ]
        assert server.params("turn/start") == [
            {"threadId": "T1", "input": [{"type": "text", "text": "hi"}]}
        ]


@pytest.mark.parametrize("content", [7, b"hi", [{"type": "image", "data": b"x"}]])
async def test_content_that_cannot_be_sent_is_refused_before_anything_begins(content: Any) -> None:
    async with codex() as (backend, server):
        with pytest.raises(BackendRefused, match="content"):
            await backend.start(request(content=content))
        assert server.methods() == []


async def test_content_may_be_codex_own_items() -> None:
    items = [{"type": "localImage", "path": "/a.png"}]
    async with codex() as (backend, server):
        await backend.start(request(content=items))
        assert server.params("turn/start")[0]["input"] == items


@pytest.mark.parametrize(
    ("status", "how"),
    [("completed", How.COMPLETED), ("interrupted", How.CANCELLED), ("failed", How.FAILED)],
)
async def test_the_status_of_its_own_completion_decides(status: str, how: How) -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await server.complete("U0", "failed")  # the end of another turn is not this one's
        error = {"message": "why", "additionalDetails": "the model said 500"}
        await server.complete("U1", status, error=error)
        assert await follow(turn) == End(how, detail="why: the model said 500")


async def test_an_end_that_cannot_be_one_is_misbehaviour() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await server.complete("U1", "inProgress")
        with pytest.raises(BackendMisbehaved, match="inProgress"):
            await follow(turn)


async def test_a_completion_of_nothing_is_misbehaviour() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await server.say("turn/completed", threadId="T1")
        with pytest.raises(BackendMisbehaved, match="completed a turn as None"):
            await follow(turn)


async def test_a_completion_that_names_no_turn_is_nobodys_end() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await server.say("turn/completed", threadId="T1", turn={"status": "interrupted"})
        with pytest.raises(BackendMisbehaved, match="did not tell which"):
            await follow(turn)


async def test_what_came_before_the_answer_of_the_start_is_heard() -> None:
    async with codex() as (backend, server):

        async def early(thread: str, turn: str) -> None:
            await server.text(turn, "early")
            await server.complete(turn, "completed")

        server.at_start = early
        reader = Reader()
        assert (await follow(await backend.start(request()), reader)).how is How.COMPLETED
        assert reader.of(Text) == [Text("early")]


async def test_the_last_frames_of_an_old_turn_are_not_the_next_ones() -> None:
    async with codex() as (backend, server):
        first = await backend.start(request())
        await server.complete("U1", "interrupted")
        await follow(first)
        second = await backend.start(request(session=first.session))
        await server.item("completed", "U1", type="commandExecution", id="c", status="failed")
        await server.text("U1", "late")
        await server.text("U2", "mine")
        await server.complete("U2", "completed")
        reader = Reader()
        await follow(second, reader)
        assert reader.of(Text, ToolCall) == [Text("mine")]


async def test_the_commands_of_earlier_turns_stay_known() -> None:
    async with codex() as (backend, server):
        session: Any = None
        for turn, call in (("U1", "c1"), ("U2", "c2")):
            remote = await backend.start(request(session=session))
            await server.item("started", turn, type="commandExecution", id=call, command="x")
            await server.complete(turn, "completed")
            await follow(remote)
            session = remote.session
        assert session.calls == {"c1", "c2"}
        # Also where the thread has to be looked at, and where the turn has not ended.
        other = CodexSession(session, None, agents=False, calls=session.calls)
        assert (await backend.start(request(session=other))).session.calls == {"c1", "c2"}


async def test_the_next_turn_continues_the_thread() -> None:
    async with codex() as (backend, server):
        first = await backend.start(request())
        await server.complete("U1", "completed")
        await follow(first)
        # Its end was seen: codex need not be asked whether it is idle.
        assert (await backend.start(request(session=first.session))).session == "T1"
        assert server.methods() == ["thread/start", "turn/start", "turn/start"]


@pytest.mark.parametrize("agents", [False, True])
async def test_a_thread_that_may_be_busy_is_looked_at(agents: bool) -> None:
    async with codex() as (backend, server):
        first = await backend.start(request())
        if agents:
            await spawn(server, "T1", "U1", "A1")
            await server.complete("U1", "completed")
            await follow(first)
            # Once a thread has had a sub-agent, it may be woken by it at any time.
            second = await backend.start(request(session=first.session))
            await server.complete("U2", "completed")
            await follow(second)
            await backend.start(request(session=second.session))
            assert server.methods().count("thread/read") == 2
        else:
            await server.complete("U1", "completed")
            await wait_all_tasks_blocked()
            await backend.start(request(session=first.session))
            assert server.methods().count("thread/read") == 1


async def test_a_thread_is_looked_at_after_a_restart() -> None:
    async with codex() as (backend, server), codex() as (restarted, fresh_server):
        turn = await backend.start(request())
        await server.complete("U1", "completed")
        await follow(turn)
        fresh_server.on_disk.add("T1")
        await restarted.start(request(session=turn.session))
        assert fresh_server.methods() == ["thread/read", "thread/resume", "turn/start"]


async def test_a_thread_that_is_not_loaded_is_resumed_with_the_settings() -> None:
    async with codex(model="m") as (backend, server):
        server.on_disk.add("T9")
        assert (await backend.start(request(session="T9"))).session == "T9"
        (resume,) = server.params("thread/resume")
        assert resume.pop("config") == {"features.goals": False}
        assert resume == {"threadId": "T9", "excludeTurns": True, "model": "m"}


async def test_a_thread_that_is_no_more_is_refused_with_the_way_out() -> None:
    async with codex() as (backend, server):
        with pytest.raises(BackendRefused, match=r"no rollout found.*retire the room"):
            await backend.start(request(session="T9"))
        assert "turn/start" not in server.methods()


async def test_a_busy_thread_is_refused_and_never_steered() -> None:
    async with codex() as (backend, server):
        busy = await backend.start(request())
        with pytest.raises(BackendRefused, match="busy"):
            await backend.start(request(session=busy.session))
        with pytest.raises(BackendRefused, match="busy"):
            await backend.start(request(session="T1"))
        assert len(server.params("turn/start")) == 1


async def test_after_an_unconfirmed_turn_the_thread_is_a_fresh_one() -> None:
    async with codex() as (backend, server):
        await backend.start(request())
        assert (await backend.start(request(session="T1", previous=object()))).session == "T2"
        assert "thread/read" not in server.methods()


async def test_a_refused_start_is_refused() -> None:
    async with codex() as (backend, server):
        server.refuse_start = "no credits"
        with pytest.raises(BackendRefused, match="no credits"):
            await backend.start(request())
        await server.ask(1, APPROVAL, turnId="U1")
        await wait_all_tasks_blocked()
        assert server.answers[1]["result"] == {"decision": "cancel"}


async def test_a_start_without_a_name_is_misbehaviour() -> None:
    async with codex() as (backend, server):
        server.nameless = True
        with pytest.raises(BackendMisbehaved, match="did not tell its id"):
            await backend.start(request())


async def test_an_interrupt_waits_for_the_turn_to_begin(autojump_clock: MockClock) -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        server.begins = False
        turn = await backend.start(request())
        nursery.start_soon(turn.cancel, lambda: None)
        nursery.start_soon(follow, turn)
        await trio.sleep(0.03)
        assert server.params("turn/interrupt") == []
        await server.begin("T1", "U1")
        await wait_all_tasks_blocked()
        assert server.params("turn/interrupt") == [{"threadId": "T1", "turnId": "U1"}]


async def test_an_interrupt_that_came_too_early_is_repeated_until_codex_takes_it(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server):
        server.begins = False
        turn = await backend.start(request())
        sent: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.cancel, lambda: sent.append(trio.current_time()))
            await trio.sleep(0.3)  # no sign comes: it is tried all the same
            server.started.add("U1")
            assert (await follow(turn)).how is How.CANCELLED
        told = server.params("turn/interrupt")
        assert len(told) > 2
        assert all(params == {"threadId": "T1", "turnId": "U1"} for params in told)
        assert len(sent) == 1


async def test_one_interrupt_is_accepted_and_no_other_follows(autojump_clock: MockClock) -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await turn.cancel(lambda: None)
        await trio.sleep(10)
        assert len(server.params("turn/interrupt")) == 1


async def test_an_interrupt_that_is_refused_for_another_reason_says_so() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())

        async def refuse(params: Frame) -> Frame:
            return {"error": {"code": -32600, "message": "thread not found: T1"}}

        server.handlers["turn/interrupt"] = refuse
        with pytest.raises(BackendMisbehaved, match="thread not found"):
            await turn.cancel(lambda: None)


async def give_up_a_start(backend: Any, server: AppServer) -> None:
    """It is cancelled after a second; its answer comes after five, and its turn begins later."""
    server.start_takes = 5.0
    server.begins = False
    with trio.move_on_after(1.0):
        await backend.start(request())


async def test_a_start_that_is_cancelled_undoes_the_turn_when_its_answer_comes(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server):
        await give_up_a_start(backend, server)
        await trio.sleep(4.5)
        await server.begin("T1", "U1")
        await trio.sleep(1.0)
        assert server.running == {}
        assert server.params("turn/interrupt")[0]["turnId"] == "U1"


async def test_a_late_turn_that_is_over_is_not_interrupted_for_long(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server):
        await give_up_a_start(backend, server)
        await trio.sleep(4.5)
        await server.complete("U1", "failed")
        await trio.sleep(60.0)
        assert len(server.params("turn/interrupt")) == 20
        assert len(server.params("thread/read")) == 1


async def test_a_late_turn_that_begins_late_is_still_interrupted(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server):
        await give_up_a_start(backend, server)
        await trio.sleep(8.0)
        await server.begin("T1", "U1")
        await trio.sleep(1.0)
        assert server.running == {}


async def test_a_codex_that_hangs_fails_the_start_and_the_late_turn_is_undone(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server):
        server.start_takes = 70.0
        with pytest.raises(BackendLost, match="not answered turn/start for 60 s") as caught:
            await backend.start(request())
        assert not caught.value.gone
        await trio.sleep(20)
        assert server.running == {}


async def test_the_events_are_everybodys() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        shell = {"type": "commandExecution", "id": "c1", "command": "ls"}
        await server.say("item/reasoning/textDelta", threadId="T1", turnId="U1", delta="hm")
        await server.item("started", "U1", **shell, status="inProgress")
        params = {"threadId": "T1", "turnId": "U1", "itemId": "c1", "delta": "a.txt"}
        await server.say("item/commandExecution/outputDelta", **params)
        await server.item("completed", "U1", **shell, status="failed", aggregatedOutput="a.txt")
        await server.text("U1", "do")
        await server.item("completed", "U1", type="agentMessage", id="m1", text="do")
        await server.item("completed", "U1", type="agentMessage", id="m2", text="ne")
        await server.complete("U1", "completed")
        reader = Reader()
        await follow(turn, reader)
        assert reader.of(Text, Thought, ToolCall) == [
            Thought("hm"),
            ToolCall("c1", "shell", "started", "ls"),
            ToolCall("c1", "shell", "running", "a.txt"),
            ToolCall("c1", "shell", "failed", "a.txt"),
            Text("do"),
            Text("ne"),
        ]
        assert all(event.raw is not None for event in reader.events)


def spent(total: int, last: int) -> Frame:
    def tokens(count: int) -> Frame:
        return {"inputTokens": count, "outputTokens": count // 10}

    return {"total": tokens(total), "last": tokens(last)}


async def test_the_usage_is_the_turns_and_not_the_threads() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        for total, last in ((150, 50), (180, 30), (180, 30)):
            usage = spent(total, last)
            await server.say("thread/tokenUsage/updated", threadId="T1", tokenUsage=usage)
        await server.complete("U1", "completed")
        reader = Reader()
        end = await follow(turn, reader)
        assert end.usage == Usage(80, 8)
        assert reader.of(Usage)[-1] == end.usage


async def test_the_usage_that_an_interrupt_repeats_is_not_counted() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        with trio.CancelScope() as scope:
            scope.cancel()
            await turn.cancel(lambda: None)
        usage = spent(150, 50)
        await server.say("thread/tokenUsage/updated", threadId="T1", tokenUsage=usage)
        await server.complete("U1", "interrupted")
        assert (await follow(turn)).usage is None


APPROVAL = "item/commandExecution/requestApproval"
PROPOSAL = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["rm"]}}
OFFERED = ["accept", PROPOSAL, "cancel"]
OUTPUT = {"contentItems": [{"type": "inputText", "text": "42"}], "success": True}


@pytest.mark.parametrize(
    ("method", "params", "reply", "answer"),
    [
        (APPROVAL, {"availableDecisions": OFFERED}, "accept", {"decision": "accept"}),
        (
            APPROVAL,
            {"availableDecisions": OFFERED},
            "acceptWithExecpolicyAmendment",
            {"decision": PROPOSAL},
        ),
        (APPROVAL, {"availableDecisions": OFFERED}, "whatever", {"decision": "decline"}),
        ("item/fileChange/requestApproval", {}, "accept", {"decision": "accept"}),
        ("item/tool/call", {"tool": "t", "arguments": {}}, "42", OUTPUT),
        ("item/tool/call", {"tool": "t", "arguments": {}}, {"success": False}, {"success": False}),
        (
            "item/permissions/requestApproval",
            {"permissions": {"network": {"enabled": True}}},
            "accept",
            {"permissions": {"network": {"enabled": True}}},
        ),
        ("item/permissions/requestApproval", {"permissions": {"x": 1}}, "no", {"permissions": {}}),
        (
            "item/tool/requestUserInput",
            {"questions": [{"id": "q", "question": "which?", "options": [{"label": "a"}]}]},
            "a",
            {"answers": {"q": {"answers": ["a"]}}},
        ),
        ("mcpServer/elicitation/request", {"message": "?"}, "decline", {"action": "decline"}),
    ],
)
async def test_a_person_is_asked_and_codex_gets_the_answer(
    method: str, params: Frame, reply: object, answer: Frame
) -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        turn = await backend.start(request())
        nursery.start_soon(follow, turn, Reader(reply))
        await server.ask(0, method, turnId="U1", **params)
        await wait_all_tasks_blocked()
        result = server.answers[0]["result"]
        assert {key: value for key, value in result.items() if value is not None} == answer
        await server.complete("U1", "completed")


async def test_the_choices_are_those_that_codex_offers() -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        reader = Reader("accept")
        nursery.start_soon(follow, await backend.start(request()), reader)
        params = {"turnId": "U1", "command": "rm x", "availableDecisions": OFFERED}
        await server.ask(7, APPROVAL, **params)
        await reader.asked.wait()
        choices = ("accept", "acceptWithExecpolicyAmendment", "cancel")
        assert reader.of(Ask) == [Ask("7", "approval", "rm x", choices)]
        await server.complete("U1", "completed")


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (APPROVAL, {"decision": "cancel"}),
        ("item/tool/requestUserInput", {"answers": {}}),
        ("mcpServer/elicitation/request", {"action": "cancel"}),
        ("item/permissions/requestApproval", {"permissions": {}}),
        (
            "item/tool/call",
            {"contentItems": [{"type": "inputText", "text": "cancelled"}], "success": False},
        ),
    ],
)
async def test_a_stopped_turn_answers_cancelled(method: str, answer: Frame) -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        turn = await backend.start(request())
        nursery.start_soon(follow, turn, Reader(turnstop.abc.Silenced("stopped")))
        await server.ask("q", method, turnId="U1")
        await wait_all_tasks_blocked()
        assert server.answers["q"]["result"] == answer
        await server.complete("U1", "interrupted")


async def test_an_unanswered_question_does_not_delay_the_end_and_is_cancelled() -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        turn = await backend.start(request())
        reader = Reader()
        nursery.start_soon(follow, turn, reader)
        await server.ask("q", APPROVAL, turnId="U1")
        await reader.asked.wait()
        await server.complete("U1", "completed")
        await wait_all_tasks_blocked()
        assert nursery.child_tasks == frozenset()
        assert server.answers["q"]["result"] == {"decision": "cancel"}


async def test_a_question_that_comes_after_the_end_is_cancelled() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await server.complete("U1", "interrupted")
        await follow(turn)
        await server.ask(1, APPROVAL, turnId="U1")
        await wait_all_tasks_blocked()
        assert server.answers[1]["result"] == {"decision": "cancel"}


async def test_a_question_that_codex_resolves_itself_is_withdrawn() -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        turn = await backend.start(request())
        reader = Reader()
        nursery.start_soon(follow, turn, reader)
        await server.ask("q", APPROVAL, turnId="U1")
        await reader.asked.wait()
        await server.say("serverRequest/resolved", threadId="T1", requestId="q")
        await wait_all_tasks_blocked()
        assert server.answers["q"]["result"] == {"decision": "cancel"}
        assert nursery.child_tasks
        await server.complete("U1", "completed")


async def test_what_nobody_serves_is_refused_and_what_no_turn_takes_is_cancelled() -> None:
    async with codex() as (_, server):
        await server.write({"method": "account/chatgptAuthTokens/refresh", "id": 1, "params": {}})
        await server.ask(2, APPROVAL, turnId="U0")
        await wait_all_tasks_blocked()
        assert "does not serve" in server.answers[1]["error"]["message"]
        assert server.answers[2]["result"] == {"decision": "cancel"}


async def test_a_strange_question_that_no_turn_takes_ends_nothing() -> None:
    async with codex() as (backend, server):
        questions = [{"id": "q", "options": ["yes", 1, None]}]
        await server.ask(1, "item/tool/requestUserInput", turnId="U0", questions=questions)
        await wait_all_tasks_blocked()
        assert server.answers[1]["result"] == {"answers": {}}
        assert await backend.start(request()) is not None


def agent(turn: str, root: str, status: str = "inProgress", parent: str | None = "T1") -> Frame:
    return {"parent": parent, "turn": {"id": turn, "rootTurnId": root, "status": status}}


async def test_the_sub_agents_that_still_work_for_the_turn_are_found_and_ended() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        server.agents = {
            "A1": agent("V1", "U1"),
            "A2": agent("V2", "U1", "completed"),
            "A3": agent("V3", "U0"),  # another turn's
            "A4": agent("V4", "U1"),
            "B1": agent("V5", "U1", parent=None),  # nobody's sub-agent
        }
        found = await turn.leftovers()
        assert [str(one) for one in found] == ["sub-agent A1: look", "sub-agent A4: look"]
        assert server.params("thread/list")[0]["ancestorThreadId"] == "T1"
        assert await turn.sweep(found) == []
        assert [(one["threadId"], one["turnId"]) for one in server.params("turn/interrupt")] == [
            ("A1", "V1"),
            ("A4", "V4"),
        ]


async def test_a_sub_agent_that_cannot_be_read_does_not_hide_the_others() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        server.agents = {"A1": agent("V1", "U1"), "A2": agent("V2", "U1")}
        told = server.handlers["thread/turns/list"]

        async def tell(params: Frame) -> Any:
            return {"error": NO_TURN} if params["threadId"] == "A1" else await told(params)

        server.handlers["thread/turns/list"] = tell
        assert [str(one) for one in await turn.leftovers()] == ["sub-agent A2: look"]


async def test_a_codex_that_is_gone_has_no_sub_agents() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        server.hang_up()
        rpc: Connection = backend._codex.rpc
        await rpc.broken.wait()
        rpc.declare_lost(lambda: BackendLost("codex exited", gone=True))
        assert await turn.leftovers() == []


async def test_a_sub_agent_that_goes_on_is_a_survivor(autojump_clock: MockClock) -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        server.agents = {"A1": agent("V1", "U1")}

        async def refuse(params: Frame) -> Frame:
            return {"error": NO_TURN}

        server.handlers["turn/interrupt"] = refuse
        found = await turn.leftovers()
        assert [str(one) for one in await turn.sweep(found)] == ["sub-agent A1: look"]


async def test_a_hung_codex_does_not_keep_the_commands_from_being_looked_for(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())

        async def silence(params: Frame) -> None:
            return None

        server.handlers["thread/list"] = silence
        left = await turn.leftovers()
        # It may have sub-agents at work: that there are none is not known.
        assert [str(one) for one in left] == ["unknown: codex has not told of its sub-agents"]
        assert await turn.sweep(left) == left


async def spawn(server: AppServer, thread: str, turn: str, agent: str) -> None:
    item = {"type": "collabAgentToolCall", "id": "s", "tool": "spawnAgent"}
    await server.item("completed", turn, thread, **item, receiverThreadIds=[agent])


async def test_a_sub_agents_question_is_asked_in_its_turn_and_its_talk_is_not_heard() -> None:
    async with codex() as (backend, server), trio.open_nursery() as nursery:
        turn = await backend.start(request())
        reader = Reader("accept")
        nursery.start_soon(follow, turn, reader)
        await spawn(server, "T1", "U1", "A1")
        await spawn(server, "A1", "V1", "A2")
        await server.text("V1", "psst", "A1")
        await server.complete("V1", "completed", "A1")
        frame = {"threadId": "A2", "turnId": "V2", "command": "ls"}
        await server.write({"method": APPROVAL, "id": 5, "params": frame})
        await wait_all_tasks_blocked()
        assert server.answers[5]["result"] == {"decision": "accept"}
        assert reader.of(Text) == []
        assert nursery.child_tasks
        await server.complete("U1", "completed")


async def test_a_lost_codex_is_told_to_its_turns() -> None:
    async with codex() as (backend, server):
        turn = await backend.start(request())
        await server.text("U1", "half")
        server.hang_up()
        rpc: Connection = backend._codex.rpc
        await rpc.broken.wait()
        rpc.declare_lost(lambda: BackendLost("codex exited", gone=True))
        reader = Reader()
        with pytest.raises(BackendLost, match="codex exited"):
            await follow(turn, reader)
        assert reader.of(Text) == [Text("half")]


async def test_a_retired_room_unloads_its_thread() -> None:
    async with codex() as (backend, server):
        await backend.forget("T1")
        assert server.params("thread/unsubscribe") == [{"threadId": "T1"}]


async def test_a_stop_through_the_rooms_sends_one_interrupt_and_ends() -> None:
    async with codex() as (backend, server), turnstop.open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", "hi") as turn:
            await wait_all_tasks_blocked()
            await server.text("U1", "half")
            async for event in turn:
                if isinstance(event, Text):
                    turn.stop()
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.proof) == (Ending.STOPPED, Proof.EVENT)
        assert len(server.params("turn/interrupt")) == 1


async def test_a_stop_before_the_start_has_answered_is_not_lost(autojump_clock: MockClock) -> None:
    async with codex() as (backend, server), turnstop.open_rooms(backend) as rooms:
        server.start_takes = 0.5
        async with rooms.turn("kitchen", "hi") as turn:
            await wait_all_tasks_blocked()
            turn.stop()
            await trio.sleep_forever()
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.STOPPED
        assert server.running == {}


async def test_a_deaf_codex_is_unconfirmed_in_time_and_the_next_thread_fresh(
    autojump_clock: MockClock,
) -> None:
    async with codex() as (backend, server), turnstop.open_rooms(backend) as rooms:
        server.deaf = True
        async with rooms.turn("kitchen", "hi") as turn:
            await wait_all_tasks_blocked()
            turn.stop()
            await trio.sleep_forever()
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.UNCONFIRMED
        async with rooms.turn("kitchen", "again"):
            await wait_all_tasks_blocked()
            assert server.params("turn/start")[-1]["threadId"] == "T2"
            await server.complete("U2", "completed", "T2")
            server.deaf = False


async def test_a_missing_program_is_one_line() -> None:
    with pytest.raises(BackendRefused, match="pip install openai-codex-cli-bin") as caught:
        async with open_codex("/no/such/codex"):
            raise AssertionError
    assert "\n" not in str(caught.value)


async def test_no_program_anywhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
    with pytest.raises(BackendRefused, match="codex is not installed; install it with: ") as caught:
        async with open_codex(env={"PATH": "/nowhere"}):
            raise AssertionError
    assert "\n" not in str(caught.value)


async def test_a_program_that_is_no_app_server_is_lost_with_its_words() -> None:
    code = "import sys; sys.exit('error: unrecognized subcommand')"
    with pytest.raises(BackendError, match="unrecognized subcommand"):
        async with open_codex([sys.executable, "-c", code]):
            raise AssertionError


async def test_an_empty_command_is_misuse() -> None:
    with pytest.raises(ValueError, match="command is empty"):
        async with open_codex([]):
            raise AssertionError


def test_importing_it_needs_no_program() -> None:
    code = "import sys, turnstop.adapters.codex; assert 'codex_cli_bin' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
