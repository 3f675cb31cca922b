"""The ACP adapter against agents in memory that speak as the real ones were seen to.

F1 to F5 are the scenarios of the protocol, and a C with a number is a case from the field.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from acping import agent, asked, finished, lose
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import BackendError, BackendRefused, Ending, Proof, StopBudget
from turnstop.events import Ask, Other, Text, ToolCall, Usage
from turnstop.testing.recording.acp import QUIRKS, RecordingAcp, open_recorded

Frame = dict[str, Any]


@asynccontextmanager
async def rooms_of(
    acp: RecordingAcp, profile: str = "generic", **more: Any
) -> AsyncGenerator[turnstop.Rooms[Any], None]:
    budget = StopBudget(cancel_within=5.0, kill_within=2.0)
    async with open_recorded(acp, profile, **more) as backend:
        async with turnstop.open_rooms(backend, budget=budget) as rooms:
            yield rooms


async def stopped(acp: RecordingAcp, rooms: turnstop.Rooms[Any], **more: Any) -> turnstop.Turn:
    async with rooms.turn("kitchen", "first") as turn:
        await asked(acp, len(acp.works) + 1)
        turn.stop()
    return turn


async def stopped_in_vain(rooms: turnstop.Rooms[Any]) -> None:
    """A turn whose start does not come to its end within the budget."""
    async with rooms.turn("kitchen", "first") as turn:
        await trio.sleep(1.0)
        turn.stop()
    assert turn.settlement is not None
    assert turn.settlement.ending is Ending.UNCONFIRMED


def frames(acp: RecordingAcp, *methods: str) -> list[str]:
    """What the agent was told, in order, of these methods; an answer is `= outcome`."""
    told = []
    for frame in acp.wire:
        body = frame.body
        if frame.direction == "->" and body.get("method") in methods:
            told.append(body["method"])
        elif frame.direction == "->" and "result" in body:
            told.append(f"= {body['result']['outcome']['outcome']}")
    return told


# The protocol's scenarios.


async def test_f1_one_cancel_and_the_next_prompt_after_the_settlement(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    acp.end_late(1.0)
    async with rooms_of(acp) as rooms:
        turn = await stopped(acp, rooms)
        rooms.stop("kitchen")
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.STOPPED
        await finished(acp, rooms)
        assert len(acp.told("session/cancel")) == 1
        assert acp.works[1].asked_at >= turn.settlement.settled_at
        assert len({work.session for work in acp.works}) == 1


async def test_f2_a_timeout_and_a_stop_send_one_cancel(autojump_clock: MockClock) -> None:
    acp = agent()
    acp.end_late(1.0)
    async with rooms_of(acp) as rooms:
        with trio.move_on_after(0.5):
            async with rooms.turn("kitchen", "first") as turn:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.7)
                turn.stop()
        settlement = turn.settlement
        assert settlement is not None
        assert len(acp.told("session/cancel")) == 1
        assert (settlement.ending, settlement.errors) == (Ending.STOPPED, ())


async def test_f3_a_prompt_that_is_refused_is_a_failure_and_its_room_goes_on(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms, trio.open_nursery() as nursery:

        async def refuse() -> None:
            acp.fail(await asked(acp))

        nursery.start_soon(refuse)
        with pytest.raises(BackendError, match="the model was not reached"):
            async with rooms.turn("kitchen", "first") as turn:
                async for _ in turn:
                    pass
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FAILED, True)
        await finished(acp, rooms)


async def test_the_cause_of_an_error_is_told_where_it_comes_beside_it(
    autojump_clock: MockClock,
) -> None:
    acp = agent("qwen")
    async with rooms_of(acp, "qwen") as rooms, trio.open_nursery() as nursery:

        async def refuse() -> None:
            await asked(acp)
            number = acp.told("session/prompt")[0]["id"]
            data = {"details": "no flour left"}
            error = {"code": -32603, "message": "Internal error", "data": data}
            acp.processes[0].write({"id": number, "error": error})

        nursery.start_soon(refuse)
        with pytest.raises(BackendError, match=r"Internal error \(-32603\): no flour left"):
            async with rooms.turn("kitchen", "first") as turn:
                async for _ in turn:
                    pass


async def test_f4_the_process_is_ended_only_after_the_settlement(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    acp.end_late(1.0)
    with trio.move_on_after(0.5):
        async with rooms_of(acp) as rooms:
            async with rooms.turn("kitchen", "first") as turn:
                await trio.sleep_forever()
    assert turn.settlement is not None
    assert turn.settlement.ending is Ending.STOPPED
    assert acp.works[0].ended_at == turn.settlement.ended_at
    assert all(process.ended for process in acp.processes)


@pytest.mark.parametrize("profile", ["cursor", "generic", "copilot"])
async def test_f5_a_stop_while_the_session_is_set_up_sends_no_prompt(
    profile: str, autojump_clock: MockClock
) -> None:
    acp = agent(profile)
    acp.slow = 2.0
    async with rooms_of(acp, profile) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            await trio.sleep(1.0)
            turn.stop()
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.sent_at) == (Ending.STOPPED, None)
        assert settlement.settled_at - (settlement.asked_at or 0.0) == pytest.approx(1.0)
        assert acp.works == []
        assert acp.told("session/cancel") == []
        await finished(acp, rooms)


async def test_a_stop_in_the_instant_of_the_reveal_is_behind_the_prompt_or_in_its_place(
    autojump_clock: MockClock,
) -> None:
    for passes in range(12):
        acp = agent()
        async with rooms_of(acp) as rooms:
            async with rooms.turn("kitchen", "first") as turn:
                while not acp.told("session/new"):
                    await trio.lowlevel.checkpoint()
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                turn.stop()
            assert turn.settlement is not None
            assert turn.settlement.ending is Ending.STOPPED
            told = frames(acp, "session/prompt", "session/cancel")
            assert told in ([], ["session/prompt", "session/cancel"])


# Cases from the field.


async def test_c41_a_prompt_begins_without_a_cancel(autojump_clock: MockClock) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        for _ in range(3):
            await finished(acp, rooms)
        assert acp.told("session/cancel") == []


async def test_c45_fifty_stops_are_fifty_answers_each_to_its_own_prompt(
    autojump_clock: MockClock,
) -> None:
    acp = agent("claude")
    async with rooms_of(acp, "claude") as rooms:
        for number in range(50):
            turn = await stopped(acp, rooms)
            assert turn.settlement is not None
            assert turn.settlement.ending is Ending.STOPPED
            assert acp.works[number].ended_at == turn.settlement.ended_at
        answers = [frame.body for frame in acp.wire if "stopReason" in str(frame.body)]
        assert len({frame["id"] for frame in answers}) == len(answers) == 50
        heard = await finished(acp, rooms)
        assert [event.delta for event in heard if isinstance(event, Text)] == ["own"]


@pytest.mark.parametrize("says", [False, True])
async def test_c52_an_empty_completion_after_a_cancel_is_no_completion(
    says: bool, autojump_clock: MockClock
) -> None:
    acp = agent("opencode")
    async with rooms_of(acp, "opencode") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            if says:
                acp.say(work, "something")
            await wait_all_tasks_blocked()
            turn.stop()
        answer = acp.wire[-1].body["result"]["stopReason"]
        assert answer == ("cancelled" if says else "end_turn")
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.gone) == (Ending.STOPPED, True)


async def test_c52_a_completion_that_wins_against_the_cancel_is_one(
    autojump_clock: MockClock,
) -> None:
    acp = agent("opencode")
    acp.ignore_cancels()
    async with rooms_of(acp, "opencode") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            acp.say(work, "all of it")
            await wait_all_tasks_blocked()
            turn.stop()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1)
            acp.finish(work)
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.FINISHED


async def test_c61_an_agent_that_does_not_obey_is_replaced_within_the_bound(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    acp.ignore_cancels()
    async with rooms_of(acp) as rooms:
        turn = await stopped(acp, rooms)
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.proof) == (Ending.KILLED, Proof.PROCESS)
        assert settlement.settled_at - (settlement.asked_at or 0.0) == pytest.approx(5.0)
        await finished(acp, rooms)
        assert len(acp.processes) == 2
        # The conversation goes on, in the new process.
        assert acp.works[1].session == acp.works[0].session
        assert len(acp.told("session/resume")) == 1


async def test_c69_the_reader_waits_for_no_person(autojump_clock: MockClock) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            acp.want_approval(work)
            acp.say(work, "meanwhile")
            async for event in turn:
                if isinstance(event, Text):
                    break


# Remedies.


async def test_a_cancel_waits_until_copilot_shows_that_it_works(autojump_clock: MockClock) -> None:
    acp = agent("copilot")
    async with rooms_of(acp, "copilot") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            while not acp.works:  # noqa: ASYNC110 - as above
                await trio.sleep(0.001)
            turn.stop()
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending is Ending.STOPPED
        assert (settlement.sent_at or 0.0) - acp.works[0].asked_at == pytest.approx(0.008)


async def test_a_cancel_that_copilot_has_lost_ends_its_process_before_the_bound(
    autojump_clock: MockClock,
) -> None:
    acp = RecordingAcp(attrs.evolve(QUIRKS["copilot"], sign_after=30.0))
    async with rooms_of(acp, "copilot") as rooms:
        turn = await stopped(acp, rooms)
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending is Ending.KILLED
        assert "lost a cancel" in str(settlement.errors[0])
        # It is held back for a second, and given up after another.
        assert settlement.settled_at - (settlement.asked_at or 0.0) == pytest.approx(2.0)
        assert [process.ended for process in acp.processes] == [True]


async def test_a_cancel_that_codex_has_missed_is_written_again(autojump_clock: MockClock) -> None:
    acp = RecordingAcp(attrs.evolve(QUIRKS["codex-2"], misses=True))
    async with rooms_of(acp, "codex") as rooms:
        turn = await stopped(acp, rooms)
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending is Ending.STOPPED
        assert settlement.settled_at - (settlement.asked_at or 0.0) == pytest.approx(2.0)
        assert len(acp.told("session/cancel")) == 2
        assert settlement.sent_at == settlement.asked_at


async def test_news_of_the_session_are_no_sign_of_work(autojump_clock: MockClock) -> None:
    acp = agent("copilot")
    async with rooms_of(acp, "copilot") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            while not acp.works:  # noqa: ASYNC110 - as above
                await trio.sleep(0.001)
            session = str(acp.works[0].session)
            acp.processes[0].update(session, "session_info_update", title="a")
            acp.processes[0].update(session, "available_commands_update", availableCommands=[])
            turn.stop()
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.STOPPED


@pytest.mark.parametrize("says", [True, False])
async def test_a_turn_of_claude_is_over_when_its_cost_is_told_or_what_waits_for_it_is_answered(
    says: bool, autojump_clock: MockClock
) -> None:
    acp = agent("claude")
    async with rooms_of(acp, "claude") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            if says:
                acp.say(work, "something")
            await wait_all_tasks_blocked()
            turn.stop()
        assert len(acp.told("session/set_mode")) == (0 if says else 2)
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.EVENT)
        assert settlement.settled_at - (settlement.asked_at or 0.0) == pytest.approx(0.05)
        assert acp.works[0].ended_at == settlement.ended_at


async def test_what_claude_asks_behind_its_answer_is_answered_too(
    autojump_clock: MockClock,
) -> None:
    acp = agent("claude")
    async with rooms_of(acp, "claude") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            turn.stop()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.02)
            acp.want_approval(work)
            acp.processes[0].update(str(work.session), "current_mode_update", currentModeId="plan")
        assert work.replies == [{"outcome": "cancelled"}]
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending is Ending.STOPPED
        # What the agent has changed meanwhile is not changed back.
        modes = [one["params"]["modeId"] for one in acp.told("session/set_mode")]
        assert modes == ["default", "plan"]


async def test_a_claude_that_never_tells_its_cost_is_ended_by_force(
    autojump_clock: MockClock,
) -> None:
    acp = RecordingAcp(attrs.evolve(QUIRKS["claude"], ahead=60.0))
    async with rooms_of(acp, "claude") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            acp.say(await asked(acp), "something")
            await wait_all_tasks_blocked()
            turn.stop()
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.proof) == (Ending.KILLED, Proof.PROCESS)


async def test_an_agent_that_works_on_silently_is_ended_with_its_turn(
    autojump_clock: MockClock,
) -> None:
    acp = agent("codex")
    async with rooms_of(acp, "codex") as rooms:
        turn = await stopped(acp, rooms)
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.PROCESS)
        assert acp.works[0].ended_at == settlement.ended_at
        await finished(acp, rooms)
        assert acp.works[1].session == acp.works[0].session


async def test_what_an_agent_reads_on_behind_a_limit_is_ended_before_the_turn_is_over(
    autojump_clock: MockClock,
) -> None:
    acp = agent("gemini")
    async with rooms_of(acp, "gemini") as rooms:
        async with trio.open_nursery() as nursery:

            async def turn_in_circles() -> None:
                acp.come_to_limit(await asked(acp))

            nursery.start_soon(turn_in_circles)
            async with rooms.turn("kitchen", "first") as turn:
                heard = [event async for event in turn]
        assert isinstance(heard[-1], Other)
        assert heard[-1].kind == "max_turn_requests"
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.clean) == (Ending.FINISHED, True)
        work = acp.works[0]
        assert work.ended_at is not None
        assert work.ended_at <= turn.settlement.settled_at
        # It was heard, and not only written.
        assert frames(acp, "session/cancel", "session/set_mode")[-1] == "session/set_mode"
        await finished(acp, rooms)
        assert len(acp.told("session/cancel")) == 1
        assert not [process for process in acp.processes if process.ended]


async def test_nothing_shows_the_end_of_silent_work_in_a_process_that_all_share(
    autojump_clock: MockClock,
) -> None:
    acp = agent("codex")
    async with rooms_of(acp, "codex", shared=True) as rooms:
        turn = await stopped(acp, rooms)
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.UNCONFIRMED
        assert acp.works[0].runs
        await finished(acp, rooms)
        assert acp.works[1].session != acp.works[0].session


async def test_a_session_whose_tool_call_was_open_is_left_where_that_breaks_it(
    autojump_clock: MockClock,
) -> None:
    acp = agent("gemini")
    async with rooms_of(acp, "gemini") as rooms:
        await stopped(acp, rooms)
        await finished(acp, rooms)
        assert acp.works[1].session == acp.works[0].session
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp, 3)
            acp.want_approval(work)
            await wait_all_tasks_blocked()
            turn.stop()
        heard = await finished(acp, rooms)
        assert acp.works[3].session != work.session
        # The application is told, once, and it is still the same process.
        [told] = [event for event in heard if isinstance(event, Other)]
        assert (told.kind, told.raw) == ("session_replaced", {"sessionId": work.session})
        assert not [one for one in await finished(acp, rooms) if isinstance(one, Other)]
        assert acp.works[4].session == acp.works[3].session
        assert len(acp.processes) == 1


async def test_a_tool_call_that_was_open_at_the_stop_counts_though_it_fails_then(
    autojump_clock: MockClock,
) -> None:
    acp = agent("gemini")
    async with rooms_of(acp, "gemini") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            acp.run_command(work)
            acp.end_late(1.0)
            await wait_all_tasks_blocked()
            turn.stop()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            call = {"toolCallId": "call-1", "status": "failed"}
            acp.processes[0].update(str(work.session), "tool_call_update", **call)
        acp.end_late(0.0)
        await finished(acp, rooms)
        assert acp.works[1].session != work.session


async def test_what_a_turn_of_claude_has_cost_before_its_stop_is_not_its_end(
    autojump_clock: MockClock,
) -> None:
    acp = agent("claude")
    async with rooms_of(acp, "claude") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            acp.say(work, "something")
            cost = {"used": 1, "size": 9, "cost": {"amount": 0, "currency": "USD"}}
            acp.processes[0].update(str(work.session), "usage_update", **cost)
            await wait_all_tasks_blocked()
            turn.stop()
        assert turn.settlement is not None
        assert work.ended_at == turn.settlement.ended_at


async def test_the_mode_that_is_set_again_is_the_one_that_was_told_last(
    autojump_clock: MockClock,
) -> None:
    acp = agent("claude")
    async with rooms_of(acp, "claude") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            session = str((await asked(acp)).session)
            acp.processes[0].update(session, "current_mode_update", currentModeId="plan")
            await wait_all_tasks_blocked()
            turn.stop()
        assert [one["params"]["modeId"] for one in acp.told("session/set_mode")] == ["plan"] * 2


async def test_a_session_of_claude_that_has_counted_once_tells_each_cost(
    autojump_clock: MockClock,
) -> None:
    acp = agent("claude")
    async with rooms_of(acp, "claude") as rooms:
        await finished(acp, rooms)
        turn = await stopped(acp, rooms)
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.STOPPED
        assert acp.told("session/set_mode") == []


def test_claude_answers_early_and_is_refused_when_it_is_opened() -> None:
    old = attrs.evolve(QUIRKS["claude"], name="@zed-industries/claude-agent-acp", version="0.23.1")

    async def main() -> None:
        async with open_recorded(RecordingAcp(old), "claude"):
            pytest.fail("it was opened")

    with pytest.raises(BackendRefused, match=r"0\.23\.1 answers a prompt before.*acp@0\.49\.0"):
        trio.run(main)


# Permissions.


async def approve(profile: str, reply: object) -> object:
    acp = agent(profile)
    async with rooms_of(acp, profile) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            acp.want_approval(work)
            async for event in turn:
                if isinstance(event, Ask):
                    assert (event.kind, event.text) == ("approval", "sleep 60")
                    assert event.choices == ("allow", "always", "reject")
                    turn.answer(event, reply)
                    break
            await wait_all_tasks_blocked()
        return work.replies[0]


@pytest.mark.parametrize(
    ("reply", "option"),
    [
        ("always", "always"),
        ("Reject", "reject"),
        ("allow_once", "allow"),
        (True, "allow"),
        (False, "reject"),
        ("never heard of", "reject"),
        (None, "reject"),
    ],
)
async def test_a_reply_is_an_option_by_its_id_its_name_its_kind_or_yes_and_no(
    reply: object, option: str, autojump_clock: MockClock
) -> None:
    assert await approve("generic", reply) == {"outcome": "selected", "optionId": option}


async def test_a_mapping_is_the_answer_itself(autojump_clock: MockClock) -> None:
    outcome = {"outcome": "selected", "optionId": "mine"}
    assert await approve("generic", {"outcome": outcome}) == outcome


@pytest.mark.parametrize("profile", ["gemini", "qwen", "generic", "copilot"])
async def test_a_stop_answers_what_was_asked_behind_its_cancel(
    profile: str, autojump_clock: MockClock
) -> None:
    acp = agent(profile)
    async with rooms_of(acp, profile) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            acp.want_approval(work)
            acp.want_approval(work)
            await wait_all_tasks_blocked()
            turn.stop()
        assert work.replies == [{"outcome": "cancelled"}] * 2
        told = frames(acp, "session/cancel")
        assert told == ["session/cancel", "= cancelled", "= cancelled"]
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending is Ending.STOPPED
        assert settlement.settled_at == settlement.asked_at


async def test_what_is_asked_after_a_stop_is_cancelled_and_never_shown(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    acp.end_late(1.0)
    async with rooms_of(acp) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            work = await asked(acp)
            turn.stop()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
                acp.want_approval(work)
                await wait_all_tasks_blocked()
                assert work.replies == [{"outcome": "cancelled"}]


YES_NO = {"properties": {"ok": {"type": "boolean"}}}
ONE_OF = {"properties": {"drink": {"oneOf": [{"const": "tea"}, {"const": "coffee"}]}}}
ENUM = {"properties": {"size": {"type": "string", "enum": ["s", "l"]}}}
TEXT = {"properties": {"name": {"type": "string"}}}
LONG = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "choices", "reply", "result"),
    [
        (YES_NO, ("yes", "no"), "yes", {"action": "accept", "content": {"ok": True}}),
        (YES_NO, ("yes", "no"), False, {"action": "accept", "content": {"ok": False}}),
        (ONE_OF, ("tea", "coffee"), "tea", {"action": "accept", "content": {"drink": "tea"}}),
        (ENUM, ("s", "l"), "xl", {"action": "decline"}),
        (TEXT, (), "Bo", {"action": "accept", "content": {"name": "Bo"}}),
        (LONG, (), {"action": "cancel"}, {"action": "cancel"}),
        ({}, ("accept", "decline", "cancel"), True, {"action": "accept"}),
        ({}, ("accept", "decline", "cancel"), "cancel", {"action": "cancel"}),
        ({}, ("accept", "decline", "cancel"), "what?", {"action": "decline"}),
        (TEXT, (), None, {"action": "cancel"}),
    ],
)
async def test_a_form_is_a_question(
    schema: Frame,
    choices: tuple[str, ...],
    reply: object,
    result: Frame,
    autojump_clock: MockClock,
) -> None:
    acp = agent("omp")
    async with rooms_of(acp, "omp") as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            session = (await asked(acp)).session
            params = {"sessionId": session, "message": "Well?", "requestedSchema": schema}
            acp.processes[0].write({"id": 7, "method": "elicitation/create", "params": params})
            async for event in turn:
                if isinstance(event, Ask):
                    assert (event.kind, event.text) == ("question", "Well?")
                    assert event.choices == choices
                    break
            if reply is None:
                turn.stop()
            else:
                turn.answer(event, reply)
            with trio.CancelScope(shield=True):
                await wait_all_tasks_blocked()
        answers = [frame.body for frame in acp.wire if frame.direction == "->"]
        assert [one["result"] for one in answers if one.get("id") == 7] == [result]
    [hello] = acp.told("initialize")
    assert hello["params"]["clientCapabilities"]["elicitation"] == {"form": {}}


async def test_what_is_asked_between_two_turns_is_cancelled(autojump_clock: MockClock) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        await finished(acp, rooms)
        params = {"sessionId": acp.works[0].session, "toolCall": {"toolCallId": "1"}, "options": []}
        request = {"id": 9, "method": "session/request_permission", "params": params}
        acp.processes[0].write(request)
        await wait_all_tasks_blocked()
        assert acp.wire[-1].body["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "x/y"])
async def test_what_is_not_offered_is_refused(method: str, autojump_clock: MockClock) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        async with rooms.turn("kitchen", "first"):
            work = await asked(acp)
            params = {"sessionId": work.session}
            acp.processes[0].write({"id": 70, "method": method, "params": params})
            acp.processes[0].write({"id": 71, "method": method, "params": {}})
            await wait_all_tasks_blocked()
    answers = {frame.body["id"]: frame.body for frame in acp.wire if "error" in frame.body}
    assert answers[70]["error"]["code"] == answers[71]["error"]["code"] == -32601


# Sessions.


async def test_a_lost_process_is_brought_back_and_its_past_is_heard_by_nobody(
    autojump_clock: MockClock,
) -> None:
    acp = agent("copilot")
    acp.history = ["what was said before"]
    async with rooms_of(acp, "copilot") as rooms:
        await finished(acp, rooms)
        await lose(acp)
        heard = await finished(acp, rooms)
        assert len(acp.told("session/load")) == 1
        assert acp.works[1].session == acp.works[0].session
        assert [event.delta for event in heard if isinstance(event, Text)] == ["own"]


async def test_a_session_that_cannot_be_loaded_is_replaced_and_that_is_told(
    autojump_clock: MockClock,
) -> None:
    acp = agent("gemini")
    async with rooms_of(acp, "gemini") as rooms:
        await finished(acp, rooms)
        await lose(acp)
        heard = await finished(acp, rooms)
        assert acp.told("session/load") == []
        assert acp.works[1].session != acp.works[0].session
        assert Other("session_replaced") in heard


async def test_each_room_has_a_process_and_the_first_is_the_one_of_the_opening(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        assert len(acp.processes) == 1
        async with rooms.turn("kitchen", "first"):
            await asked(acp)
            async with rooms.turn("garden", "second"):
                await asked(acp, 2)
        assert len(acp.processes) == 2
        await rooms.retire("kitchen")
        assert [process.ended for process in acp.processes] == [True, False]


async def test_a_room_that_is_retired_while_its_process_comes_back_leaves_none(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        await finished(acp, rooms)
        await lose(acp)
        acp.slow_to_greet = 30.0
        await stopped_in_vain(rooms)
        await rooms.retire("kitchen")
        assert [process.ended for process in acp.processes] == [True, True]
        await trio.sleep(60.0)
        assert [process.ended for process in acp.processes] == [True, True]


async def test_one_process_for_all_is_closed_by_session(autojump_clock: MockClock) -> None:
    acp = agent()
    async with rooms_of(acp, shared=True) as rooms:
        async with rooms.turn("kitchen", "first"):
            await asked(acp)
            async with rooms.turn("garden", "second"):
                await asked(acp, 2)
        await rooms.retire("kitchen")
        assert [one["params"]["sessionId"] for one in acp.told("session/close")] == [
            acp.works[0].session
        ]
        assert [process.ended for process in acp.processes] == [False]


async def test_after_an_unconfirmed_turn_neither_its_session_nor_its_process_is_used(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            await asked(acp)
            acp.cut()
            turn.stop()
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.UNCONFIRMED
        await finished(acp, rooms)
        assert acp.works[1].session != acp.works[0].session
        assert len(acp.processes) == 2


async def test_a_session_that_hangs_while_it_is_taken_up_is_left_and_its_process_ended(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        await finished(acp, rooms)
        await lose(acp)
        acp.slow = 1000.0
        await stopped_in_vain(rooms)
        acp.slow = 0.0
        await finished(acp, rooms)
        assert acp.works[1].session != acp.works[0].session
        assert [process.ended for process in acp.processes] == [True, True, False]


async def test_a_process_whose_session_did_not_begin_is_ended_and_begun_anew(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    acp.login = "log in"
    async with rooms_of(acp) as rooms:
        for number in (1, 2):
            with pytest.raises(BackendRefused, match="log in"):
                async with rooms.turn("kitchen", "first"):
                    await trio.sleep_forever()
            await wait_all_tasks_blocked()
            assert [process.ended for process in acp.processes] == [True] * number


async def test_the_mode_is_set_in_each_session(autojump_clock: MockClock) -> None:
    acp = agent()
    async with rooms_of(acp, mode="plan") as rooms:
        await finished(acp, rooms)
        await finished(acp, rooms)
        [told] = acp.told("session/set_mode")
        assert told["params"] == {"sessionId": acp.works[0].session, "modeId": "plan"}


async def test_an_agent_that_wants_a_login_says_which(autojump_clock: MockClock) -> None:
    acp = agent()
    acp.login = "Authentication required"
    async with rooms_of(acp) as rooms:
        with pytest.raises(BackendRefused, match="Authentication required; it takes 'api-key'"):
            async with rooms.turn("kitchen", "first") as turn:
                await trio.sleep_forever()
        assert turn.settlement is not None
        assert turn.settlement.gone


# What is heard.


async def test_a_turn_is_heard_in_everybodys_words(autojump_clock: MockClock) -> None:
    acp = agent("omp")
    heard: list[object] = []
    async with rooms_of(acp, "omp") as rooms:
        async with rooms.turn("kitchen", [{"type": "text", "text": "mine"}]) as turn:
            work = await asked(acp)
            process, session = acp.processes[0], str(work.session)
            text = {"type": "text", "text": "hm"}
            process.update(session, "agent_thought_chunk", content=text)
            call = {"toolCallId": "1", "title": "ls", "rawInput": {"command": "ls -l"}}
            process.update(session, "tool_call", **call)
            process.update(session, "tool_call_update", toolCallId="1", status="in_progress")
            output = [{"type": "content", "content": {"type": "text", "text": "a.txt"}}]
            done = {"toolCallId": "1", "status": "completed", "content": output}
            process.update(session, "tool_call_update", **done)
            image = {"type": "image", "data": ""}
            process.update(session, "agent_message_chunk", content=image)
            process.update(session, "plan", entries=[])
            usage = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
            answer = {"stopReason": "max_tokens", "usage": usage}
            process.write({"id": acp.told("session/prompt")[0]["id"], "result": answer})
            async for event in turn:
                heard.append(event)
        assert work.text == "mine"
        assert [event for event in heard if isinstance(event, ToolCall)] == [
            ToolCall("1", "ls", "started", "ls -l"),
            ToolCall("1", "ls", "running"),
            ToolCall("1", "ls", "completed", "a.txt"),
        ]
        kinds = [event.kind for event in heard if isinstance(event, Other)]
        assert kinds == ["agent_message_chunk", "plan", "max_tokens"]
        assert Usage(3, 4) in heard
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.usage) == (Ending.FINISHED, Usage(3, 4))


async def test_what_comes_with_the_answer_in_one_breath_is_heard(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        async with rooms.turn("kitchen", "first") as turn:
            session = (await asked(acp)).session
            lines: list[Frame] = []
            for number in range(20):
                content = {"type": "text", "text": f"{number} "}
                update = {"sessionUpdate": "agent_message_chunk", "content": content}
                params = {"sessionId": session, "update": update}
                lines.append({"method": "session/update", "params": params})
            prompt = acp.told("session/prompt")[0]["id"]
            lines.append({"id": prompt, "result": {"stopReason": "end_turn"}})
            acp.processes[0].write_line(b"\n".join(json.dumps(one).encode() for one in lines))
            said = "".join([event.delta async for event in turn if isinstance(event, Text)])
        assert said == "".join(f"{number} " for number in range(20))


@pytest.mark.parametrize("content", [7, b"hi", [{"type": "text", "text": object()}]])
async def test_content_that_cannot_be_sent_is_refused_and_the_session_goes_on(
    content: object, autojump_clock: MockClock
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        await finished(acp, rooms)
        with pytest.raises(BackendRefused, match="content"):
            async with rooms.turn("kitchen", content) as turn:
                await trio.sleep_forever()
        assert turn.settlement is not None
        assert turn.settlement.gone
        await finished(acp, rooms)
        assert acp.works[1].session == acp.works[0].session


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"stopReason": "refusal"}, "refused to go on"),
        ({"text": "x" * 1000}, r"answered a prompt with .{20,250}\.\.\.$"),
        ({}, "answered a prompt with"),
        (None, "answered a prompt with None"),
    ],
)
async def test_an_answer_that_is_no_completion_is_raised(
    result: object, text: str, autojump_clock: MockClock
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms, trio.open_nursery() as nursery:

        async def answer() -> None:
            await asked(acp)
            number = acp.told("session/prompt")[0]["id"]
            acp.processes[0].write({"id": number, "result": result})

        nursery.start_soon(answer)
        with pytest.raises(BackendError, match=text):
            async with rooms.turn("kitchen", "first") as turn:
                async for _ in turn:
                    pass


async def test_a_tool_call_that_an_agent_numbers_anew_is_this_turns(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with rooms_of(acp) as rooms:
        for number in (1, 2):
            heard = []
            async with rooms.turn("kitchen", "first") as turn:
                work = await asked(acp, number)
                process, session = acp.processes[0], str(work.session)
                if number == 2:
                    process.update(session, "tool_call_update", toolCallId="1", status="failed")
                process.update(session, "tool_call", toolCallId="1", title="ls")
                acp.finish(work)
                async for event in turn:
                    heard.append(event)
            assert [one for one in heard if isinstance(one, ToolCall)] == [
                ToolCall("1", "ls", "started")
            ]
