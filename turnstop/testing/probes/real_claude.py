"""The probe of the real Claude Code: the program itself, with the lab for its model."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import trio

from ...abc import Backend
from ...adapters.claude import ClaudeContent, open_claude
from ...lab import find_program, program_env
from ...transports.peer import Peer
from .._probe import Work
from ._claude_wire import MessageLog, Tapped
from ._lab import ITSELF, LabProbe, token_of
from .claude import ClaudeProbe

__all__ = ["RealClaudeProbe"]

_OPTIONS = [{"label": one, "description": one} for one in ("tea", "coffee")]
_ASKED = {"question": "Which?", "header": "Drink", "options": _OPTIONS, "multiSelect": False}


class RealClaudeProbe(LabProbe):
    """`open_claude` of the program; what it is told is seen where it is put into words."""

    name = "claude, the real program"
    unable: ClassVar[Mapping[str, str]] = {
        **ITSELF,
        **ClaudeProbe.unable,
        "cut": "its pipes are its own: when they close, it ends",
    }
    asks_again = True

    def __init__(self) -> None:
        super().__init__()
        self._log = MessageLog(self.look)
        self._peers: list[Peer] = []

    def open(self) -> AbstractAsyncContextManager[Backend[ClaudeContent]]:
        """Open a lab, a folder, and Claude with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[ClaudeContent], None]:
        async with self.open_home() as home:
            async with open_claude(
                find_program("claude").path,
                cwd=home,
                env=program_env("claude", self.lab.url, home),
                setting_sources=(),
                # It asks all the same where a tool is nothing but a question.
                permission_mode="bypassPermissions",
            ) as claude:
                self._tap(claude)
                yield claude

    def _tap(self, claude: Any) -> None:
        plain = claude._open_process

        @asynccontextmanager
        async def open_process(mark: str, session: str, resume: bool) -> AsyncGenerator[Peer, None]:
            dialect = Tapped(self._log, session)
            async with plain(mark, session, resume, dialect) as peer:
                self._peers.append(peer)
                yield peer

        claude._open_process = open_process

    def over(self, work: Work) -> float | None:
        """Its result was told, or its message was cancelled."""
        return self._log.over.get(work.name)

    @property
    def works(self) -> Sequence[Work]:
        """Each message."""
        return self._log.works

    async def ask(self, work: Work) -> None:
        """Have the model ask the user."""
        await self.lab.parked(token_of(work))
        self.order(work, "call", "AskUserQuestion", {"questions": [_ASKED]})

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is among the answers that the tool is given."""
        given = answer.get("updatedInput") if isinstance(answer, Mapping) else None
        return isinstance(given, Mapping) and reply in given.get("answers", {}).values()

    async def die(self) -> None:
        """Kill every process of Claude's."""
        for peer in self._peers:
            if peer.process.returncode is None:
                self.bury()
                os.killpg(peer.process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()
