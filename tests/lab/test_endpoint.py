"""The endpoint, asked by a client of a few lines: any real agent is in tests/real."""

from __future__ import annotations

import json
from typing import Literal

import pytest
import trio
from asking import Client, connect, events

from turnstop.lab import open_lab

SHELL = {
    "type": "function",
    "name": "exec_command",
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
}


def user(text: str) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def asking(*items: object) -> dict[str, object]:
    return {"model": "m", "stream": True, "tools": [SHELL], "input": list(items)}


async def test_it_answers_and_keeps_the_connection() -> None:
    async with open_lab() as lab, connect(lab) as client:
        for token in ("a1", "a2"):
            await client.ask(asking(user(f"[turn:{token}] answer")))
            status, data = await client.answer()
            assert status == 200
            assert events(data)[-1]["type"] == "response.completed"
            assert f"answer to {token}" in data.decode()
        assert [exchange.token for exchange in lab.exchanges] == ["a1", "a2"]
        assert len(lab.connections) == 1
        assert lab.open_requests("a1") == []
        assert lab.exchanges[0].finished_at is not None
        assert lab.exchanges[0].dropped_at is None


@pytest.mark.parametrize("word", ["park", "headers", "hold", "drip 5"])
async def test_a_client_that_leaves_is_seen(word: str) -> None:
    async with open_lab() as lab:
        async with connect(lab) as client:
            await client.ask(asking(user(f"[turn:a1] {word}")))
            exchange = await lab.parked("a1")
            assert lab.open_requests("a1") == [exchange]
            assert lab.gone_at("a1") is None
            left = trio.current_time()
        with trio.fail_after(1):
            await lab.gone("a1")
        assert lab.gone_at("a1") == exchange.dropped_at
        assert exchange.dropped_at is not None
        assert left < exchange.dropped_at < left + 0.5
        await lab.until(lambda: exchange.connection.dropped_at is not None)


@pytest.mark.parametrize(("word", "early"), [("park 2", 4), ("headers", 1), ("hold", 0)])
async def test_what_was_sent_before_it_fell_silent(word: str, early: int) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(asking(user(f"[turn:a1] {word}")))
        await lab.parked("a1")
        lab.release("a1")
        _, data = await client.answer()
        found = [event["type"] for event in events(data)]
        assert found[-1] == "response.completed"
        pieces = found.count("response.output_text.delta")
        assert pieces == (3 if early == 4 else 1)


async def test_hold_sends_no_headers() -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(asking(user("[turn:a1] hold")))
        await lab.parked("a1")
        with trio.move_on_after(0.05) as waited:
            await client.stream.receive_some()
        assert waited.cancelled_caught


async def test_release_wakes_only_its_turn() -> None:
    async with open_lab() as lab, connect(lab) as one, connect(lab) as two:
        await one.ask(asking(user("[turn:a1] park")))
        await two.ask(asking(user("[turn:b2] park")))
        await lab.parked("a1")
        await lab.parked("b2")
        lab.release("a1")
        await one.answer()
        await lab.gone("a1")
        assert lab.open_requests("b2")


async def test_a_tool_call_then_what_follows() -> None:
    async with open_lab() as lab, connect(lab) as client:
        prompt = user("[turn:a1] tool park $ sleep 60")
        await client.ask(asking(prompt))
        _, data = await client.answer()
        done = next(e for e in events(data) if e["type"] == "response.output_item.done")
        call = done["item"]
        assert isinstance(call, dict)
        command = json.loads(call["arguments"])["cmd"]
        assert "a1" in command
        assert command.endswith("sleep 60")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}
        await client.ask(asking(prompt, call, result))
        exchange = await lab.parked("a1")
        assert exchange.number == 2
        assert lab.faults == []


