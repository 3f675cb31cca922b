"""Each wire format does what the prompt says and what it is ordered, streamed and whole."""

from __future__ import annotations

from typing import Literal

import pytest
import trio
from asking import DIALECTS, Client, Dialect, Said, connect

from turnstop.lab import open_lab

every_dialect = pytest.mark.parametrize("wire", DIALECTS, ids=lambda wire: wire.name)
either_way = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def ask(client: Client, wire: Dialect, text: str, *, stream: bool = True) -> None:
    await client.ask(wire.body(wire.user(text), stream=stream), wire.path(stream=stream))


async def heard(client: Client, wire: Dialect, *, stream: bool = True) -> Said:
    status, data = await client.answer()
    assert status == 200
    return (wire.read if stream else wire.read_whole)(data)


@every_dialect
@either_way
async def test_it_answers(wire: Dialect, stream: bool) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await ask(client, wire, "[turn:a1] answer", stream=stream)
        assert await heard(client, wire, stream=stream) == Said("answer to a1", is_complete=True)
        await lab.gone("a1")
        (exchange,) = lab.requests("a1")
        assert (exchange.wire, exchange.side) == (wire.name, False)
        assert exchange.finished_at is not None
        assert lab.side_requests("a1") == lab.faults == []


@every_dialect
@either_way
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("park 2", "piece 0 piece 1 answer to a1"),
        ("headers", "answer to a1"),
        ("hold", "answer to a1"),
        ("drip 5", "answer to a1"),
    ],
)
async def test_it_falls_silent_until_it_is_released(
    wire: Dialect, stream: bool, word: str, said: str
) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await ask(client, wire, f"[turn:a1] {word}", stream=stream)
        await lab.parked("a1")
        assert len(lab.open_requests("a1")) == 1
        lab.release("a1")
        heard_now = await heard(client, wire, stream=stream)
        assert heard_now.is_complete
        assert heard_now.text.replace("drop ", "") == said
        assert ("drop" in heard_now.text) is (word == "drip 5")


@every_dialect
@either_way
@pytest.mark.parametrize("word", ["park 2", "headers", "hold", "drip 5"])
async def test_a_client_that_leaves_is_seen(wire: Dialect, stream: bool, word: str) -> None:
    async with open_lab() as lab:
        async with connect(lab) as client:
            await ask(client, wire, f"[turn:a1] {word}", stream=stream)
            exchange = await lab.parked("a1")
        with trio.fail_after(1):
            await lab.gone("a1")
        assert exchange.dropped_at is not None
        assert exchange.finished_at is None


@every_dialect
async def test_the_last_frame_is_not_heard_before_the_end_of_the_message(wire: Dialect) -> None:
    # Who leaves in between would seem to have left a response that goes on.
    async with open_lab() as lab, connect(lab) as client:
        for token in map(str, range(20)):
            await ask(client, wire, f"[turn:{token}] hold")
            await lab.parked(token)
            lab.release(token)
            data = b""
            while f"answer to {token}".encode() not in data:
                data += await client.stream.receive_some()
            assert data.endswith(b"\r\n0\r\n\r\n")
            client.machine.receive_data(data)
            await client.answer()


@every_dialect
@either_way
async def test_a_tool_call_then_what_follows(wire: Dialect, stream: bool) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await ask(client, wire, "[turn:a1] tool park 1 $ sleep 60", stream=stream)
        said = await heard(client, wire, stream=stream)
        assert said.is_complete
        ((name, arguments),) = said.calls
        assert name == wire.shell
        assert arguments == {"command": "export TURNSTOP_LAB_TURN=a1; sleep 60"}
        prompt = wire.user("[turn:a1] tool park 1 $ sleep 60")
        history = [prompt, wire.call("c1"), wire.result("c1")]
        await client.ask(wire.body(*history, stream=stream), wire.path(stream=stream))
        assert (await lab.parked("a1")).number == 2
        lab.release("a1")
        assert (await heard(client, wire, stream=stream)).text == "piece 0 answer to a1"
        assert lab.faults == []


@every_dialect
@either_way
@pytest.mark.parametrize(
    ("order", "calls"),
    [
        ("end", []),
        ("tool", [{"command": "export TURNSTOP_LAB_TURN=a1; ls"}]),
        ("call", [{"path": "/x"}]),
    ],
)
async def test_one_that_is_parked_does_what_it_is_ordered(
    wire: Dialect, stream: bool, order: Literal["end", "tool", "call"], calls: list[object]
) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await ask(client, wire, "[turn:a1] park 0", stream=stream)
        exchange = await lab.parked("a1")
        for piece in ("one ", "two "):
            lab.order("a1", "say", piece)
        lab.order("a1", order, "ls", {"path": "/x"})
        said = await heard(client, wire, stream=stream)
        assert said.is_complete
        assert said.text == "one two "
        assert [arguments for _, arguments in said.calls] == calls
        assert [name for name, _ in said.calls] == {"end": [], "tool": [wire.shell]}.get(
            order, ["ls"]
        )
        assert exchange.ending_at is not None


@every_dialect
@pytest.mark.parametrize("how", ["prompt", "order"])
async def test_a_failed_turn_stays_failed(wire: Dialect, how: str) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await ask(client, wire, "[turn:a1] " + ("fail" if how == "prompt" else "park 1"))
        if how == "order":
            await lab.parked("a1")
            lab.order("a1", "fail")
        said = await heard(client, wire)
        assert said.has_failed
        assert not said.is_complete
        # The programs ask again, some of them for no stream.
        for stream in (True, False):
            await ask(client, wire, "[turn:a1] park 1", stream=stream)
            assert (await client.answer())[0] == 400
        await ask(client, wire, "[turn:b2] answer")
        assert (await heard(client, wire)).is_complete


@every_dialect
async def test_a_failure_without_a_stream_is_a_status(wire: Dialect) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await ask(client, wire, "[turn:a1] fail", stream=False)
        assert (await client.answer())[0] == 500


@every_dialect
@either_way
async def test_a_refusal_is_one_each_time(wire: Dialect, stream: bool) -> None:
    async with open_lab() as lab, connect(lab) as client:
        for _ in range(2):
            await ask(client, wire, "[turn:a1] refuse", stream=stream)
            assert (await client.answer())[0] == 500
        assert len(lab.requests("a1")) == 2


async def test_usage_is_told_to_who_asks_for_it() -> None:
    async with open_lab() as lab, connect(lab) as client:
        wire = DIALECTS[1]
        body = wire.body(wire.user("[turn:a1] answer"))
        await client.ask(body, wire.path(stream=True))
        assert b"usage" not in (await client.answer())[1]
        await client.ask(body | {"stream_options": {"include_usage": True}}, wire.path(stream=True))
        assert b'"total_tokens": 2' in (await client.answer())[1]


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "/v1/messages/count_tokens?beta=true", b'"input_tokens"'),
        ("POST", "/v1beta/models/gemini-2.5-flash:countTokens", b'"totalTokens"'),
        ("GET", "/v1beta/models", b'"fake-model"'),
        ("HEAD", "/", b""),
    ],
)
async def test_what_is_asked_beside_a_model_request_is_none(
    method: str, path: str, said: bytes
) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(b"{}", path, method)
        status, data = await client.answer()
        assert status == 200
        assert said in data
        assert lab.exchanges == []
