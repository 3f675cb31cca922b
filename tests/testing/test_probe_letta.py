"""What the probes of Letta excuse, and what the levers of the server in memory do."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from turnstop.testing import LEVERS, Probe, Work, run_in_virtual_time
from turnstop.testing._probe import has_lever
from turnstop.testing.schedules import Schedule, Step, replay

try:
    import httpx

    from turnstop.testing.probes import letta as probes
    from turnstop.testing.recording.letta import URL, RecordingLetta
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)


@pytest.mark.parametrize("probe", [probes.LettaProbe, probes.LettaAgentProbe])
def test_what_is_excused(probe: type[Probe]) -> None:
    """That all else is kept, and that no excuse is untrue, `test_obligations` shows."""
    assert {*probe.unable} == {"leave", "say_end_again"}
    assert [name for name in LEVERS if not has_lever(probe(), name)] == ["say_end_again", "leave"]


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    for name in (probes.__name__, "turnstop.adapters.letta"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"turnstop\[letta\]"):
        importlib.import_module(probes.__name__)


def test_the_kit_alone_imports_neither_the_sdk_nor_an_http_client() -> None:
    code = "import sys, turnstop.testing; print({'letta_client', 'httpx'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# The server in memory, without the adapter: what its levers do.


class Client:
    """What one would say to it by hand."""

    def __init__(self, server: RecordingLetta) -> None:
        self.server = server
        headers = {"x-stainless-package-version": "1.12.1"}
        self.http = httpx.AsyncClient(transport=server, base_url=URL, headers=headers)

    async def post(self, path: str, body: Any = None) -> Any:
        return (await self.http.post(f"/v1/{path}", json=body)).json()

    async def get(self, path: str) -> Any:
        return (await self.http.get(f"/v1/{path}")).json()

    async def begin(self, where: str = "agents/a", text: str = "bake") -> tuple[Work, Any]:
        body = {"messages": [{"role": "user", "content": text}], "streaming": True}
        request = self.http.build_request("POST", f"/v1/{where}/messages", json=body)
        response = await self.http.send(request, stream=True)
        return self.server.works[-1], response

    async def cancel(self, work: Work) -> Any:
        return await self.post("agents/a/messages/cancel", {"run_ids": [work.name]})


async def said(response: Any) -> list[Any]:
    text = (await response.aread()).decode()
    events = [part.rpartition("data: ")[2] for part in text.split("\n\n") if part]
    return [one if one == "[DONE]" else json.loads(one) for one in events]


def play(do: Callable[[RecordingLetta, Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            server = RecordingLetta(nursery)
            await do(server, Client(server))
            nursery.cancel_scope.cancel()

    run_in_virtual_time(run)


def test_cancelled_is_said_whatever_the_run_does() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        work, _ = await client.begin()
        server.cancels = "ignored"
        assert await client.cancel(work) == {work.name: "cancelled"}
        await trio.sleep(1000)
        assert (work.runs, work.told_at) == (True, [0.0])
        server.end(work)
        assert await client.cancel(work) == {work.name: "cancelled"}
        unknown = {"run_ids": ["run-99"]}
        assert await client.post("agents/a/messages/cancel", unknown) == {"run-99": "failed"}

    play(do)


def test_the_stream_ends_before_the_model_call_and_the_trace_comes_after_it() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        work, response = await client.begin()
        server.ends_after, server.drops_after = 3.0, 2.0
        await client.cancel(work)
        assert await said(response) != []
        assert (trio.current_time(), work.runs) == (3.0, True)
        ((step,),) = [await client.get(f"runs/{work.name}/steps")]
        assert await client.get(f"steps/{step['id']}/trace") is None
        await trio.sleep(2.1)
        assert work.ended_at == 5.0
        assert (await client.get(f"steps/{step['id']}/trace"))["step_id"] == step["id"]

    play(do)


def test_what_a_stream_says_by_its_end() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        kinds = []
        for reason in ("end_turn", "cancelled", "error"):
            work, response = await client.begin()
            server.run_of(work).end(reason, "why" if reason == "error" else "")
            events = await said(response)
            kinds.append([one if one == "[DONE]" else one["message_type"] for one in events])
        assert kinds == [
            ["ping", "stop_reason", "usage_statistics", "[DONE]"],
            ["ping", "stop_reason"],
            ["ping", "stop_reason", "error_message", "[DONE]"],
        ]

    play(do)


def test_a_conversation_takes_one_message_at_a_time_and_a_history_many() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        made = (await client.http.post("/v1/conversations/", params={"agent_id": "a"})).json()
        work, _ = await client.begin(f"conversations/{made['id']}")
        _, response = await client.begin(f"conversations/{made['id']}")
        assert response.status_code == 409
        assert json.loads(await response.aread())["run_id"] == work.name
        server.locks = False
        for where in (f"conversations/{made['id']}", "agents/a", "agents/a"):
            _, response = await client.begin(where)
            assert response.status_code == 200
        _, response = await client.begin("conversations/conv-9")
        assert response.status_code == 404

    play(do)


def test_a_held_start_works_and_a_refused_one_never_began() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        server.hold_starts()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.begin)
            await trio.sleep(1)
            assert server.works[0].runs
            server.release_starts()
        server.refuse_starts()
        work, response = await client.begin()
        assert (work.began_at, response.status_code) == (None, 404)

    play(do)


def test_an_approval_goes_on_with_the_work_and_another_message_is_an_error() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        work, response = await client.begin()
        server.ask(work)
        asked = (await said(response))[1]["tool_call"]
        _, refused = await client.begin(text="more")
        assert "waiting for approval" in (await said(refused))[2]["message"]
        returns = [{"type": "approval", "tool_call_id": asked["tool_call_id"], "approve": True}]
        body = {"messages": [{"type": "approval", "approvals": returns}], "streaming": True}
        request = client.http.build_request("POST", "/v1/agents/a/messages", json=body)
        response = await client.http.send(request, stream=True)
        assert (work.replies, work.runs) == (returns, True)
        server.end(work)
        assert (await said(response))[0]["run_id"] == server.run_of(work).id != work.name
        request = client.http.build_request("POST", "/v1/agents/a/messages", json=body)
        refused = await client.http.send(request, stream=True)
        assert "No tool call" in (await said(refused))[2]["message"]

    play(do)


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_cut_works_on_and_what_dies_is_over(dies: bool) -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        work, response = await client.begin()
        server.die() if dies else server.cut()
        with pytest.raises(httpx.ReadError):
            await response.aread()
        assert work.runs is not dies

    play(do)


def test_only_the_sdk_is_streamed_to() -> None:
    async def do(server: RecordingLetta, client: Client) -> None:
        del client.http.headers["x-stainless-package-version"]
        body = {"messages": [{"role": "user", "content": "bake"}], "streaming": True}
        assert "SDK v1.0+" in (await client.post("agents/a/messages", body))["detail"]

    play(do)


ONCE_BROKEN = {
    "a question that crossed the stop was told to stop twice": Schedule(
        seed=69,
        steps=(
            Step(0.0, "enter", "t02", room="kitchen", how="sleep", lasts=1.0),
            Step(0.05, "enter", "t03", room="attic", how="read"),
            Step(0.0, "ignore_cancels"),
            Step(0.0, "ask", "t02"),
        ),
        inside=False,
    ),
    "one that asked late was to be ended late": Schedule(
        seed=76,
        steps=(
            Step(0.0, "end_late", lasts=1.0),
            Step(0.0, "enter", "t04", room="kitchen", how="read"),
            Step(0.0, "enter", "t03", room="attic", how="shield"),
            Step(0.1, "stop_all"),
            Step(0.0, "ask", "t03"),
        ),
        inside=False,
    ),
    "a stop found no run while a person was asked": Schedule(
        seed=95,
        steps=(
            Step(0.0, "enter", "t01", room="kitchen", how="slow", lasts=1.0),
            Step(1.0, "say", "t01"),
            Step(0.0, "ask", "t01"),
            Step(0.0, "hold_cancels"),
        ),
        inside=False,
    ),
}


@pytest.mark.parametrize("what", ONCE_BROKEN)
def test_what_once_broke_a_promise_does_not(what: str) -> None:
    assert replay(probes.LettaProbe, ONCE_BROKEN[what]).faults == ()
