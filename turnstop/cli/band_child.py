"""The asyncio peer in its own process: band-sdk's `BackendTurns`, driven by JSON lines.

Run by path with a Python that has `band-sdk[a2a,codex]==6.0.1`. It imports nothing of turnstop,
and never Trio. `turnstop.cli.band` starts it and reads its reports; times are seconds on
CLOCK_MONOTONIC.

Commands, one JSON object a line on stdin; the end of stdin is a `close`:

    {"op": "open", "backend": "codex", "command": [...], "cwd": DIR, "env": {...}}
    {"op": "open", "backend": "a2a", "url": URL, "streaming": true}
    {"op": "start", "turn": ID, "room": ROOM, "content": TEXT, "stop_after": SECONDS or null}
    {"op": "stop", "turn": ID}
    {"op": "close"}

Reports, on stdout: `{"op": "opened", "versions": {...}}`, `{"op": "closed", "trio": false}`, and
`{"op": "at", "turn": ID, "what": WHAT, "at": SECONDS}` with WHAT one of

    admitted   the room let the turn in
    sent       the start call left; a `stop_after` counts from here
    revealed   the start call named the turn
    asked      the stop: `cancel(room)` and `owner.cancel()`
    telling    the peer's cancel call begins
    told       the cancel request left
    acked      it was answered
    refused    it failed instead, with "error"
    ended      the backend's own end, with "how"; observed here, the peer does not wait for it
    left       the owner is done, with "error" where one was raised
    settled    what the peer calls settled: the next turn may come in
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import CancelTaskRequest, Role, SendMessageRequest
from band.core.turn_lifecycle import BackendTurns
from band.integrations.a2a.adapter import A2ATaskRun, _prepended, _reveal_task
from band.integrations.a2a.protocol import TERMINAL_TASK_STATES, apply_task_stream_event, state_name
from band.integrations.codex import CodexStdioClient

_on_sent: ContextVar[Callable[[], None]] = ContextVar("on_sent", default=lambda: None)


class _Turn:
    """One turn: what was asked for, and its owner task."""

    def __init__(self, command: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
        self.id: str = command["turn"]
        self.room: str = command["room"]
        self.content: str = command["content"]
        self.stop_after: float | None = command.get("stop_after")
        self.owner: asyncio.Task[None] | None = None
        self.stop: Callable[[], None] = lambda: None
        self.reached: set[str] = set()
        self._tell = tell

    def say(self, what: str, *, at: float | None = None, **more: str | None) -> None:
        self.reached.add(what)
        at = time.monotonic() if at is None else at
        report = {"op": "at", "turn": self.id, "what": what, "at": at, **more}
        self._tell({name: value for name, value in report.items() if value is not None})

    def start_left(self) -> None:
        self.say("sent")
        if self.stop_after is not None:
            asyncio.get_running_loop().call_later(self.stop_after, self.stop)


class _Client(CodexStdioClient):
    """band's own client, which also says when a request has left."""

    async def _send_json(self, payload: dict[str, Any]) -> None:
        await super()._send_json(payload)
        _on_sent.get()()


class _Codex:
    """A codex app-server through band's client: one process, one thread a room."""

    def __init__(self, command: list[str], cwd: str, env: dict[str, str]) -> None:
        self._client = _Client(command=command, cwd=cwd, env=env)
        self._cwd = cwd
        self._threads: dict[str, str] = {}
        self._ends: defaultdict[str, asyncio.Future[str]] = defaultdict(
            asyncio.get_running_loop().create_future
        )

    async def open(self) -> None:
        await self._client.connect()
        await self._client.initialize(
            client_name="band", client_title="band", client_version=version("band-sdk")
        )
        self._reader = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._reader.cancel()
        await self._client.close()

    async def _read(self) -> None:
        while True:
            event = await self._client.recv_event()
            if event.is_request and event.id is not None:
                await self._client.respond_error(event.id, code=-32601, message="not offered")
            elif event.method == "turn/completed" and isinstance(event.params, dict):
                turn = event.params["turn"]
                if not self._ends[turn["id"]].done():
                    self._ends[turn["id"]].set_result(turn["status"])

    async def start(self, turn: _Turn) -> tuple[_Turn, str, str]:
        if turn.room not in self._threads:
            settings = {
                "cwd": self._cwd,
                "approvalPolicy": "never",
                "sandbox": "danger-full-access",
            }
            made = await self._client.request("thread/start", settings)
            self._threads[turn.room] = made["thread"]["id"]
        thread = self._threads[turn.room]
        _on_sent.set(turn.start_left)
        begin = {"threadId": thread, "input": [{"type": "text", "text": turn.content}]}
        started = await self._client.request("turn/start", begin)
        handle = (turn, thread, started["turn"]["id"])
        end = self._ends[handle[2]]
        end.add_done_callback(lambda end: turn.say("ended", how=end.result()))
        return handle

    async def follow(self, handle: tuple[_Turn, str, str]) -> None:
        await asyncio.shield(self._ends[handle[2]])

    async def cancel(self, handle: tuple[_Turn, str, str]) -> None:
        turn, thread, name = handle
        _on_sent.set(lambda: turn.say("told"))
        await self._client.request("turn/interrupt", {"threadId": thread, "turnId": name})


