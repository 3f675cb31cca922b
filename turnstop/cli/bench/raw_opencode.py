"""opencode by its own HTTP interface: a prompt that is accepted, an abort, and this turn's end.

An abort that overtakes its prompt is lost, so the prompt's 204 is waited for. The end is the
assistant's message whose parent is ours, where a stop was asked for together with the abort's
answer; an idle session ends nothing, since an abort makes two. As of version 1.18.33.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import trio

from ..._ending import Ending
from ..._service import open_service
from ..._unwrap import open_private_nursery
from ...transports.process import ChildProcess, open_process
from .model import BenchFailed
from .programs import whole
from .raw import RawRun, RawRunner, Refused
from .raw_lines import GRACE

_LISTENS = re.compile(rb"listening on (http://\S+)")
_HERE = ("--hostname", "127.0.0.1", "--port", "0")


class _Opencode:
    def __init__(self, http: httpx2.AsyncClient, nursery: trio.Nursery) -> None:
        self._http = http
        self._nursery = nursery
        self._changed = trio.lowlevel.ParkingLot()
        self._numbers = itertools.count()
        self._sessions: dict[str, str] = {}
        self._runs: dict[str, RawRun] = {}
        self._ended: dict[str, tuple[float, Ending]] = {}
        self.connected = trio.Event()

    async def read(self) -> None:
        """Hear the events, to the end of the server."""
        async with self._http.stream("GET", "/event", timeout=None) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    self._hear(json.loads(line.removeprefix("data: ")))
                    self._changed.unpark_all()

    def _hear(self, event: Mapping[str, Any]) -> None:
        given = event["properties"]
        match event["type"]:
            case "server.connected":
                self.connected.set()
            case "message.updated" if given["info"]["role"] == "assistant":
                info = given["info"]
                if ending := _ending(info):
                    self._ended.setdefault(info["parentID"], (trio.current_time(), ending))
            case "permission.asked" if run := self._runs.get(given["sessionID"]):
                run.pending.set()
                if run.grants:
                    self._nursery.start_soon(self._allow, given["id"])

    async def _allow(self, number: str) -> None:
        await self._post(f"/permission/{number}/reply", {"reply": "once"})

    async def _post(self, path: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
        response = await self._http.post(path, json=body)
        if response.is_error:
            raise Refused(response.text)
        return response

    async def work(self, run: RawRun, room: str, content: str) -> None:
        if room not in self._sessions:
            made = await self._post("/session", {"title": room})
            self._sessions[room] = made.json()["id"]
        session, number = self._sessions[room], self._number()
        self._runs[session] = run
        run.left.set()
        parts = [{"type": "text", "text": content}]
        await self._post(f"/session/{session}/prompt_async", {"messageID": number, "parts": parts})
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._abort, run, session)
            while number not in self._ended or (run.sent_at and not run.acked_at):
                await self._changed.park()
            nursery.cancel_scope.cancel()
        at, ending = self._ended[number]
        run.note_end(ending, max(at, run.acked_at or at))

    async def _abort(self, run: RawRun, session: str) -> None:
        await run.asked.wait()
        run.note_sent()
        await self._post(f"/session/{session}/abort")
        run.note_acked()
        self._changed.unpark_all()

    def _number(self) -> str:
        """A message's id as opencode makes them: by their order its history is sorted."""
        count = int(time.time() * 1000) * 0x1000 + next(self._numbers)
        return f"msg_{count & (1 << 48) - 1:012x}{secrets.token_hex(7)}"


def _ending(info: Mapping[str, Any]) -> Ending | None:
    """How a message of the assistant ended its turn; None where the turn goes on."""
    if error := info.get("error"):
        return Ending.STOPPED if error["name"] == "MessageAbortedError" else Ending.FAILED
    if "completed" in info["time"] and info.get("finish") != "tool-calls":
        return Ending.FINISHED
    return None


@asynccontextmanager
async def open_raw_opencode(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[RawRunner, None]:
    """Run turns of a server of its own by its bare interface."""
    argv = [*command, *_HERE]
    async with open_process(argv, cwd=cwd, env=whole(env), grace=GRACE) as child:
        url = await _address(child)
        params = {"directory": cwd}
        async with (
            httpx2.AsyncClient(base_url=url, params=params, timeout=60, trust_env=False) as http,
            open_service() as service,
            open_private_nursery() as nursery,
        ):
            opencode = _Opencode(http, nursery)
            service.start_soon(opencode.read)
            service.start_soon(_discard, child)
            await opencode.connected.wait()
            yield RawRunner(opencode.work, nursery)
            nursery.cancel_scope.cancel()


async def _address(child: ChildProcess) -> str:
    said = b""
    async for chunk in child.stdout:
        said += chunk
        if found := _LISTENS.search(said):
            return found[1].decode()
    raise BenchFailed(f"opencode did not listen: {child.describe()}")


async def _discard(child: ChildProcess) -> None:
    async for _ in child.stdout:
        pass
