"""The probe of the real Claude Code: the program itself, with the lab for its model."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Literal

import trio

from ..._budget import StopBudget
from ..._service import open_service
from ...abc import Backend
from ...adapters.claude import ClaudeContent, open_claude
from ...lab import (
    Behaviour,
    Lab,
    find_program,
    open_lab,
    program_env,
    read_prompt,
    write_prompt,
)
from ...transports.peer import Peer
from .._probe import Probe, Work
from ._claude_wire import MessageLog, Tapped
from .claude import ClaudeProbe

__all__ = ["RealClaudeProbe"]

_ITSELF = "the real program answers as it does: there is nothing that could hold it back"
_LEFT = "setsid sleep 300 >/dev/null 2>&1 &"
_OPTIONS = [{"label": one, "description": one} for one in ("tea", "coffee")]
_ASKED = {"question": "Which?", "header": "Drink", "options": _OPTIONS, "multiSelect": False}


class RealClaudeProbe(Probe):
    """`open_claude`, with a model that goes on until it is ordered otherwise.

    That a turn is over is told by the model: its requests have ended, and Claude will make no more.
    What Claude is told is seen where it is put into words.
    """

    name = "claude, the real program"
    unable: ClassVar[Mapping[str, str]] = {
        **ClaudeProbe.unable,
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
        self._log = MessageLog(self._look)
        self._lab: Lab | None = None
        self._peers: list[Peer] = []
        self._dead: set[Work] = set()
        self._spoken: set[Work] = set()

    def open(self) -> AbstractAsyncContextManager[Backend[ClaudeContent]]:
        """Open a lab, a folder, and Claude with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[ClaudeContent], None]:
        with tempfile.TemporaryDirectory(
            prefix="turnstop-probe-", ignore_cleanup_errors=True
        ) as home:
            async with open_service() as service, open_lab() as self._lab:
                # It never holds: it is looked at whenever the lab has seen something.
                service.start_soon(self._lab.until, self._look)
                env = program_env("claude", self._lab.url, home)
                async with open_claude(
                    find_program("claude").path,
                    cwd=home,
                    env=env,
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
        """Each message."""
        return self._log.works

    def content(self, text: str) -> object:
        """A prompt that tells the lab to be silent until it is ordered otherwise."""
        return f"{text}\n{write_prompt(Behaviour('park', 0))[1]}"

    def _order(self, work: Work, order: Any, text: str = "", arguments: Any = None) -> None:
        assert self._lab is not None
        self._lab.order(_token(work), order, text, arguments)

    async def say(self, work: Work, text: str) -> None:
        """Have the model say a piece; one that nobody listens to any more says nothing."""
        self._spoken.add(work)
        self._order(work, "say", text)
        await trio.sleep(0.05)

    async def finish(self, work: Work) -> None:
        """Have the model end its answer; Claude would ask again after an empty one."""
        if work not in self._spoken:
            self._order(work, "say", "done")
        self._order(work, "end")
        await trio.lowlevel.checkpoint()

    async def fail(self, work: Work) -> None:
        """Have the model fail."""
        self._order(work, "fail")
        await trio.lowlevel.checkpoint()

    async def ask(self, work: Work) -> None:
        """Have the model ask the user."""
        assert self._lab is not None
        await self._lab.parked(_token(work))
        self._order(work, "call", "AskUserQuestion", {"questions": [_ASKED]})

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is among the answers that the tool is given."""
        given = answer.get("updatedInput") if isinstance(answer, Mapping) else None
        return isinstance(given, Mapping) and reply in given.get("answers", {}).values()

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
        """Kill every process of Claude's."""
        for peer in self._peers:
            if peer.process.returncode is None:
                self._dead.update(work for work in self._log.works if work.ended_at is None)
                os.killpg(peer.process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()


def _token(work: Work) -> str:
    found = read_prompt(work.text)
    return found[0] if found else ""
