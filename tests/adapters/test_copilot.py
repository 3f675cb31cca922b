"""The Copilot adapter, and the SDK but for its threads, against a CLI in memory."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import (
    BackendError,
    BackendLost,
    BackendMisbehaved,
    BackendRefused,
    Ending,
    Proof,
    StopBudget,
    Turn,
)
from turnstop.abc import End, How, Request, Silenced
from turnstop.events import Ask, Event, Other, Text, Thought, ToolCall, Usage
from turnstop.testing import Work
from turnstop.transports.backlog import Backlog
from turnstop.transports.orphans import ProcessAddress
from turnstop.transports.reading import open_reading

try:
    from copilot.rpc import PermissionDecisionUserNotAvailable
    from copilot.session import PermissionNoResult
    from copilot.tools import Tool, ToolResult

    from turnstop.adapters.copilot import _sdk, open_copilot
    from turnstop.adapters.copilot._asks import read_permission, to_decision
    from turnstop.adapters.copilot._cli import Cli
    from turnstop.adapters.copilot._events import Translator
    from turnstop.adapters.copilot._open import _to_message
    from turnstop.adapters.copilot._session import CopilotSession, Settings
    from turnstop.testing.recording.copilot import FarCli, RecordingCopilot, open_recorded
    from turnstop.testing.recording.copilot._cli import INTERNAL, UNKNOWN
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

ADDRESS = ProcessAddress.ahead(("A", "b"))
BUDGET = StopBudget(cancel_within=2.0, kill_within=1.0)
SAYS_VERSION = "import os, sys, time; '--version' in sys.argv and (print('1.0.102'), sys.exit());"
Message = dict[str, Any]


@attrs.define
class World:
    copilot: RecordingCopilot
    backend: Any
    rooms: turnstop.Rooms[Any]
    nursery: trio.Nursery
    heard: dict[str, list[Event]] = attrs.field(factory=dict)
    errors: dict[str, Exception] = attrs.field(factory=dict)
    reply: object = None

    def begin(self, text: Any, room: str = "kitchen") -> Turn:
        turn = self.rooms.turn(room, text)
        self.nursery.start_soon(self._run, turn, str(text))
        return turn

    async def _run(self, turn: Turn, text: str) -> None:
        events = self.heard[text] = []
        try:
            async with turn:
                async for event in turn:
                    events.append(event)
                    if isinstance(event, Ask) and self.reply is not None:
                        turn.answer(event, self.reply)
        except BackendError as error:
            self.errors[text] = error

    async def work(self, text: str) -> Work:
        """The work of this text, once it has begun and its beginning was heard."""
        with trio.fail_after(60.0):
            while not (found := [one for one in self.copilot.works if one.text == text]):  # noqa: ASYNC110
                await trio.sleep(0.001)
            while not found[-1].runs:  # noqa: ASYNC110
                await trio.sleep(0.001)
        await wait_all_tasks_blocked()
        return found[-1]

    async def settled(self, turn: Turn) -> Any:
        with trio.fail_after(120.0):
            while turn.settlement is None:  # noqa: ASYNC110
                await trio.sleep(0.01)
        await wait_all_tasks_blocked()
        return turn.settlement

    def said(self, text: str) -> str:
        return "".join(one.delta for one in self.heard[text] if isinstance(one, Text))

    def told(self, method: str) -> list[Message]:
        """What the CLIs were asked by this name."""
        frames = [one.body for one in self.copilot.wire if one.direction == "->"]
        return [one["params"] for one in frames if one.get("method") == method]

    def let_go(self) -> list[Message]:
        """Which sessions the CLIs were told to unload; the oldest SDK has another word for it."""
        return [*self.told("session.detach"), *self.told("session.destroy")]


@asynccontextmanager
async def world(session: Message | None = None, **how: Any) -> AsyncGenerator[World, None]:
    copilot = RecordingCopilot(**how)
    async with open_recorded(copilot, **(session or {})) as backend:
        async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
            async with trio.open_nursery() as nursery:
                yield World(copilot, backend, rooms, nursery)
                nursery.cancel_scope.cancel()


# What ends a turn.


async def test_a_turn_ends_with_its_own_idle(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        await here.copilot.answer(work, "one ")
        await here.copilot.answer(work, "two")
        await here.copilot.finish(work)
        settlement = await here.settled(turn)
        assert (settlement.ending, settlement.proof) == (Ending.FINISHED, Proof.EVENT)
        assert settlement.usage == Usage(1, 1)
        assert here.said("hi") == "one two"


async def test_the_next_message_waits_for_the_aborted_idle(autojump_clock: MockClock) -> None:
    """F11."""
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        here.copilot.end_late(0.5)
        turn.stop()
        later = here.begin("second")
        await trio.sleep(0.4)
        assert turn.settlement is None
        assert len(here.told("session.send")) == 1
        second = await here.work("second")
        assert second.asked_at >= work.ended_at
        assert second.session == work.session
        await here.copilot.finish(second)
        assert (await here.settled(later)).ending is Ending.FINISHED


async def test_an_idle_before_the_acknowledgement_is_taken(autojump_clock: MockClock) -> None:
    """F11."""
    async with world() as here:
        turn = here.begin("hi")
        await here.work("hi")
        here.copilot.hold_acknowledgements()
        turn.stop()
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.STOPPED
        assert settlement.settled_at - settlement.asked_at < 0.1
        assert settlement.acked_at is None
        assert settlement.sent_at == settlement.asked_at


async def test_a_stop_while_the_session_begins_sends_nothing(autojump_clock: MockClock) -> None:
    """F12."""
    async with world() as here:
        held: list[tuple[FarCli, Message]] = []
        create = here.copilot._create
        here.copilot._create = lambda cli, message: held.append((cli, message))  # type: ignore
        turn = here.begin("hi")
        await wait_all_tasks_blocked()
        turn.stop()
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.UNCONFIRMED
        for cli, message in held:
            create(cli, message)
        await trio.sleep(1.0)
        assert here.told("session.send") == here.told("session.abort") == []
        # Nobody will ever use that session.
        assert [one["sessionId"] for one in here.let_go()] == [held[0][1]["params"]["sessionId"]]


async def test_a_late_idle_of_the_stopped_turn_ends_nothing(autojump_clock: MockClock) -> None:
    """C44. It comes behind the next message, and before that has shown itself, or after."""
    async with world(idles=False) as here:
        turn = here.begin("first")
        work = await here.work("first")
        turn.stop()
        assert (await here.settled(turn)).ending is Ending.STOPPED
        later = here.begin("second")
        await trio.sleep(0.0005)
        cli = here.copilot.live[0]
        cli.event(work.session, "session.idle", aborted=True, mode="interactive")
        second = await here.work("second")
        cli.event(work.session, "session.idle", aborted=True, mode="interactive")
        await trio.sleep(1.0)
        assert later.settlement is None
        await here.copilot.answer(second, "own")
        await here.copilot.finish(second)
        assert (await here.settled(later)).ending is Ending.FINISHED
        assert here.said("second") == "own"


async def test_an_idle_of_nobodys_and_one_that_comes_again_end_nothing(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        await here.copilot.finish(work)
        assert (await here.settled(turn)).ending is Ending.FINISHED
        later = here.begin("second")
        await trio.sleep(0.0005)
        assert here.told("session.send")[1:]
        cli = here.copilot.live[0]
        cli.event(work.session, "user.message", messageId="of nobody's", content="second")
        cli.event(work.session, "assistant.message_start", messageId="m")
        cli.event(work.session, "assistant.message_delta", messageId="m", deltaContent="no")
        cli.event(work.session, "session.idle", mode="interactive")
        second = await here.work("second")
        await here.copilot.say_end_again(work)
        await wait_all_tasks_blocked()
        assert later.settlement is None
        assert here.said("second") == ""
        await here.copilot.finish(second)
        assert (await here.settled(later)).ending is Ending.FINISHED


async def test_where_no_idle_comes_the_session_is_asked(autojump_clock: MockClock) -> None:
    async with world(idles=False) as here:
        turn = here.begin("hi")
        await here.work("hi")
        turn.stop()
        settlement = await here.settled(turn)
        assert (settlement.ending, here.copilot.asked) == (Ending.STOPPED, 1)
        assert settlement.ended_at - settlement.asked_at == pytest.approx(0.5)


async def test_a_session_that_works_on_is_not_said_to_be_idle(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        await here.work("hi")
        here.copilot.ignore_cancels()
        turn.stop()
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.UNCONFIRMED
        assert here.copilot.asked >= 3


async def test_a_message_that_never_shows_itself_is_stopped(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        with trio.fail_after(5.0):
            while not here.copilot.works:  # noqa: ASYNC110
                await trio.sleep(0.0001)
        turn.stop()
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.STOPPED
        assert here.copilot.works[0].began_at is None


async def test_an_abort_of_somebody_elses_ends_the_turn(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        here.copilot._stop(here.copilot.live[0], work)
        here.copilot._told_idle(work)
        assert (await here.settled(turn)).ending is Ending.STOPPED


async def test_a_message_that_an_abort_threw_away_has_ended(autojump_clock: MockClock) -> None:
    """It is never shown: its session is idle, and nothing more comes."""
    async with world() as here:
        turn = here.begin("hi")
        with trio.fail_after(5.0):
            while not here.copilot.works:  # noqa: ASYNC110
                await trio.sleep(0.0001)
        (work,) = here.copilot.works
        here.copilot._stop(here.copilot.live[0], work)
        here.copilot._told_idle(work)
        assert (await here.settled(turn)).ending is Ending.STOPPED
        assert work.began_at is None


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_no_message_is_sent_while_an_abort_is_under_way(
    autojump_clock: MockClock, acknowledged: bool
) -> None:
    """The turn has come to its own end meanwhile; an abort that comes late takes what it finds."""
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        held: list[Message] = []
        here.copilot._obey = lambda cli, request, work: held.append(request)
        turn.stop()
        await wait_all_tasks_blocked()
        await here.copilot.finish(work)
        assert (await here.settled(turn)).ending is Ending.FINISHED
        later, begin = here.begin("second"), trio.current_time()
        await trio.sleep(0.3)
        assert len(here.told("session.send")) == 1
        if acknowledged:
            here.copilot.live[0].answer(held[0], {"success": True})
        second = await here.work("second")
        # One that is never answered was written long ago.
        waited = 0.3 if acknowledged else 0.5
        assert second.asked_at - begin == pytest.approx(waited, abs=0.01)
        await here.copilot.finish(second)
        assert (await here.settled(later)).ending is Ending.FINISHED


async def test_what_a_sub_agent_says_is_no_end_and_no_answer(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        for kind, data in (
            ("assistant.message_start", {"messageId": "m"}),
            ("assistant.message_delta", {"messageId": "m", "deltaContent": "no"}),
            ("session.idle", {"mode": "interactive"}),
        ):
            event = here.copilot.live[0].event("elsewhere", kind, **data)["params"]["event"]
            told = {"sessionId": work.session, "event": {**event, "agentId": "helper"}}
            here.copilot.live[0].write({"method": "session.event", "params": told})
        await wait_all_tasks_blocked()
        assert turn.settlement is None
        assert here.said("hi") == ""


async def test_an_old_cli_is_known_by_its_text(autojump_clock: MockClock) -> None:
    """It names no message; and so does the oldest SDK."""
    async with world(old=True) as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        await here.copilot.answer(work, "yes")
        await here.copilot.finish(work)
        assert (await here.settled(turn)).ending is Ending.FINISHED
        assert here.said("hi") == "yes"


# Failures, losses, sessions.


async def test_a_failed_session_is_let_go_of_and_resumed(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        await here.copilot.fail(work)
        assert (await here.settled(turn)).ending is Ending.FAILED
        assert "the model was not reached" in str(here.errors["first"])
        later = here.begin("second")
        second = await here.work("second")
        assert second.session == work.session
        assert [one["sessionId"] for one in here.let_go()] == [work.session]
        assert [one["sessionId"] for one in here.told("session.resume")] == [work.session]
        await here.copilot.finish(second)
        assert (await here.settled(later)).ending is Ending.FINISHED


async def test_a_stopped_session_is_used_again_as_it_is(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        turn.stop()
        await here.settled(turn)
        here.begin("second")
        assert (await here.work("second")).session == work.session
        assert here.told("session.resume") == here.let_go() == []


async def test_a_failure_before_the_message_shows_is_a_failure(autojump_clock: MockClock) -> None:
    """As where nobody is logged in: no message of the user's is ever told."""
    async with world() as here:

        def fail(work: Work) -> None:
            here.copilot._say(work, "session.error", errorType="query", message="log in")
            here.copilot._over(work)

        here.copilot._begin = fail  # type: ignore[method-assign]
        turn = here.begin("hi")
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.FAILED
        assert str(here.errors["hi"]) == "log in"


