"""The probes of real agents that speak ACP: the programs, with the lab for their model."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import trio

from ...abc import Backend
from ...adapters.acp import AcpContent
from ...adapters.acp._agent import Agent, Launch, open_agent
from ...adapters.acp._open import open_backend
from ...adapters.acp._profiles import PROFILES
from ...adapters.acp._session import Settings
from ...lab import find_program, program_env
from .._probe import Probe, Work
from ._acp_wire import PromptLog, Tapped
from ._lab import ITSELF, LabProbe, token_of
from .acp import AcpProbe

__all__ = ["RealClaudeAgentProbe", "RealCodexAgentProbe"]

_LEFT = "setsid /bin/sleep 300 >/dev/null 2>&1 & /bin/sleep 301"


class _RealAcpProbe(LabProbe):
    """`open_acp` of the program; what it is told is seen where it is put into words."""

    unable: ClassVar[Mapping[str, str]] = {
        **ITSELF,
        **AcpProbe.unable,
        "cut": "its pipes are its own: when they close, it ends",
    }
    asks_again = True
    fail = Probe.fail
    leave = Probe.leave
    program: ClassVar[str]
    profile: ClassVar[str]
    mode: ClassVar[str | None] = None
    # An answer may be for good, and for all that is like it.
    asked: ClassVar[Sequence[str]] = ("touch ./made", "mkdir ./made-too")

    def __init__(self) -> None:
        super().__init__()
        self._log = PromptLog(self.look)
        self._agents: list[Agent] = []
        self._questions = 0

    def open(self) -> AbstractAsyncContextManager[Backend[AcpContent]]:
        """Open a lab, a folder, and the agent with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[AcpContent], None]:
        async with self.open_home() as home:
            own: dict[str, str | None] = dict.fromkeys(os.environ, None)
            env = own | program_env(self.program, self.lab.url, home)
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

    def over(self, work: Work) -> float | None:
        """It was answered."""
        return self._log.over.get(work)

    @property
    def works(self) -> Sequence[Work]:
        """Each prompt."""
        return self._log.works

    async def ask(self, work: Work) -> None:
        """Have the model run a command that a person is asked about."""
        await self.lab.parked(token_of(work))
        self.order(work, "tool", self.asked[self._questions % len(self.asked)])
        self._questions += 1

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is the option that was selected."""
        outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
        return isinstance(outcome, Mapping) and outcome.get("optionId") == reply

    async def die(self) -> None:
        """Kill every process of the agent's."""
        self.bury()
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
        self.order(work, "tool", _LEFT)
        await self.lab.tool_running(token_of(work), 2)


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
