"""The probe of the real opencode: the program itself, with the lab for its model."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import httpx2
import trio

from ...abc import Backend
from ...adapters.opencode import OpenCodeContent, open_opencode
from ...lab import find_program, program_env
from .._probe import Work
from ..recording.opencode.cable import Cable
from ._lab import ITSELF, LEFT, LabProbe, token_of

__all__ = ["RealOpenCodeProbe"]


class RealOpenCodeProbe(LabProbe):
    """`open_opencode` of the program; what it is told is seen where the requests go out.

    An abort that comes before the server has begun is answered and lost, and the adapter sends
    another: the first does not count.
    """

    name = "opencode, the real program"
    unable: ClassVar[Mapping[str, str]] = ITSELF
    opening = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._cable = Cable(self._note)
        self._works: list[Work] = []
        self._calling: dict[str, int] = {}
        self._backend: Any = None

    def open(self) -> AbstractAsyncContextManager[Backend[OpenCodeContent]]:
        """Open a lab, a folder, and opencode."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[OpenCodeContent], None]:
        async with self.open_home() as home:
            async with open_opencode(
                command=find_program("opencode").path,
                directory=home,
                env=program_env("opencode", self.lab.url, home),
                transport=self._cable,
            ) as self._backend:
                yield self._backend

    def _note(self, request: httpx2.Request, response: httpx2.Response | None) -> None:
        """Learn from a request: what is asked, who is told, what is replied."""
        path = request.url.path.split("/")
        if path[-1] == "prompt_async" and response is None:
            body = json.loads(request.content)
            text = " ".join(str(part.get("text", "")) for part in body["parts"])
            self._works.append(Work(body["messageID"], text, path[2], trio.current_time()))
        elif path[-1] == "abort" and response is None:
            for work in self._works:
                if work.session == path[2] and work.ended_at is None:
                    work.told_at[:] = [*work.told_at[: bool(work.began_at)], trio.current_time()]
        elif path[-1] == "reply" and response is None:
            for work in self._works:
                if work.runs:
                    work.replies.append(json.loads(request.content)["reply"])
        self.look()

    def look(self) -> None:
        """Take from the lab what the requests do not tell."""
        for work in self._works:
            asked = self._lab.requests(token_of(work)) if self._lab is not None else []
            if asked and work.began_at is None:
                work.began_at = asked[0].parked_at or asked[0].ended_at
            ends = [one.ending_at or one.ended_at for one in asked]
            # A model that has called a tool is asked again.
            more = self._calling.get(work.name) == len(asked) and not work.told_at
            if work.ended_at is None and ends and None not in ends and not more:
                work.ended_at = max(end for end in ends if end is not None)
            elif None in ends:
                work.ended_at = None

    @property
    def works(self) -> Sequence[Work]:
        """Each message that went out."""
        self.look()
        return self._works

    async def ask(self, work: Work) -> None:
        """Have the model run a command, which opencode asks for."""
        await self.lab.parked(token_of(work))
        self._call(work, "true")

    async def leave(self, work: Work) -> None:
        """Have the model run a command that leaves a process of its own, and let it."""
        token = token_of(work)
        await self.lab.parked(token)
        self._call(work, LEFT)
        await self._allow()
        await self.lab.tool_running(token)
        await self.lab.parked(token)

    def _call(self, work: Work, command: str) -> None:
        self._calling[work.name] = len(self.lab.requests(token_of(work)))
        self.lab.order(token_of(work), "tool", command)

    async def _allow(self) -> None:
        wire = self._backend._servers.current.wire
        while not (waiting := await wire.get("/permission")):  # noqa: ASYNC110 - it only tells us
            await trio.sleep(0.02)
        for one in waiting:
            await wire.post(f"/permission/{one['id']}/reply", {"reply": "once"})

    async def die(self) -> None:
        """Kill the server."""
        server = self._backend._servers.current
        if server is not None:
            os.kill(server.program.process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()

    async def cut(self) -> None:
        """Break the connections, at this end."""
        self._cable.cut()
        await trio.lowlevel.checkpoint()