async def test_a_failure_of_an_earlier_message_is_not_this_turns(
    autojump_clock: MockClock,
) -> None:
    """It comes behind the next message, which has not shown itself yet."""
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        await here.copilot.finish(work)
        await here.settled(turn)
        later = here.begin("second")
        await trio.sleep(0.0005)
        assert here.told("session.send")[1:]
        cli = here.copilot.live[0]
        cli.event(work.session, "session.error", message="no", originatingMessageId=work.name)
        cli.event(work.session, "session.idle", mode="interactive")
        second = await here.work("second")
        assert later.settlement is None
        await here.copilot.finish(second)
        assert (await here.settled(later)).ending is Ending.FINISHED


async def test_an_error_that_the_turn_got_over_is_none(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        here.copilot._say(work, "session.error", errorType="query", message="once more")
        here.copilot._ask_model(work)
        await here.copilot.finish(work)
        assert (await here.settled(turn)).ending is Ending.FINISHED


async def test_a_death_is_told_and_the_next_turn_begins_another(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        here.copilot.die()
        settlement = await here.settled(turn)
        assert (settlement.ending, settlement.gone) == (Ending.FAILED, True)
        lost = here.errors["first"]
        assert isinstance(lost, BackendLost)
        assert lost.gone
        assert "copilot has ended" in str(lost)
        here.begin("second")
        assert (await here.work("second")).session == work.session
        assert len(here.copilot.processes) == 2


async def test_a_session_that_was_never_written_down_begins_anew(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        here.copilot.on_disk.clear()
        here.copilot.die()
        await here.settled(turn)
        here.begin("second")
        assert (await here.work("second")).session != work.session


async def test_a_session_that_is_gone_is_refused(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("first")
        await here.copilot.finish(await here.work("first"))
        await here.settled(turn)
        here.copilot.on_disk.clear()
        here.copilot.die()
        await wait_all_tasks_blocked()
        later = here.begin("second")
        settlement = await here.settled(later)
        assert (settlement.ending, settlement.gone) == (Ending.FAILED, True)
        assert isinstance(here.errors["second"], BackendRefused)
        assert "retire the room to begin a new conversation" in str(here.errors["second"])


async def test_the_id_of_a_session_is_enough(autojump_clock: MockClock) -> None:
    async with world() as here:
        here.copilot.on_disk.add("known")
        remote = await here.backend.start(Request("room", "1", "hi", "known"))
        assert str(remote.session) == "known"
        assert "session known" in repr(remote)


async def test_what_may_be_alive_is_left_alone(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        here.copilot.hold_cancels()
        turn.stop()
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.UNCONFIRMED
        request = Request("room", "2", "second", work.session, settlement)
        remote = await here.backend.start(request)
        assert str(remote.session) != work.session


async def test_leaving_ends_every_call_that_waits() -> None:
    """C65: nobody answers, and everybody goes."""
    copilot = RecordingCopilot()
    errors: list[Exception] = []

    async def start(backend: Any) -> None:
        try:
            await backend.start(Request("room", "1", "hi"))
        except BackendLost as error:
            errors.append(error)

    with trio.fail_after(5.0):
        async with trio.open_nursery() as nursery:
            async with open_recorded(copilot) as backend:
                copilot.hold_starts()
                nursery.start_soon(start, backend)
                while not copilot.works:  # noqa: ASYNC110
                    await trio.sleep(0.01)
    assert [error.gone for error in errors] == [True]


# Questions.


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        ("allow", {"kind": "approve-once"}),
        ("deny", {"kind": "reject", "feedback": "It was denied."}),
        ("use the other folder", {"kind": "reject", "feedback": "use the other folder"}),
    ],
)
async def test_a_permission_is_asked_for_and_answered(
    autojump_clock: MockClock, reply: str, result: Message
) -> None:
    async with world() as here:
        here.reply = reply
        turn = here.begin("hi")
        work = await here.work("hi")
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        assert work.replies == [result]
        (ask,) = [one for one in here.heard["hi"] if isinstance(one, Ask)]
        assert (ask.kind, ask.text, ask.choices) == ("approval", "touch a.txt", ("allow", "deny"))
        assert turn.settlement is None
        calls = [one for one in here.heard["hi"] if isinstance(one, ToolCall)]
        state = "completed" if reply == "allow" else "failed"
        assert [(one.name, one.state) for one in calls] == [("bash", "started"), ("bash", state)]


async def test_a_stop_is_told_before_an_open_permission_is_refused(
    autojump_clock: MockClock,
) -> None:
    """C18: a tool that is refused goes back to the model, which must not be asked again."""
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        here.copilot.hold_cancels()
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        turn.stop()
        await wait_all_tasks_blocked()
        told = [one.body.get("method") for one in here.copilot.wire if one.direction == "->"]
        assert told[-2:] == ["session.abort", "session.permissions.handlePendingPermissionRequest"]
        assert [kind_of(one) for one in work.replies] == ["reject"]


async def test_a_permission_that_is_asked_for_while_stopping_is_refused(
    autojump_clock: MockClock,
) -> None:
    """C48: and never shown, neither now nor in the next turn."""
    async with world() as here:
        here.reply = "allow"
        turn = here.begin("hi")
        work = await here.work("hi")
        here.copilot.end_late(1.0)
        turn.stop()
        await wait_all_tasks_blocked()
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        assert [kind_of(one) for one in work.replies] == ["reject"]
        later = here.begin("second")
        await here.copilot.finish(await here.work("second"))
        await here.settled(later)
        assert not [one for text in ("hi", "second") for one in here.heard[text] if is_ask(one)]


async def test_a_permission_of_an_earlier_turn_is_refused(autojump_clock: MockClock) -> None:
    """C48: it comes behind the next message, which has not shown itself yet."""
    async with world() as here:
        here.reply = "allow"
        turn = here.begin("first")
        work = await here.work("first")
        turn.stop()
        await here.settled(turn)
        here.begin("second")
        await trio.sleep(0.0005)
        assert here.told("session.send")[1:]
        work.ended_at = None
        await here.copilot.want_permission(work)
        await here.work("second")
        assert [kind_of(one) for one in work.replies] == ["reject"]
        assert not [one for one in here.heard["second"] if is_ask(one)]


def kind_of(decision: Any) -> str:
    return str(decision["kind"])


def is_ask(event: Event) -> bool:
    return isinstance(event, Ask)


async def test_a_permission_that_nobody_listens_to_is_refused(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        turn.stop()
        await here.settled(turn)
        work.ended_at = None
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        assert work.replies == [{"kind": "user-not-available"}]


def test_the_sdk_answers_for_no_turn_that_was_asked_and_has_ended() -> None:
    """It hears of a request later than the turn, which may have ended meanwhile."""
    session = CopilotSession("s")
    handle = Settings().for_session(session)["on_permission_request"]
    request = SimpleNamespace(tool_call_id="t")
    assert isinstance(handle(request, {}), PermissionDecisionUserNotAvailable)
    session.shown.add("t")
    assert isinstance(handle(request, {}), PermissionNoResult)


async def test_a_permission_that_is_asked_for_twice_is_shown_once(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        await here.copilot.want_permission(work)
        asked = [one.body for one in here.copilot.wire if "permission.requested" in str(one.body)]
        here.copilot.live[0].write(asked[-1])
        await wait_all_tasks_blocked()
        assert len([one for one in here.heard["hi"] if is_ask(one)]) == 1
        assert turn.settlement is None


async def test_a_permission_that_was_answered_elsewhere_is_withdrawn(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        (ask,) = [one for one in here.heard["hi"] if isinstance(one, Ask)]
        result = {"kind": "approved"}
        here.copilot._say(work, "permission.completed", requestId=ask.id, result=result)
        await wait_all_tasks_blocked()
        assert not turn.answer(ask, "allow")
        assert work.replies == []


async def test_a_handler_of_ones_own_is_asked_alone(autojump_clock: MockClock) -> None:
    asked = []

    def decide(request: Any, invocation: Any) -> Any:
        asked.append(request.full_command_text)
        return to_decision("allow")

    async with world({"on_permission_request": decide}) as here:
        here.begin("hi")
        work = await here.work("hi")
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        assert asked == ["touch a.txt"]
        assert [kind_of(one) for one in work.replies] == ["approve-once"]
        assert not [one for one in here.heard["hi"] if is_ask(one)]


# Tools of the application's.


async def test_a_running_tool_ends_after_the_abort_has_left(autojump_clock: MockClock) -> None:
    """C18."""
    seen: list[str] = []

    async def handler(invocation: Any) -> Any:
        import asyncio

        seen.append("began")
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append("aborted" if here.told("session.abort") else "alone")
        return ToolResult(text_result_for_llm="never")

    tool = Tool(name="wait", description="waits", handler=handler, parameters=None)
    async with world({"tools": [tool]}) as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        here.copilot._say(
            work,
            "external_tool.requested",
            requestId="r",
            sessionId=work.session,
            toolCallId="t",
            toolName="wait",
            arguments={},
        )
        await wait_all_tasks_blocked()
        assert seen == ["began"]
        turn.stop()
        settlement = await here.settled(turn)
        assert seen == ["began", "aborted"]
        assert settlement.clean


async def test_a_stop_ends_the_turns_own_tasks_and_no_earlier_ones(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        await here.copilot.run_behind(work)
        await here.copilot.finish(work)
        assert (await here.settled(turn)).survivors == ()
        later = here.begin("second")
        second = await here.work("second")
        await here.copilot.run_behind(second)
        assert len(here.copilot.tasks) == 2
        later.stop()
        assert (await here.settled(later)).clean
        assert [of for of, _ in here.copilot.tasks.values()] == [work]


async def test_a_task_that_does_not_end_is_named(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        await here.copilot.run_behind(await here.work("hi"))
        here.copilot._task_cancel = lambda cli, request: cli.answer(  # type: ignore[method-assign]
            request, {"cancelled": False}
        )
        turn.stop()
        settlement = await here.settled(turn)
        assert settlement.gone
        (survivor,) = settlement.survivors
        assert survivor.startswith("background shell")
        assert survivor.endswith(": sleep 300")


def refuse_list(here: World, code: int) -> None:
    here.copilot._tasks_list = lambda cli, request: cli.refuse(  # type: ignore[method-assign]
        request, "no", code
    )


def list_what_is_none(here: World) -> None:
    here.copilot._tasks_list = lambda cli, request: cli.answer(  # type: ignore[method-assign]
        request, {"tasks": [7]}
    )


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda here: refuse_list(here, INTERNAL), "JSON-RPC Error -32603: no"),
        (list_what_is_none, ""),
    ],
)
async def test_tasks_that_copilot_does_not_list_are_not_said_to_be_none(
    autojump_clock: MockClock, spoil: Callable[[World], None], why: str
) -> None:
    async with world() as here:
        turn = here.begin("hi")
        await here.copilot.run_behind(await here.work("hi"))
        spoil(here)
        turn.stop()
        settlement = await here.settled(turn)
        assert (settlement.ending, settlement.clean) == (Ending.STOPPED, False)
        (survivor,) = settlement.survivors
        assert survivor.startswith("unknown background tasks: copilot has not listed them: ")
        assert why in survivor


async def test_a_list_of_tasks_that_does_not_come_is_waited_for_a_second(
    autojump_clock: MockClock,
) -> None:
    async with world() as here:
        remote = await here.backend.start(Request("room", "1", "hi"))
        here.copilot._tasks_list = lambda cli, request: None  # type: ignore[method-assign]
        begin = trio.current_time()
        (untold,) = await remote.leftovers()
        assert trio.current_time() - begin == pytest.approx(1.0)
        assert str(untold).endswith("copilot has not answered list_tasks for 1 s")
        assert await remote.sweep([untold]) == [untold]


async def test_a_copilot_without_a_list_of_tasks_has_none(autojump_clock: MockClock) -> None:
    async with world() as here:
        refuse_list(here, UNKNOWN)
        turn = here.begin("hi")
        await here.work("hi")
        turn.stop()
        assert (await here.settled(turn)).clean


async def test_a_task_whose_end_was_not_seen_is_named(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        await here.copilot.run_behind(await here.work("hi"))

        def ignore(cli: FarCli, request: Message) -> None:
            refuse_list(here, INTERNAL)
            cli.answer(request, {"cancelled": True})

        here.copilot._task_cancel = ignore  # type: ignore[method-assign]
        turn.stop()
        (survivor,) = (await here.settled(turn)).survivors
        assert survivor.startswith("background shell")


# What must not come from a backend, and does.


async def spoil_send(here: World, answer: Callable[[FarCli, Message, Work], object]) -> None:
    def answer_send(cli: FarCli, request: Message, work: Work) -> None:
        answer(cli, request, work)

    here.copilot._answer_send = answer_send  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "result", [{}, {"messageId": None}, {"messageId": ""}, {"messageId": 7}, None, []]
)
async def test_a_message_without_a_name_is_told_and_its_work_ended(
    autojump_clock: MockClock, result: object
) -> None:
    async with world() as here:
        other = here.begin("other", "garden")
        await here.work("other")
        await spoil_send(here, lambda cli, request, work: cli.answer(request, result))
        turn = here.begin("hi")
        await here.settled(turn)
        assert isinstance(here.errors["hi"], BackendMisbehaved)
        await trio.sleep(0.1)
        work = here.copilot.works[-1]
        assert len(work.told_at) == 1
        assert not work.runs
        assert other.settlement is None


@pytest.mark.parametrize(
    ("more", "why"),
    [({"foo": 1}, "unexpected keyword"), ({"attachments": [object()]}, "not JSON serializable")],
)
async def test_what_the_sdk_cannot_send_has_begun_nothing(
    autojump_clock: MockClock, more: Message, why: str
) -> None:
    async with world() as here:
        turn = here.begin("first")
        work = await here.work("first")
        await here.copilot.finish(work)
        await here.settled(turn)
        wrong = {"prompt": "x", **more}
        settlement = await here.settled(here.begin(wrong))
        assert settlement.gone
        error = here.errors[str(wrong)]
        assert isinstance(error, BackendRefused)
        assert why in str(error)
        await trio.sleep(0.1)
        assert here.told("session.abort") == here.let_go() == []
        assert here.backend._clis.current._naming == {}
        here.begin("second")
        assert (await here.work("second")).session == work.session


async def test_an_answer_that_the_sdk_cannot_read_is_told_and_its_work_ended(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = _sdk.send

    async def unreadable(session: Any, message: Any) -> str:
        with suppress(Exception):
            await send(session, message)
        raise ValueError("no such field")

    async with world() as here:
        monkeypatch.setattr(_sdk, "send", unreadable)
        await spoil_send(here, lambda cli, request, work: cli.answer(request, {}))
        await here.settled(here.begin("hi"))
        assert isinstance(here.errors["hi"], BackendMisbehaved)
        await trio.sleep(0.1)
        assert not here.copilot.works[-1].runs


async def test_ids_that_are_none_hurt_nobody() -> None:
    named: list[str] = []
    async with open_reading() as reading:
        cli = Cli(Any, reading, ADDRESS, trio.Event(), BackendLost)  # type: ignore[arg-type]
        cli._naming["s"] = named.append
        cli.note("->", {"method": "session.send", "id": 1, "params": {"sessionId": "s"}})
        cli._naming["s"] = named.append
        for none in ([], {}, None):
            cli.note("->", {"method": "session.send", "id": 2, "params": {"sessionId": none}})
            cli.note("->", {"method": "session.abort", "id": 2, "params": {"sessionId": none}})
            cli.note("<-", {"id": none, "result": {"messageId": "no"}})
        cli.note("<-", {"id": 1, "result": {"messageId": "m"}})
    assert named == ["m"]


async def test_who_listens_to_a_cli_that_has_ended_learns_of_it() -> None:
    async with open_reading() as reading:
        cli = Cli(Any, reading, ADDRESS, trio.Event(), BackendLost)  # type: ignore[arg-type]
        cli.declare_lost()
        backlog: Backlog[object] = Backlog()
        cli.listen("s", backlog)
        with trio.fail_after(5.0), pytest.raises(trio.EndOfChannel):
            await backlog.receive()


async def test_who_asks_a_cli_that_is_being_ended_learns_of_its_end() -> None:
    """Nothing can be asked any more, and how it ended is not known yet."""
    broken = trio.Event()
    async with open_reading() as reading:
        cli = Cli(Any, reading, ADDRESS, broken, BackendLost)  # type: ignore[arg-type]
        broken.set()
    asked: list[Exception] = []

    async def ask() -> None:
        try:
            await cli.call(_sdk.abort, None)
        except Exception as error:
            asked.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        assert asked == []
        cli.declare_lost()
    assert [type(error) for error in asked] == [BackendLost]


async def test_a_cancellation_out_of_nowhere_is_an_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    async def cancelled(session: Any, message: Any) -> str:
        raise asyncio.CancelledError

    async with world() as here:
        other = here.begin("other", "garden")
        await here.work("other")
        with monkeypatch.context() as patch:
            patch.setattr(_sdk, "send", cancelled)
            turn = here.begin("hi")
            await here.settled(turn)
        assert isinstance(here.errors["hi"], BackendMisbehaved)
        assert "was cancelled inside the asyncio library" in str(here.errors["hi"])
        assert other.settlement is None
        other.stop()
        assert (await here.settled(other)).ending is Ending.STOPPED


async def test_a_message_that_is_never_answered_is_given_up(autojump_clock: MockClock) -> None:
    async with world() as here:
        here.copilot.hold_starts()
        turn = here.begin("hi")
        settlement = await here.settled(turn)
        assert settlement.ending is Ending.FAILED
        assert "copilot has not answered send for 60 s" in str(here.errors["hi"])
        work = here.copilot.works[0]
        await trio.sleep(0.1)
        assert work.ended_at is not None
        # What may be alive is left alone: the next one is another session.
        here.copilot.release_starts()
        here.begin("second")
        assert (await here.work("second")).session != work.session


async def test_an_answer_that_comes_twice_counts_once(autojump_clock: MockClock) -> None:
    async with world() as here:

        def twice(cli: FarCli, request: Message, work: Work) -> None:
            cli.answer(request, {"messageId": work.name})
            cli.answer(request, {"messageId": "another"})

        await spoil_send(here, twice)
        turn = here.begin("hi")
        work = await here.work("hi")
        await here.copilot.finish(work)
        assert (await here.settled(turn)).ending is Ending.FINISHED


async def test_a_callback_that_dies_hurts_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as here:
        turn = here.begin("hi")
        work = await here.work("hi")
        other = here.begin("other", "garden")
        await here.work("other")
        # The SDK's reader does not survive what it cannot understand.
        broken = {"method": "session.event", "params": {"sessionId": work.session, "event": 7}}
        with caplog.at_level(logging.CRITICAL, logger="turnstop.aio"):
            here.copilot.live[0].write(broken)
            await wait_all_tasks_blocked()
        for one in (turn, other):
            assert one.settlement is None
        await here.copilot.answer(work, "still here")
        await here.copilot.finish(work)
        assert (await here.settled(turn)).ending is Ending.FINISHED
        assert here.said("hi") == "still here"


async def test_a_loop_that_is_blocked_delays_and_loses_nothing(autojump_clock: MockClock) -> None:
    async with world() as here:
        other = here.begin("other", "garden")
        its = await here.work("other")

        def dawdle(cli: FarCli, request: Message, work: Work) -> None:
            time.sleep(0.2)
            cli.answer(request, {"messageId": work.name})

        await spoil_send(here, dawdle)
        turn = here.begin("hi")
        work = await here.work("hi")
        turn.stop()
        assert (await here.settled(turn)).ending is Ending.STOPPED
        assert work.ended_at is not None
        await here.copilot.finish(its)
        assert (await here.settled(other)).ending is Ending.FINISHED


async def test_garbage_loses_the_cli_and_says_why(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin("hi")
        await here.work("hi")
        here.copilot.babble()
        await here.settled(turn)
        assert "it wrote what is no message: \"thread 'main' panicked\"" in str(here.errors["hi"])


# Words.


def told(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": "some"}


def test_each_event_has_its_word() -> None:
    translator = Translator()
    events = [
        told("assistant.reasoning_delta", reasoningId="r", deltaContent="hm"),
        told("assistant.reasoning", reasoningId="r", content="hm"),
        told("assistant.reasoning", reasoningId="s", content="aha"),
        told("assistant.message_delta", messageId="late", deltaContent="no"),
        told("assistant.message_start", messageId="m"),
        told("assistant.message_delta", messageId="m", deltaContent="yes"),
        told("assistant.message", messageId="m", content="yes"),
        told("assistant.message", messageId="n", content="all of it"),
        told("assistant.usage", inputTokens=3, outputTokens=4),
        told("assistant.usage", inputTokens=5, outputTokens=None),
        told("tool.execution_complete", toolCallId="late", success=True, result=None),
        told("tool.execution_start", toolCallId="t", toolName="bash", arguments={"command": "ls"}),
        told("tool.execution_partial_result", toolCallId="t", partialOutput="a.txt"),
        told(
            "tool.execution_complete",
            toolCallId="t",
            success=False,
            error={"message": "no"},
        ),
        told("tool.execution_start", toolCallId="u", toolName="view", arguments=[1]),
        told("session.new_thing"),
    ]
    found = [one for event in events for one in translator.translate(event)]
    assert [one for one in found if not isinstance(one, Other)] == [
        Thought("hm"),
        Thought("aha"),
        Text("yes"),
        Text("all of it"),
        Usage(3, 4),
        Usage(8, 4),
        ToolCall("t", "bash", "started", "ls"),
        ToolCall("t", "bash", "running", "a.txt"),
        ToolCall("t", "bash", "failed", "no"),
        ToolCall("u", "view", "started", "[1]"),
    ]
    assert [one.kind for one in found if isinstance(one, Other)] == [
        "assistant.reasoning",
        "assistant.message_start",
        "assistant.message",
        "session.new_thing",
    ]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"kind": "shell", "fullCommandText": "ls"}, "ls"),
        ({"kind": "write", "fileName": "a.txt", "intention": "make it"}, "write: a.txt"),
        ({"kind": "url", "url": "http://x"}, "url: http://x"),
        ({"kind": "new-thing"}, "new-thing: "),
    ],
)
def test_a_permission_says_what_it_is_about(asked: Message, text: str) -> None:
    event = told("permission.requested", requestId="r", permissionRequest=asked)
    permission = read_permission(event)
    assert permission is not None
    assert permission.to_ask().text == text


def test_what_a_hook_has_decided_is_no_question() -> None:
    event = told("permission.requested", requestId="r", resolvedByHook=True)
    assert read_permission(event) is None


def test_a_decision_of_the_sdks_is_taken_as_it_is() -> None:
    decision = to_decision("allow")
    assert to_decision(decision) is decision


# Opening.


def test_content_is_a_text_or_what_the_sdk_sends() -> None:
    assert _to_message("hi") == {"prompt": "hi"}
    whole = {"prompt": "hi", "attachments": []}
    assert _to_message(whole) == whole
    for wrong in (7, None, {"attachments": []}, {"prompt": 7}, ["hi"]):
        with pytest.raises(BackendRefused, match="a mapping with a prompt"):
            _to_message(wrong)


async def test_what_cannot_be_sent_begins_nothing(autojump_clock: MockClock) -> None:
    async with world() as here:
        turn = here.begin(7)
        assert (await here.settled(turn)).gone
        assert here.told("session.create") == []


async def test_an_old_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sdk, "SDK_FLOOR", "99.0")
    with pytest.raises(ImportError) as caught:
        async with open_copilot(sys.executable):
            pass
    text = str(caught.value)
    assert "github-copilot-sdk" in text
    assert "99.0" in text
    assert "turnstop[copilot]" in text


async def test_an_old_cli_is_refused() -> None:
    program = [sys.executable, "-c", "print('GitHub Copilot CLI 1.0.67.')"]
    with pytest.raises(BackendRefused, match=r"copilot is 1\.0\.67, and 1\.0\.73 is the oldest"):
        async with open_copilot(program):
            pass


@pytest.mark.parametrize(
    ("does", "error", "text"),
    [
        ("print('hi')", BackendRefused, "it wrote what is no message: 'hi': see that it is the"),
        ("sys.exit('no licence')", BackendLost, "exited with status 1; its stderr ends: no lic"),
        ("sys.exit()", BackendLost, "had not answered yet: see that it is the Copilot CLI"),
        ("os.close(1); time.sleep(60)", BackendLost, "closed its stdout"),
    ],
)
async def test_what_is_no_copilot_is_told(does: str, error: type[BackendError], text: str) -> None:
    with trio.fail_after(30.0), pytest.raises(error, match=text):
        async with open_copilot([sys.executable, "-c", SAYS_VERSION + does]):
            pass


async def test_what_the_sdk_cannot_import_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load() -> None:
        await trio.lowlevel.checkpoint()
        raise ImportError("no such library")

    monkeypatch.setattr(_sdk, "load", load)
    with trio.fail_after(30.0), pytest.raises(ImportError, match="no such library"):
        async with open_copilot([sys.executable, "-c", f"{SAYS_VERSION} time.sleep(60)"]):
            pass


async def test_a_program_of_the_sdks_name_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "copilot.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "copilot")
    with pytest.raises(ImportError, match=r"copilot\.py, and that is not github-copilot-sdk"):
        async with open_copilot(sys.executable):
            pass


async def test_a_missing_cli_is_named(tmp_path: Any) -> None:
    with pytest.raises(BackendRefused, match="npm install -g @github/copilot"):
        async with open_copilot(env={"PATH": str(tmp_path)}):
            pass
    with pytest.raises(ValueError, match="command is empty"):
        async with open_copilot([]):
            pass


async def test_the_loop_stands_around_the_rooms(autojump_clock: MockClock) -> None:
    """H3."""
    async with trio.open_nursery() as nursery:
        started = trio.Event()
        backends: list[Any] = []
        leave = trio.Event()

        async def hold() -> None:
            async with open_recorded(RecordingCopilot()) as backend:
                backends.append(backend)
                started.set()
                await leave.wait()

        nursery.start_soon(hold)
        await started.wait()
        with pytest.raises(RuntimeError, match="loop would close before"):
            async with turnstop.open_rooms(backends[0]):
                pass
        leave.set()


async def test_a_turn_that_is_revealed_too_late_hears_nothing_more(
    autojump_clock: MockClock,
) -> None:
    """It is told to end, and nobody follows it: later permissions are not left to it."""
    async with world() as here:
        remote = await here.backend.start(Request("room", "1", "hi"))
        work = await here.work("hi")
        await remote.cancel(lambda: None)
        work.ended_at = None
        await here.copilot.want_permission(work)
        await wait_all_tasks_blocked()
        assert work.replies == [{"kind": "user-not-available"}]


async def test_a_turn_that_nobody_follows_is_undone(autojump_clock: MockClock) -> None:
    copilot = RecordingCopilot()
    async with open_recorded(copilot) as backend:
        copilot.hold_starts()
        with trio.move_on_after(1.0):
            await backend.start(Request("room", "1", "hi"))
        (work,) = copilot.works
        assert work.runs
        copilot.release_starts()
        await trio.sleep(0.1)
        assert work.ended_at is not None


async def test_an_ask_that_is_silenced_waits_for_the_abort(autojump_clock: MockClock) -> None:
    async with world() as here:
        remote = await here.backend.start(Request("room", "1", "hi"))
        work = await here.work("hi")

        class Mute:
            def __call__(self, event: Event, /) -> None:
                pass

            async def ask(self, ask: Ask, /) -> object:
                raise Silenced

        async with trio.open_nursery() as nursery:
            ends: list[End] = []

            async def follow() -> None:
                ends.append(await remote.follow(Mute()))

            nursery.start_soon(follow)
            await here.copilot.want_permission(work)
            await wait_all_tasks_blocked()
            await remote.cancel(lambda: None)
        assert ends[0].how is How.CANCELLED