async def test_an_old_turns_tool_result_is_not_this_turns() -> None:
    async with open_lab() as lab, connect(lab) as client:
        call = {"type": "function_call", "call_id": "c1", "name": "exec_command"}
        result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
        old, new = user("[turn:a1] tool answer $ x"), user("[turn:b2] tool park $ y")
        await client.ask(asking(old, call, result, new))
        _, data = await client.answer()
        assert b"function_call" in data
        assert lab.requests("a1") == []


async def test_a_history_without_a_tools_result_is_named() -> None:
    async with open_lab() as lab, connect(lab) as client:
        call = {"type": "function_call", "call_id": "c1", "name": "exec_command"}
        result = {"type": "function_call_output", "call_id": "c0", "output": "x"}
        await client.ask(asking(user("[turn:a1] answer")))
        await client.answer()
        await client.ask(asking(call, result, user("[turn:b2] answer")))
        await client.answer()
        assert [(fault.request, fault.token) for fault in lab.faults] == [(2, "b2")] * 2
        assert "c0" in lab.faults[0].text
        assert "exec_command" in lab.faults[1].text


async def test_it_fails_as_asked() -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(asking(user("[turn:a1] refuse")))
        assert (await client.answer())[0] == 500
        await client.ask(asking(user("[turn:a1] fail")))
        _, data = await client.answer()
        assert events(data)[-1]["type"] == "response.failed"


async def test_a_request_without_a_token_is_answered() -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(asking(user("make a title")))
        assert (await client.answer())[0] == 200
        assert lab.exchanges[0].token == ""


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models?x=1", b"", 200),
        ("POST", "/v1/nothing", b"{}", 404),
        ("POST", "/v1/responses", b"[1", 400),
        ("POST", "/v1/responses", b"[]", 400),
    ],
)
async def test_other_requests(method: str, path: str, body: bytes, status: int) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(body, path, method)
        assert (await client.answer())[0] == status
        assert lab.exchanges == []


async def test_nonsense_ends_its_own_connection_only() -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.stream.send_all(b"\x00\x01 nonsense\r\n\r\n")
        assert await client.stream.receive_some() == b""
        async with connect(lab) as other:
            await other.ask(asking(user("[turn:a1] answer")))
            assert (await other.answer())[0] == 200


async def test_it_serves_until_a_cancelled_body_has_left() -> None:
    with trio.CancelScope() as outer:
        async with open_lab() as lab:
            outer.cancel()
            with trio.CancelScope(shield=True):
                async with connect(lab) as client:
                    await client.ask(asking(user("[turn:a1] answer")))
                    status = (await client.answer())[0]
            await trio.lowlevel.checkpoint()
    assert status == 200
    assert outer.cancelled_caught


async def test_leaving_drops_what_is_parked() -> None:
    async with open_lab() as lab:
        port = int(lab.url.rpartition(":")[2])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        client = Client(stream)
        await client.ask(asking(user("[turn:a1] park")))
        exchange = await lab.parked("a1")
    assert exchange.dropped_at is not None
    await stream.aclose()


@pytest.mark.parametrize(
    ("order", "kind", "said"),
    [
        ("end", "response.completed", "one two "),
        ("fail", "response.failed", "one two "),
        ("tool", "response.completed", "one two "),
        ("call", "response.completed", "one two "),
    ],
)
async def test_one_that_is_parked_does_what_it_is_ordered(
    order: Literal["end", "fail", "tool", "call"], kind: str, said: str
) -> None:
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(asking(user("[turn:a1] park 0")))
        exchange = await lab.parked("a1")
        for piece in ("one ", "two "):
            lab.order("a1", "say", piece)
        lab.order("a1", order, "ls")
        data = (await client.answer())[1]
        found = events(data)
        assert found[-1]["type"] == kind
        assert "".join(str(one["delta"]) for one in found if "delta" in one) == said
        assert ("; ls" in data.decode()) is (order == "tool")
        assert ('"name": "ls"' in data.decode()) is (order == "call")
        assert exchange.ending_at is not None
        await lab.gone("a1")
        lab.order("a1", "say", "to nobody")
