"""A backend that floods is read as fast as it is heard: its end is no later, and nobody waits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import turnstop
from turnstop import Ending, Proof, StopBudget
from turnstop.abc import Backend
from turnstop.adapters.acp import open_acp
from turnstop.adapters.claude import open_claude
from turnstop.adapters.codex._asks import decline
from turnstop.adapters.codex._open import _Backend, _Settings, _topic_of
from turnstop.events import Event, Text
from turnstop.testing.recording.codex import AppServer
from turnstop.transports.dialect import JsonRpc
from turnstop.transports.jsonrpc import Connection, open_connection
from turnstop.transports.orphans import ProcessAddress, new_mark

BUDGET = StopBudget(cancel_within=2.0, kill_within=3.0)
ENOUGH = 1_500

COMMON = """
import json, sys, threading
lock, stopped = threading.Lock(), threading.Event()

def say(**frame):
    with lock:
        sys.stdout.write(json.dumps(frame) + "\\n")
        sys.stdout.flush()

def flood(end, **frame):
    lines = (json.dumps(frame) + "\\n") * 100
    while not stopped.is_set():
        with lock:
            sys.stdout.write(lines)
            sys.stdout.flush()
    say(**end)

def begin(end, **frame):
    threading.Thread(target=flood, args=(end,), kwargs=frame, daemon=True).start()
"""

CLAUDE = """
def answer(frame):
    said = {"cancelled": []} if frame["request"]["subtype"] == "interrupt" else {}
    response = {"subtype": "success", "request_id": frame["request_id"], "response": said}
    say(type="control_response", response=response)

if "--version" in sys.argv:
    print("2.1.332 (Claude Code)")
    sys.exit()
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        answer(frame)
        if frame["request"]["subtype"] == "interrupt":
            stopped.set()
    elif frame["type"] == "user":
        number = frame["uuid"]
        say(type="system", subtype="init", session_id="s", capabilities=["msg_lifecycle_v1"])
        say(type="command_lifecycle", state="started", command_uuid=number)
        delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
        end = {"type": "result", "is_error": True, "terminal_reason": "aborted_streaming"}
        begin(
            {**end, "user_message_uuid": number},
            type="stream_event", user_message_uuid=number, event=delta,
        )
"""

ACP = """
for line in sys.stdin:
    frame = json.loads(line)
    method = frame.get("method")
    if method == "initialize":
        say(jsonrpc="2.0", id=frame["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        say(jsonrpc="2.0", id=frame["id"], result={"sessionId": "s"})
    elif method == "session/cancel":
        stopped.set()
    elif method == "session/prompt":
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
        begin(
            {"jsonrpc": "2.0", "id": frame["id"], "result": {"stopReason": "cancelled"}},
            jsonrpc="2.0", method="session/update", params={"sessionId": "s", "update": chunk},
        )
"""

Open = Callable[[list[str]], AbstractAsyncContextManager[Backend[Any]]]


@pytest.mark.parametrize(("program", "open_it"), [(CLAUDE, open_claude), (ACP, open_acp)])
async def test_a_stop_in_a_flood_is_obeyed_and_seen(
    tmp_path: Path, program: str, open_it: Open
) -> None:
    script = tmp_path / "floods.py"
    script.write_text(COMMON + program)
    with trio.fail_after(60):
        async with (
            open_it([sys.executable, str(script)]) as backend,
            turnstop.open_rooms(backend, budget=BUDGET) as rooms,
        ):
            heard = 0
            async with rooms.turn("kitchen", "now") as turn:
                async for event in turn:
                    heard += len(event.delta) if isinstance(event, Text) else 0
                    if heard >= ENOUGH:
                        break
                turn.stop()
    settlement = turn.settlement
    assert settlement is not None
    assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.EVENT)
    assert settlement.asked_at is not None
    assert settlement.settled_at - settlement.asked_at < BUDGET.cancel_within


@attrs.define(eq=False)
class Once:
    """Stands for the restarting process: one connection, and it stays."""

    rpc: Connection
    broken: trio.Event = attrs.field(factory=trio.Event)
    address: ProcessAddress = attrs.field(factory=lambda: ProcessAddress.ahead(new_mark()))

    @property
    def process(self) -> Once:
        return self

    async def get(self) -> Once:
        return self


class Passes(trio.abc.Instrument):
    """Counts the scheduler's passes."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


@contextmanager
def counted() -> Generator[Passes, None, None]:
    passes = Passes()
    trio.lowlevel.add_instrument(passes)
    try:
        yield passes
    finally:
        trio.lowlevel.remove_instrument(passes)


async def read(rooms: turnstop.Rooms[Any], found: list[Event]) -> None:
    async with rooms.turn("kitchen", "now", turn_id="now") as turn:
        async for event in turn:
            found.append(event)


def told(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, Text))


async def test_a_chunk_of_codex_is_read_in_a_few_passes() -> None:
    server = AppServer()
    near, events = server.connect(), list[Event]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        async with open_connection(
            near, near, topic_of=_topic_of, fallback=decline, dialect=JsonRpc(version=False)
        ) as rpc:
            backend: Any = _Backend(Once(rpc), _Settings(None, None, None, None, ()))
            async with turnstop.open_rooms(backend) as rooms, trio.open_nursery() as readers:
                readers.start_soon(read, rooms, events)
                await wait_all_tasks_blocked(0.01)
                params = {"threadId": "T1", "turnId": "U1", "itemId": "m", "delta": "x"}
                delta = json.dumps({"method": "item/agentMessage/delta", "params": params})
                with counted() as passes:
                    server.write_line("\n".join([delta] * ENOUGH).encode())
                    await server.complete("U1", "completed")
                    while readers.child_tasks:
                        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert told(events) == "x" * ENOUGH
    assert passes.count < ENOUGH / 10


async def test_a_chunk_of_opencode_is_read_in_a_few_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("httpx2")
    from turnstop.adapters.opencode import open_opencode
    from turnstop.testing.recording.opencode import URL, RecordingOpenCode
    from turnstop.testing.recording.opencode._http import Stream

    events, chunk = list[Event](), list[tuple[Stream, str]]()
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with (
            open_opencode(URL, transport=server) as backend,
            turnstop.open_rooms(backend) as rooms,
            trio.open_nursery() as readers,
        ):
            readers.start_soon(read, rooms, events)
            await wait_all_tasks_blocked(0.05)
            with monkeypatch.context() as patch:
                patch.setattr(Stream, "say_raw", lambda self, text: chunk.append((self, text)))
                for _ in range(ENOUGH):
                    server.say(server.works[0], "x")
                server.finish(server.works[0])
            with counted() as passes:
                chunk[0][0].say_raw("".join(text for _, text in chunk))
                while readers.child_tasks:
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert told(events) == "x" * ENOUGH
    assert passes.count < ENOUGH / 10