class _A2A:
    """An A2A server through a2a-sdk, called as band's adapter calls it."""

    def __init__(self, url: str, streaming: bool = True) -> None:
        self._url, self._streaming = url, streaming

    async def open(self) -> None:
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(10.0, read=300.0), trust_env=False)
        config = ClientConfig(streaming=self._streaming, httpx_client=self._http)
        self._client = await ClientFactory(config).create_from_url(self._url)

    async def close(self) -> None:
        await self._client.close()
        await self._http.aclose()

    async def start(self, turn: _Turn) -> tuple[_Turn, A2ATaskRun | None, Any] | None:
        message = new_text_message(turn.content, role=Role.ROLE_USER)
        events = self._client.send_message(SendMessageRequest(message=message))
        turn.start_left()
        read: list[Any] = []
        run = await _reveal_task(self._client, turn.room, events, read)
        return None if run is None else (turn, run, _prepended(read, events))

    async def follow(self, handle: tuple[_Turn, A2ATaskRun, Any]) -> None:
        turn, run, events = handle
        task = None
        async for event in events:
            task = apply_task_stream_event(task, event)
            run.finished = task is not None and task.status.state in TERMINAL_TASK_STATES
        turn.say("ended", how="" if task is None else state_name(task.status.state))

    async def cancel(self, handle: tuple[_Turn, A2ATaskRun, Any]) -> None:
        turn, run, _ = handle
        if not run.finished:
            call = self._client.cancel_task(CancelTaskRequest(id=run.task_id))
            turn.say("told")
            await call


class _Host:
    """Turns of rooms, one after another in each, as the peer's host runs them."""

    def __init__(self) -> None:
        self._reports: list[dict[str, Any]] = []
        self._turns: dict[str, _Turn] = {}
        self._last: dict[str, asyncio.Task[None]] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._backend: Any = None
        self._registry: BackendTurns[Any] = BackendTurns(self._cancel, provider="bench")

    def tell(self, report: dict[str, Any]) -> None:
        # Written in a later step, so that reporting costs the measured step nothing.
        if not self._reports:
            asyncio.get_running_loop().call_soon(self.flush)
        self._reports.append(report)

    def flush(self) -> None:
        reports, self._reports = self._reports, []
        sys.stdout.write("".join(json.dumps(report) + "\n" for report in reports))
        sys.stdout.flush()

    async def obey(self, command: dict[str, Any]) -> None:
        op = command.pop("op")
        if op == "open":
            kind = {"codex": _Codex, "a2a": _A2A}[command.pop("backend")]
            self._backend = kind(**command)
            await self._backend.open()
            names = ("band-sdk", "a2a-sdk")
            self.tell({"op": "opened", "versions": {name: version(name) for name in names}})
        elif op == "start":
            self._start(_Turn(command, self.tell))
        elif op == "stop":
            self._turns[command["turn"]].stop()

    def _start(self, turn: _Turn) -> None:
        self._turns[turn.id] = turn
        turn.stop = lambda: self._stop(turn)
        turn.owner = asyncio.create_task(self._own(turn, self._last.get(turn.room)))
        self._last[turn.room] = turn.owner
        watch = asyncio.create_task(self._watch(turn, turn.owner))
        self._watching.add(watch)
        watch.add_done_callback(self._watching.discard)

    async def _own(self, turn: _Turn, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        async with self._registry.running(turn.room):
            turn.say("admitted")
            handle = await self._registry.started(turn.room, self._backend.start(turn))
            turn.say("revealed")
            if handle is not None:
                await self._backend.follow(handle)

    def _stop(self, turn: _Turn) -> None:
        if turn.owner is None or turn.owner.done() or "asked" in turn.reached:
            return
        at = time.monotonic()
        if "admitted" in turn.reached:
            self._registry.cancel(turn.room)
        turn.owner.cancel()
        turn.say("asked", at=at)

    async def _cancel(self, handle: tuple[_Turn, Any, Any]) -> None:
        turn = handle[0]
        turn.say("telling")
        try:
            await self._backend.cancel(handle)
        except BaseException as error:
            turn.say("refused", error=f"{type(error).__name__}: {error}")
            raise
        turn.say("acked")

    async def _watch(self, turn: _Turn, owner: asyncio.Task[None]) -> None:
        await asyncio.wait({owner})
        error = None if owner.cancelled() else owner.exception()
        turn.say("left", error=None if error is None else repr(error))
        await self._registry.settled(turn.room)
        turn.say("settled")

    async def close(self) -> None:
        for turn in self._turns.values():
            turn.stop()
        if self._watching:
            await asyncio.wait(self._watching)
        await self._registry.drain()
        if self._backend is not None:
            await self._backend.close()
        self.tell({"op": "closed", "trio": "trio" in sys.modules})
        self.flush()


async def main() -> None:
    """Obey stdin until it ends."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    host = _Host()
    try:
        while line := await lines.readline():
            command = json.loads(line)
            if command["op"] == "close":
                break
            await host.obey(command)
    finally:
        await host.close()


if __name__ == "__main__":
    asyncio.run(main())
