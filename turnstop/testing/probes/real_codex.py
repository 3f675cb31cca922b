"""The probe of the real codex: the program itself, with the lab for its model."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import trio
import trio.lowlevel

from ..._budget import StopBudget
from ..._service import open_service
from ...abc import Backend
from ...adapters.codex import CodexContent, open_codex
from ...lab import (
    Behaviour,
    Lab,
    find_program,
    open_lab,
    program_env,
    read_prompt,
    write_prompt,
)
from .._probe import Probe, Work
from ._codex_wire import TurnLog, read_pipe

__all__ = ["RealCodexProbe"]

_ITSELF = "the real program answers as it does: there is nothing that could hold it back"
_TOOL: dict[str, Any] = {
    "type": "function",
    "name": "ask_the_room",
    "description": "Asks whoever is in the room.",
    "inputSchema": {"type": "object", "properties": {}},
}
_LEFT = "setsid sleep 300 >/dev/null 2>&1 &"


class RealCodexProbe(Probe):
    """`open_codex`, with a model that goes on until it is ordered otherwise.

    That a turn is over is told by the model: its requests have ended, and codex will make no more.
    What codex is told is seen by a tap on its pipes. codex refuses an interrupt until it has begun
    the turn, and the adapter repeats it until then: one that comes too early does not count.
    """

    name = "codex, the real program"
    unable: ClassVar[Mapping[str, str]] = {
        "reach": "codex is spoken to over the pipes of its process: whoever loses them ends the "
        "process, and a new one knows nothing of the turns of the old",
        "hold_starts": _ITSELF,
        "refuse_starts": _ITSELF,
        "hold_cancels": _ITSELF,
        "refuse_cancels": _ITSELF,
        "ignore_cancels": _ITSELF,
        "hold_acknowledgements": _ITSELF,
        "end_late": _ITSELF,
        "say_end_again": _ITSELF,
        "babble": _ITSELF,
        "cut": "its pipes are its own: when they close, it ends",
    }
    clock: Literal["virtual", "real"] = "real"
    budget = StopBudget(cancel_within=10.0, kill_within=5.0)

    def __init__(self) -> None:
        self._log = TurnLog()
        self._lab: Lab | None = None
        self._codex: Any = None
        self._dead: set[Work] = set()

    def open(self) -> AbstractAsyncContextManager[Backend[CodexContent]]:
        """Open a lab, a folder, and codex with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[CodexContent], None]:
        with tempfile.TemporaryDirectory(prefix="turnstop-probe-") as home:
            pipe = str(Path(home, "wire"))
            os.mkfifo(pipe)
            tap = [sys.executable, "-m", "turnstop.lab.tap", pipe, "--"]
            async with open_service() as service, open_lab() as self._lab:
                service.start_soon(read_pipe, pipe, self._note)
                # It never holds: it is looked at whenever the lab has seen something.
                service.start_soon(self._lab.until, self._look)
                env = program_env("codex", self._lab.url, Path(home, "codex"))
                env["PYTHONPATH"] = os.pathsep.join(sys.path)
                command = [*tap, find_program("codex").path, "app-server"]
                async with open_codex(command, cwd=home, env=env, tools=[_TOOL]) as self._codex:
                    yield self._codex

    def _note(self, direction: str, frame: Any) -> None:
        self._log.note(direction, frame)
        self._look()

    def _look(self) -> None:
        """Take from the lab what the wire does not tell."""
        for work in self._log.works:
            asked = self._lab.requests(_token(work)) if self._lab is not None else []
            if work.began_at is None and asked:
                work.began_at = asked[0].parked_at or asked[0].ended_at
            known = work.name in self._log.over or work in self._dead
            if known and work.ended_at is None:
                ends = [one.ending_at or one.ended_at for one in asked]
                ends = ends or [self._log.over.get(work.name)]
                if None not in ends:
                    work.ended_at = max(end for end in ends if end is not None)

    @property
    def works(self) -> Sequence[Work]:
        """Each `turn/start`."""
        return self._log.works

    def content(self, text: str) -> object:
        """A prompt that tells the lab to be silent until it is ordered otherwise."""
        return f"{text} {write_prompt(Behaviour('park', 0))[1]}"

    def _order(self, work: Work, order: Any, text: str = "") -> None:
        assert self._lab is not None
        self._lab.order(_token(work), order, text)

    async def say(self, work: Work, text: str) -> None:
        """Have the model say a piece; one that nobody listens to any more says nothing."""
        self._order(work, "say", text)
        await trio.sleep(0.05)

    async def finish(self, work: Work) -> None:
        """Have the model end its answer."""
        self._order(work, "end")
        await trio.lowlevel.checkpoint()

    async def fail(self, work: Work) -> None:
        """Have the model fail."""
        self._order(work, "fail")
        await trio.lowlevel.checkpoint()

    async def ask(self, work: Work) -> None:
        """Have the model call a tool that is the application's: that is a question to it."""
        assert self._lab is not None
        await self._lab.parked(_token(work))
        self._order(work, "call", _TOOL["name"])

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is the output of the tool."""
        return reply in str(answer)

    async def leave(self, work: Work) -> None:
        """Have the model run a command that leaves a process of its own."""
        assert self._lab is not None
        self._order(work, "tool", _LEFT)
        await self._lab.tool_running(_token(work))
        await self._lab.parked(_token(work))

    @property
    def alive(self) -> Sequence[str]:
        """The processes that its commands have left."""
        assert self._lab is not None
        tokens = [_token(work) for work in self._log.works]
        return [str(process) for token in tokens for process in self._lab.processes(token)]

    async def die(self) -> None:
        """Kill codex, and the tap with it."""
        peer = self._codex._codex.current
        if peer is not None:
            self._dead.update(work for work in self._log.works if work.ended_at is None)
            os.killpg(peer.process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()


def _token(work: Work) -> str:
    found = read_prompt(work.text)
    return found[0] if found else ""
