"""The probe of the real codex: the program itself, with the lab for its model."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import trio
import trio.lowlevel

from ..._service import open_service
from ...abc import Backend
from ...adapters.codex import CodexContent, open_codex
from ...lab import find_program, program_env
from .._probe import Work
from ._codex_wire import TurnLog, read_pipe
from ._lab import ITSELF, LabProbe, token_of

__all__ = ["RealCodexProbe"]

_TOOL: dict[str, Any] = {
    "type": "function",
    "name": "ask_the_room",
    "description": "Asks whoever is in the room.",
    "inputSchema": {"type": "object", "properties": {}},
}


class RealCodexProbe(LabProbe):
    """`open_codex` of the program, with a tap on its pipes.

    codex refuses an interrupt until it has begun the turn, and the adapter repeats it until then:
    one that comes too early does not count.
    """

    name = "codex, the real program"
    unable: ClassVar[Mapping[str, str]] = {
        **ITSELF,
        "reach": "codex is spoken to over the pipes of its process: whoever loses them ends the "
        "process, and a new one knows nothing of the turns of the old",
        "cut": "its pipes are its own: when they close, it ends",
    }

    def __init__(self) -> None:
        super().__init__()
        self._log = TurnLog()
        self._codex: Any = None

    def open(self) -> AbstractAsyncContextManager[Backend[CodexContent]]:
        """Open a lab, a folder, and codex with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[CodexContent], None]:
        async with self.open_home() as home, open_service() as service:
            pipe = str(Path(home, "wire"))
            os.mkfifo(pipe)
            tap = [sys.executable, "-m", "turnstop.lab.tap", pipe, "--"]
            service.start_soon(read_pipe, pipe, self._note)
            env = program_env("codex", self.lab.url, Path(home, "codex"))
            env["PYTHONPATH"] = os.pathsep.join(sys.path)
            command = [*tap, find_program("codex").path, "app-server"]
            async with open_codex(command, cwd=home, env=env, tools=[_TOOL]) as self._codex:
                yield self._codex

    def _note(self, direction: str, frame: Any) -> None:
        self._log.note(direction, frame)
        self.look()

    def over(self, work: Work) -> float | None:
        """codex has said that it is completed."""
        return self._log.over.get(work.name)

    @property
    def works(self) -> Sequence[Work]:
        """Each `turn/start`."""
        return self._log.works

    async def ask(self, work: Work) -> None:
        """Have the model call a tool that is the application's: that is a question to it."""
        await self.lab.parked(token_of(work))
        self.order(work, "call", _TOOL["name"])

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is the output of the tool."""
        return reply in str(answer)

    async def die(self) -> None:
        """Kill codex, and the tap with it."""
        peer = self._codex._codex.current
        if peer is not None:
            self.bury()
            os.killpg(peer.process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()
