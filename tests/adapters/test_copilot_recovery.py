"""Turns of Copilot whose owner is gone: where they are, how they ended, what their rooms get."""

from __future__ import annotations

import os
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from turnstop import BackendLost, BackendRefused
from turnstop.abc import End, How, Proof, Request
from turnstop.events import Event

try:
    from turnstop.adapters.copilot import _orphan
    from turnstop.adapters.copilot._events import has_completed
    from turnstop.testing.recording.copilot import RecordingCopilot, open_recorded
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

from turnstop.testing import Work
from turnstop.transports.orphans import PROCESS, ProcessAddress
from turnstop.transports.proctable import ticks_now


class Reader:
    def __call__(self, event: Event) -> None: ...

    async def ask(self, ask: object) -> object:
        raise AssertionError


async def begun(copilot: RecordingCopilot, text: str) -> Work:
    while not (found := [one for one in copilot.works if one.text == text and one.runs]):  # noqa: ASYNC110
        await trio.sleep(0.001)
    return found[-1]


async def started(backend: Any, copilot: RecordingCopilot) -> tuple[list[str], Any, Work]:
    """What was announced of a turn, the turn, and its work."""
    announced: list[str] = []

    async def announce(address: str) -> None:
        assert copilot.works == []
        announced.append(address)

    turn = await backend.start(Request("kitchen", "1", "bake", announce=announce))
    return announced, turn, await begun(copilot, "bake")


async def taken_up(backend: Any, address: str) -> tuple[End, Any]:
    turn = await backend.attach(address)
    return await turn.follow(Reader()), turn.session


async def test_where_a_turn_is_is_told_before_it_is_sent(autojump_clock: MockClock) -> None:
    copilot, before = RecordingCopilot(), ticks_now()
    async with open_recorded(copilot) as backend:
        (announced,), turn, work = await started(backend, copilot)
    ahead, known = ProcessAddress.parse(announced), ProcessAddress.parse(turn.address)
    assert announced.startswith(PROCESS)
    assert ahead.session == work.session
    # By these are the turn's tools told from all else that its CLI has started.
    assert ahead.tool == {"COPILOT_CLI": "1", "COPILOT_AGENT_SESSION_ID": work.session}
    assert before <= ahead.since <= ticks_now()
    assert (ahead.turn, known) == ("", attrs.evolve(ahead, turn=work.name))


async def test_what_is_not_announced_is_not_sent(autojump_clock: MockClock) -> None:
    async def announce(address: str) -> None:
        raise BackendRefused("stopped")

    copilot = RecordingCopilot()
    async with open_recorded(copilot) as backend:
        with pytest.raises(BackendRefused, match="stopped"):
            await backend.start(Request("kitchen", "1", "bake", announce=announce))
        await trio.sleep(1)
    assert copilot.works == []


@pytest.mark.parametrize("how", [How.COMPLETED, How.CANCELLED])
async def test_how_it_ended_is_in_its_session(autojump_clock: MockClock, how: How) -> None:
    copilot = RecordingCopilot()
    async with open_recorded(copilot) as backend:
        _, turn, work = await started(backend, copilot)
        if how is How.COMPLETED:
            await copilot.finish(work)
    async with open_recorded(copilot) as backend:
        end, session = await taken_up(backend, turn.address)
        assert end == End(how, Proof.PROCESS)
        await backend.start(Request("kitchen", "2", "clean", session=session))
        assert (await begun(copilot, "clean")).session == work.session


async def test_what_was_only_announced_has_not_completed(autojump_clock: MockClock) -> None:
    copilot = RecordingCopilot()
    async with open_recorded(copilot) as backend:
        (announced,), _, work = await started(backend, copilot)
        await copilot.finish(work)
    async with open_recorded(copilot) as backend:
        end, session = await taken_up(backend, announced)
    assert end == End(How.CANCELLED, Proof.PROCESS)
    assert session.number == work.session


async def test_a_session_that_was_never_written_down_begins_anew(
    autojump_clock: MockClock,
) -> None:
    copilot = RecordingCopilot()
    async with open_recorded(copilot) as backend:
        _, turn, work = await started(backend, copilot)
    copilot.on_disk.clear()
    async with open_recorded(copilot) as backend:
        end, session = await taken_up(backend, turn.address)
        assert end == End(How.CANCELLED, Proof.PROCESS)
        await backend.start(Request("kitchen", "2", "clean", session=session))
        assert (await begun(copilot, "clean")).session != work.session


async def test_a_copilot_that_does_not_say_is_not_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    copilot = RecordingCopilot()
    async with open_recorded(copilot) as backend:
        _, turn, work = await started(backend, copilot)
        await copilot.finish(work)
    monkeypatch.setattr(copilot, "_messages", lambda cli, request: None)
    async with open_recorded(copilot) as backend:
        asked = trio.current_time()
        end, _ = await taken_up(backend, turn.address)
        assert end == End(How.CANCELLED, Proof.PROCESS)
        assert trio.current_time() - asked == pytest.approx(_orphan._TOLD_WITHIN, abs=0.1)


async def test_the_address_of_something_else(autojump_clock: MockClock) -> None:
    async with open_recorded(RecordingCopilot()) as backend:
        with pytest.raises(BackendLost, match="no address of a process"):
            await backend.attach("http://127.0.0.1")


def event(kind: str, **data: object) -> dict[str, object]:
    return {"type": kind, "data": data}


OURS = event("user.message", messageId="1")
ANSWER = [event("assistant.turn_start"), event("assistant.message"), event("assistant.turn_end")]
CALL = [
    event("assistant.turn_start"),
    event("assistant.message", toolRequests=[{"name": "bash"}]),
    event("assistant.turn_end"),
]


@pytest.mark.parametrize(
    ("events", "completed"),
    [
        ([OURS, *ANSWER], True),
        ([OURS, *CALL, *ANSWER], True),
        ([OURS, *ANSWER, event("session.shutdown")], True),
        ([OURS, *ANSWER, event("user.message", messageId="2"), *CALL], True),
        ([OURS], False),
        ([OURS, *CALL], False),
        ([OURS, *ANSWER[:2]], False),
        ([OURS, *CALL, *ANSWER[:1]], False),
        ([OURS, *ANSWER, event("abort")], False),
        ([OURS, event("assistant.turn_end"), event("session.error")], False),
        ([event("user.message", messageId="2"), *ANSWER], False),
        ([event("user.message", messageId="2"), *ANSWER, OURS], False),
        ([event("user.message"), *ANSWER], False),
        ([OURS, {**ANSWER[2], "agentId": "a"}], False),
        ([], False),
    ],
)
def test_whether_it_was_answered_to_the_end(
    events: list[dict[str, object]], completed: bool
) -> None:
    assert has_completed(events, "1") is completed
