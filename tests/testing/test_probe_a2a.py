"""What the probes of A2A excuse, and what the levers of the agent in memory do."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
from typing import Any

import pytest
import trio

from turnstop.testing import LEVERS, Probe, Work, run_in_virtual_time
from turnstop.testing._probe import has_lever
from turnstop.testing.schedules import Schedule, Step, replay

try:
    import httpx

    from turnstop.testing.probes import a2a as probes
    from turnstop.testing.recording.a2a import Kind, RecordingAgent, Stream
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

ALWAYS = {"ask", "leave"}
UNSTREAMED = {*ALWAYS, "end_seen", "say_end_again"}


@pytest.mark.parametrize(
    ("probe", "unable"),
    [
        (probes.A2AProbe, ALWAYS),
        (probes.A2APollingProbe, UNSTREAMED),
        (probes.A2APlainProbe, {*UNSTREAMED, "say"}),
    ],
)
def test_what_is_excused(probe: type[Probe], unable: set[str]) -> None:
    """That all else is kept, and that no excuse is untrue, `test_obligations` shows."""
    assert {*probe.unable} == unable


def test_an_agent_that_streams_has_every_lever_that_the_protocol_has() -> None:
    absent = [name for name in LEVERS if not has_lever(probes.A2AProbe(), name)]
    assert absent == ["ask", "leave"]


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    for name in (probes.__name__, "turnstop.adapters.a2a"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"turnstop\[a2a\]"):
        importlib.import_module(probes.__name__)


def test_the_kit_alone_imports_neither_the_sdk_nor_an_http_client() -> None:
    code = "import sys, turnstop.testing; print({'a2a', 'httpx'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# The agent in memory, without the adapter: what its levers do.


class Client:
    """What one would say to it by hand."""

    def __init__(self, agent: RecordingAgent) -> None:
        self.agent = agent

    async def ask(self, method: str, **params: Any) -> Any:
        found = await self.agent.answer(method, params, "1")
        assert not isinstance(found, httpx.Response | Stream)
        return found

    async def begin(self, text: str = "bake", **more: Any) -> tuple[Work, Stream]:
        message = {"messageId": "m", "parts": [{"text": text}], **more}
        stream = await self.agent.answer("SendStreamingMessage", {"message": message}, "1")
        assert isinstance(stream, Stream)
        return self.agent.works[-1], stream


def play(do: Any, kind: Kind = "streaming") -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            agent = RecordingAgent(kind, nursery)
            await do(agent, Client(agent))
            nursery.cancel_scope.cancel()

    run_in_virtual_time(run)


def test_a_cancel_that_is_ignored_is_said_and_the_work_goes_on() -> None:
    async def do(agent: RecordingAgent, client: Client) -> None:
        work, _ = await client.begin()
        agent.cancels = "ignored"
        told = await client.ask("CancelTask", id=work.name)
        assert told["status"]["state"] == "TASK_STATE_CANCELED"
        await trio.sleep(1000)
        assert (work.runs, work.told_at) == (True, [0.0])
        assert (await client.ask("CancelTask", id=work.name))["error"]["code"] == -32002

    play(do)


def test_the_stream_ends_when_the_work_has_ended() -> None:
    async def do(agent: RecordingAgent, client: Client) -> None:
        work, stream = await client.begin()
        agent.ends_after = 3.0
        await client.ask("CancelTask", id=work.name)
        heard = [chunk async for chunk in stream]
        assert (trio.current_time(), work.ended_at) == (3.0, 3.0)
        assert b"CANCELED" in heard[-1]

    play(do)


def test_a_held_start_works_and_a_refused_one_never_began() -> None:
    async def do(agent: RecordingAgent, client: Client) -> None:
        agent.hold_starts()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.begin)
            await trio.sleep(1)
            (work,) = agent.works
            assert work.runs
            assert (await client.ask("GetTask", id=work.name))["error"]["code"] == -32001
            assert (await client.ask("ListTasks", contextId=work.session))["tasks"] == []
            agent.release_starts()
        assert (await client.ask("ListTasks", contextId=work.session))["tasks"][0][
            "id"
        ] == work.name
        agent.refuse_starts()
        message = {"messageId": "m", "parts": []}
        refused = await client.ask("SendStreamingMessage", message=message)
        assert refused["error"]["code"] == -32005
        assert agent.works[-1].began_at is None

    play(do)


def test_a_question_is_answered_by_the_next_message_of_its_task() -> None:
    async def do(agent: RecordingAgent, client: Client) -> None:
        first, stream = await client.begin()
        agent.end(first, "INPUT_REQUIRED", "which one?")
        assert b"which one?" in [chunk async for chunk in stream][-1]
        second, _ = await client.begin("the red one", taskId=first.name)
        assert (first.name, first.session) == (second.name, second.session)
        assert (first.runs, second.runs) == (False, True)
        agent.end(second, "COMPLETED")
        message = {"messageId": "m", "parts": [], "taskId": first.name}
        refused = await client.ask("SendStreamingMessage", message=message)
        assert "terminal state" in refused["error"]["message"]

    play(do)


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_cut_works_on_and_what_dies_is_forgotten(dies: bool) -> None:
    async def do(agent: RecordingAgent, client: Client) -> None:
        work, stream = await client.begin()
        agent.die() if dies else agent.cut()
        with pytest.raises(httpx.ReadError):
            [chunk async for chunk in stream]
        assert work.runs is not dies
        found = await client.ask("GetTask", id=work.name)
        assert ("error" in found) is dies

    play(do)


def test_an_agent_of_the_plain_kind_answers_at_the_end() -> None:
    async def do(agent: RecordingAgent, client: Client) -> None:
        async def finish() -> None:
            await trio.sleep(5)
            agent.end(agent.works[0], "COMPLETED")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish)
            found = await client.ask("SendMessage", message={"messageId": "m", "parts": []})
        assert found["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert trio.current_time() == 5.0

    play(do, "plain")


ONCE_BROKEN = {
    "a work that finished while its start was held went on": Schedule(
        seed=456,
        steps=(
            Step(0.0, "hold_starts"),
            Step(0.0, "enter", "t03", room="kitchen", how="read"),
            Step(1.0, "finish", "t03"),
            Step(0.0, "release_starts"),
            Step(2.0, "close", how="leave"),
        ),
    ),
    "the end of one that was stopped early and refused to be was not told": Schedule(
        seed=0,
        steps=(
            Step(0.0, "refuse_cancels"),
            Step(0.0, "hold_starts"),
            Step(0.0, "enter", "t03", room="attic", how="fail", lasts=0.05),
            Step(1.0, "release_starts"),
            Step(0.0, "finish", "t03"),
        ),
    ),
    "one that failed was stopped": Schedule(
        seed=1725,
        steps=(
            Step(0.0, "hold_starts"),
            Step(0.0, "enter", "t02", room="kitchen", how="read"),
            Step(0.5, "fail", "t02"),
            Step(0.0, "release_starts"),
            Step(2.0, "close", how="raise"),
        ),
        inside=False,
    ),
}


@pytest.mark.parametrize("what", ONCE_BROKEN)
def test_what_once_broke_a_promise_does_not(what: str) -> None:
    assert replay(probes.A2AProbe, ONCE_BROKEN[what]).faults == ()
