"""codex by its bare protocol: JSON lines, and an interrupt once the turn was seen to start."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from ..._ending import Ending
from ..._service import open_service
from ..._unwrap import open_private_nursery
from .model import BenchFailed
from .raw import RawRun, RawRunner

_CLOSING = 5.0
_ENDINGS = {"completed": Ending.FINISHED, "interrupted": Ending.STOPPED, "failed": Ending.FAILED}


class _Client:
    """Requests, answers, and which turn was seen to start and to end."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = trio.lowlevel.ParkingLot()
        self.started: set[str] = set()
        self.ended: dict[str, tuple[float, str]] = {}

    async def read(self) -> None:
        rest = b""
        assert self._process.stdout is not None
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
            self._changed.unpark_all()
        raise BenchFailed("codex ended while the bench was driving it by its bare protocol")

    def _hear(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._answers[message["id"]] = message
        elif message["method"] == "turn/started":
            self.started.add(message["params"]["turn"]["id"])
        elif message["method"] == "turn/completed":
            turn = message["params"]["turn"]
            self.ended[turn["id"]] = trio.current_time(), turn["status"]

    async def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps(message).encode() + b"\n")

    async def call(
        self, method: str, sent: Callable[[], None] = lambda: None, **params: Any
    ) -> Any:
        number = next(self._ids)
        await self.send({"id": number, "method": method, "params": params})
        sent()
        while number not in self._answers:
            await self._changed.park()
        answer = self._answers.pop(number)
        if "error" in answer:
            raise _Refused(answer["error"]["message"])
        return answer["result"]

    async def wait(self, turn: str, facts: set[str] | dict[str, tuple[float, str]]) -> None:
        while turn not in facts:
            await self._changed.park()


class _Refused(Exception):
    """An error answer."""


class _RawCodex:
    def __init__(self, client: _Client, cwd: str) -> None:
        self._client = client
        self._cwd = cwd
        self._threads: dict[str, str] = {}

    async def work(self, run: RawRun, room: str, content: str) -> None:
        client = self._client
        if room not in self._threads:
            made = await client.call("thread/start", cwd=self._cwd)
            self._threads[room] = made["thread"]["id"]
        thread = self._threads[room]
        text = [{"type": "text", "text": content}]
        begun = await client.call("turn/start", run.left.set, threadId=thread, input=text)
        turn = begun["turn"]["id"]
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._interrupt, run, thread, turn)
            await client.wait(turn, client.ended)
            nursery.cancel_scope.cancel()
        at, status = client.ended[turn]
        run.note_end(_ENDINGS[status], at)

    async def _interrupt(self, run: RawRun, thread: str, turn: str) -> None:
        await run.asked.wait()
        # Sent earlier, it is refused, and the turn runs on.
        await self._client.wait(turn, self._client.started)
        names = {"threadId": thread, "turnId": turn}
        try:
            await self._client.call("turn/interrupt", run.note_sent, **names)
            run.acked_at = trio.current_time()
        except _Refused:
            pass  # It ended meanwhile: turn/completed says so.


@asynccontextmanager
async def open_raw_codex(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[RawRunner, None]:
    """Run turns of a codex of its own by the bare protocol."""
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=dict(env),
        start_new_session=True,
    )
    client = _Client(process)
    try:
        async with open_service() as service:
            service.start_soon(client.read)
            await client.call(
                "initialize", clientInfo={"name": "bench", "title": "bench", "version": "1"}
            )
            await client.send({"method": "initialized"})
            async with open_private_nursery() as nursery:
                yield RawRunner(_RawCodex(client, cwd).work, nursery)
                nursery.cancel_scope.cancel()
    finally:
        await _end(process)


async def _end(process: trio.Process) -> None:
    with trio.move_on_after(_CLOSING, shield=True):
        assert process.stdin is not None
        await process.stdin.aclose()
        await process.wait()
    if process.returncode is None:
        process.kill()
        with trio.move_on_after(_CLOSING, shield=True):
            await process.wait()
