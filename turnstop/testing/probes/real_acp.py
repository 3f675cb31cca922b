"""The probes of real agents that speak ACP: the programs, with the lab for their model."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import trio

from ..._budget import StopBudget
from ..._service import open_service
from ...abc import Backend
from ...adapters.acp import AcpContent
from ...adapters.acp._agent import Agent, Launch, open_agent
from ...adapters.acp._open import open_backend
from ...adapters.acp._profiles import PROFILES
from ...adapters.acp._session import Settings
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
from ._acp_wire import PromptLog, Tapped
from .acp import AcpProbe

__all__ = ["RealClaudeAgentProbe", "RealCodexAgentProbe"]

_ITSELF = "the real program answers as it does: there is nothing that could hold it back"
_LEFT = "setsid /bin/sleep 300 >/dev/null 2>&1 & /bin/sleep 301"


class _RealAcpProbe(Probe):
    """`open_acp`, with a model that goes on until it is ordered otherwise.

    That a turn is over is told by the model: its requests have ended, and the agent will make no
    more. What the agent is told is seen where it is put into words.
    """

    unable: ClassVar[Mapping[str, str]] = {
        **AcpProbe.unable,
        "refuse_starts": _ITSELF,
        "hold_cancels": _ITSELF,
        "ignore_cancels": _ITSELF,
        "hold_acknowledgements": _ITSELF,
        "end_late": _ITSELF,
        "say_end_again": _ITSELF,
        "babble": _ITSELF,
        "cut": "its pipes are its own: when they close, it ends",
    }
    clock: Literal["virtual", "real"] = "real"
    budget = StopBudget(cancel_within=10.0, kill_within=5.0)
    program: ClassVar[str]
    profile: ClassVar[str]
    mode: ClassVar[str | None] = None
    # An answer may be for good, and for all that is like it.
    asked: ClassVar[Sequence[str]] = ("touch ./made", "mkdir ./made-too")

    def __init__(self) -> None:
        self._log = PromptLog(self._look)
        self._lab: Lab | None = None
        self._agents: list[Agent] = []
        self._dead: set[Work] = set()
        self._spoken: set[Work] = set()
        self._questions = 0

    def open(self) -> AbstractAsyncContextManager[Backend[AcpContent]]:
        """Open a lab, a folder, and the agent with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[AcpContent], None]:
        with tempfile.TemporaryDirectory(
            prefix="turnstop-probe-", ignore_cleanup_errors=True
        ) as home:
            async with open_service() as service, open_lab() as self._lab:
                # It never holds: it is looked at whenever the lab has seen something.
                service.start_soon(self._lab.until, self._look)
                own: dict[str, str | None] = dict.fromkeys(os.environ, None)
                env = own | program_env(self.program, self._lab.url, home)
                self.configure(Path(home))
                command = find_program(self.program).acp_command
                launch = Launch(command, PROFILES[self.profile], cwd=home, env=env)
                connect = partial(self._connect, launch)
                async with open_backend(connect, Settings(home, (), self.mode)) as backend:
                    yield backend

    def configure(self, home: Path) -> None:
        """Change the settings that the lab has written; nothing by default."""

    @asynccontextmanager
    async def _connect(self, launch: Launch) -> AsyncGenerator[Agent, None]:
        async with open_agent(launch) as agent:
            agent.rpc._dialect = Tapped(self._log)
            self._agents.append(agent)
            yield agent

    def _look(self) -> None:
        """Take from the lab what the wire does not tell."""
        for work in self._log.works:
            asked = self._lab.requests(_token(work)) if self._lab is not None else []
            if work.began_at is None and asked:
                work.began_at = asked[0].parked_at or asked[0].ended_at
            known = work in self._log.over or work in self._dead
            if known and work.ended_at is None:
                ends = [one.ending_at or one.ended_at for one in asked]
                ends = ends or [self._log.over.get(work)]
                if None not in ends:
                    work.ended_at = max(end for end in ends if end is not None)

    @property
    def works(self) -> Sequence[Work]:
        """Each prompt."""
        return self._log.works

    def content(self, text: str) -> object:
        """A prompt that tells the lab to be silent until it is ordered otherwise."""
        return f"{text}\n{write_prompt(Behaviour('park', 0))[1]}"

    def _order(self, work: Work, order: Any, text: str = "") -> None:
        assert self._lab is not None
        self._lab.order(_token(work), order, text)

    async def say(self, work: Work, text: str) -> None:
        """Have the model say a piece; one that nobody listens to any more says nothing."""
        self._spoken.add(work)
        self._order(work, "say", text)
        await trio.sleep(0.05)

    async def finish(self, work: Work) -> None:
        """Have the model end its answer; after an empty one, some ask again."""
        if work not in self._spoken:
            self._order(work, "say", "done")
        self._order(work, "end")
        await trio.lowlevel.checkpoint()

    async def ask(self, work: Work) -> None:
        """Have the model run a command that a person is asked about."""
        assert self._lab is not None
        await self._lab.parked(_token(work))
        self._order(work, "tool", self.asked[self._questions % len(self.asked)])
        self._questions += 1

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is the option that was selected."""
        outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
        return isinstance(outcome, Mapping) and outcome.get("optionId") == reply

    async def die(self) -> None:
        """Kill every process of the agent's."""
        self._dead.update(work for work in self._log.works if work.ended_at is None)
        for agent in self._agents:
            process: Any = agent._peer.process
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()


class RealCodexAgentProbe(_RealAcpProbe):
    """codex's agent."""

    name = "acp, the real agent of codex"
    unable: ClassVar[Mapping[str, str]] = {
        **{name: why for name, why in _RealAcpProbe.unable.items() if name != "leave"},
        "fail": "of a model that fails, it tells in the words of an answer, and completes the turn",
    }
    program = "codex-acp"
    profile = "codex"
    mode = "read-only"
    # It asks for nothing that is not dangerous.
    asked = ("rm -rf ./none",)

    def configure(self, home: Path) -> None:
        """Ask for a model that codex knows: of another it would say so, as if the model did."""
        config = home / "config.toml"
        config.write_text(config.read_text().replace("fake-model", "gpt-5.5"))

    async def leave(self, work: Work) -> None:
        """Have the model run a command, beside which another process goes on."""
        assert self._lab is not None
        self._order(work, "tool", _LEFT)
        await self._lab.tool_running(_token(work), 2)

    @property
    def alive(self) -> Sequence[str]:
        """The processes of its commands."""
        assert self._lab is not None
        tokens = [_token(work) for work in self._log.works]
        return [str(process) for token in tokens for process in self._lab.processes(token)]


class RealClaudeAgentProbe(_RealAcpProbe):
    """Claude's agent, which answers a cancelled prompt before its turn is over."""

    name = "acp, the real agent of Claude"
    unable: ClassVar[Mapping[str, str]] = {
        **_RealAcpProbe.unable,
        "fail": "it asks a model that fails again and again, for longer than anybody waits",
        "leave": "it asks a person about each command; what one leaves is seen in its tests",
    }
    program = "claude-agent-acp"
    profile = "claude"


def _token(work: Work) -> str:
    found = read_prompt(work.text)
    return found[0] if found else ""
