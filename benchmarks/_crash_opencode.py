"""A real opencode server that nobody of ours owns: for `crash_points.py`."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import trio
from _crash_judge import Work, overlapping

from turnstop.adapters.opencode import open_opencode
from turnstop.lab import Behaviour, Lab, find_program, open_lab, program_env, write_prompt
from turnstop.transports.listening import open_listening

WORDS = ["park", "park", "hold", "headers", "drip", "tool", "answer"]
LONGEST = 1.5
TOOL = Behaviour("tool", None, "sleep 300", "park")
RECENT = 20
ALLOWED = json.dumps({"bash": "allow"})


@asynccontextmanager
async def open_backend(
    url: str, directory: str, password: str
) -> AsyncGenerator[tuple[Any, Any], None]:
    async with open_opencode(url, directory=directory, password=password) as opencode:
        yield opencode, write


def write(token: str, word: Any) -> str:
    behaviour = TOOL if word == "tool" else Behaviour(word)
    return write_prompt(behaviour, token)[1]


@attrs.define(eq=False)
class Far:
    """The server, as the model that it asks tells, and the processes of its tools."""

    lab: Lab
    http: httpx2.AsyncClient
    options: dict[str, Any]
    exact: bool = True
    # The model's end of a connection may be told after the server's.
    tolerance: float = 0.1
    tools: set[str] = attrs.field(factory=set)
    _offset: float = attrs.field(factory=lambda: time.monotonic() - trio.current_time())

    def works(self) -> list[Work]:
        return [self._work(token) for token in {one.token for one in self.lab.exchanges} - {""}]

    def _work(self, token: str) -> Work:
        asked = self.lab.requests(token)
        ends = [one.ended_at for one in asked]
        ends += [one.gone_at for one in self.lab.seen_processes(token)]
        ended = None if None in ends else max(filter(None, ends)) + self._offset
        return Work(token, asked[0].arrived_at + self._offset, ended)

    def early(self) -> list[str]:
        return overlapping(self.works())

    async def at_work(self) -> list[str]:
        """The turns that wait for the model, or have a tool's process; and sessions at work."""
        busy = (await self.http.get("/session/status")).json()
        alive = {one.token for one in self.lab.exchanges if one.ended_at is None and not one.side}
        recent = self.lab.exchanges[-RECENT:]
        self.tools |= {one.token for one in recent if one.behaviour.word == "tool"}
        self.tools = {token for token in self.tools if self.lab.processes(token)}
        return sorted(alive | self.tools) or [f"session {one}" for one in busy]

    async def settled(self, token: str) -> None:
        await trio.lowlevel.checkpoint()
        if any(one.behaviour.word == "tool" for one in self.lab.requests(token)):
            # From here on their end is seen.
            self.lab.processes(token)


@asynccontextmanager
async def open_far(folder: Path) -> AsyncGenerator[Far, None]:
    password, home = secrets.token_hex(8), folder / "opencode"
    async with open_lab() as lab:
        env = program_env("opencode", lab.url, home)
        env |= {"OPENCODE_SERVER_PASSWORD": password, "OPENCODE_PERMISSION": ALLOWED}
        async with open_listening(
            [str(find_program("opencode").path), "serve", "--hostname", "127.0.0.1", "--port", "0"],
            ready=r"listening on (http://\S+)",
            mark="TURNSTOP_CRASH_POINTS",
            farewell=trio.lowlevel.checkpoint,
            name="opencode",
            cwd=str(home),
            env=env,
        ) as program:
            where = {"url": program.address, "directory": str(home), "password": password}
            params = {"directory": str(home)}
            async with httpx2.AsyncClient(
                base_url=program.address,
                auth=("opencode", password),
                params=params,
                trust_env=False,
            ) as http:
                yield Far(lab, http, where)
