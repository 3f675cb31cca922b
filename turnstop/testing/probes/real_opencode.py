"""The probe of the real opencode: the program itself, with the lab for its model."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Literal

import httpx2
import trio

from ..._budget import StopBudget
from ..._service import open_service
from ...abc import Backend
from ...adapters.opencode import OpenCodeContent, open_opencode
from ...lab import Behaviour, Lab, find_program, open_lab, program_env, read_prompt, write_prompt
from .._probe import Probe, Work
from ..recording.opencode.cable import Cable

__all__ = ["RealOpenCodeProbe"]

_ITSELF = "the real program answers as it does: there is nothing that could hold it back"
_LEFT = "setsid sleep 300 >/dev/null 2>&1 &"


class RealOpenCodeProbe(Probe):
    """`open_opencode`, with a model that goes on until it is ordered otherwise.

    That a turn is over is told by the model: its requests have ended, and no more will come. What
    the server is told is seen where the requests go out. An abort that comes before the server has
    begun is answered and lost, and the adapter sends another: the first does not count.
    """

    name = "opencode, the real program"
    unable: ClassVar[Mapping[str, str]] = {
        "hold_starts": _ITSELF,
        "refuse_starts": _ITSELF,
        "hold_cancels": _ITSELF,
        "refuse_cancels": _ITSELF,
        "ignore_cancels": _ITSELF,
        "hold_acknowledgements": _ITSELF,
        "end_late": _ITSELF,
        "say_end_again": _ITSELF,
        "babble": _ITSELF,
    }
    clock: Literal["virtual", "real"] = "real"
    budget = StopBudget(cancel_within=10.0, kill_within=5.0)
    opening = 60.0

    def __init__(self) -> None:
        self._cable = Cable(self._note)
        self._works: list[Work] = []
        self._calling: dict[str, int] = {}
        self._lab: Lab | None = None
        self._backend: Any = None

    def open(self) -> AbstractAsyncContextManager[Backend[OpenCodeContent]]:
        """Open a lab, a folder, and opencode."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[OpenCodeContent], None]:
        # What has been ended may be writing still.
        folder = partial(tempfile.TemporaryDirectory, ignore_cleanup_errors=True)
        with folder(prefix="turnstop-probe-") as home:
            async with open_service() as service, open_lab() as self._lab:
                # It never holds: it is looked at whenever the lab has seen something.
                service.start_soon(self._lab.until, self._look)
                async with open_opencode(
                    command=find_program("opencode").path,
                    directory=home,
                    env=program_env("opencode", self._lab.url, home),
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
        self._look()

    def _look(self) -> None:
        """Take from the lab what the requests do not tell."""
        for work in self._works:
            asked = self._lab.requests(_token(work)) if self._lab is not None else []
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
        self._look()
        return self._works

    def content(self, text: str) -> object:
        """A prompt that tells the lab to be silent until it is ordered otherwise."""
        return f"{text} {write_prompt(Behaviour('park', 0))[1]}"

    @property
    def lab(self) -> Lab:
        """The model, from the opening on."""
        assert self._lab is not None
        return self._lab

    async def say(self, work: Work, text: str) -> None:
        """Have the model say a piece; one that nobody listens to any more says nothing."""
        self.lab.order(_token(work), "say", text)
        await trio.sleep(0.05)

    async def finish(self, work: Work) -> None:
        """Have the model end its answer."""
        self.lab.order(_token(work), "end")
        await trio.lowlevel.checkpoint()

    async def fail(self, work: Work) -> None:
        """Have the model fail."""
        self.lab.order(_token(work), "fail")
        await trio.lowlevel.checkpoint()

    async def ask(self, work: Work) -> None:
        """Have the model run a command, which opencode asks for."""
        await self.lab.parked(_token(work))
        self._call(work, "true")

    async def leave(self, work: Work) -> None:
        """Have the model run a command that leaves a process of its own, and let it."""
        token = _token(work)
        await self.lab.parked(token)
        self._call(work, _LEFT)
        await self._allow()
        await self.lab.tool_running(token)
        await self.lab.parked(token)

    def _call(self, work: Work, command: str) -> None:
        self._calling[work.name] = len(self.lab.requests(_token(work)))
        self.lab.order(_token(work), "tool", command)

    async def _allow(self) -> None:
        wire = self._backend._servers.current.wire
        while not (waiting := await wire.get("/permission")):  # noqa: ASYNC110 - it only tells us
            await trio.sleep(0.02)
        for one in waiting:
            await wire.post(f"/permission/{one['id']}/reply", {"reply": "once"})

    @property
    def alive(self) -> Sequence[str]:
        """The processes that its commands have left."""
        tokens = [_token(work) for work in self._works]
        return [str(process) for token in tokens for process in self.lab.processes(token)]

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


def _token(work: Work) -> str:
    found = read_prompt(work.text)
    return found[0] if found else ""
