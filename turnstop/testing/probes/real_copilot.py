"""The probe of the real Copilot: the SDK and the program, with the lab for their model."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

from ...abc import Backend
from ...adapters.copilot import CopilotContent
from ...adapters.copilot._open import open_backend
from ...adapters.copilot._program import Launch
from ...adapters.copilot._session import Settings
from ...lab import copilot_session, find_program, program_env
from ...transports.proctable import find_marked
from .._probe import Work
from ._copilot_wire import SendLog
from ._lab import ITSELF, LEFT, LabProbe, token_of
from .copilot import CopilotProbe, carries

__all__ = ["RealCopilotProbe"]


class RealCopilotProbe(LabProbe):
    """`open_copilot` of the program, with a tap where its messages are relayed.

    It asks before it runs a command; the one that leaves a process is allowed by a hook.
    """

    name = "copilot, the real program"
    asks_again = True
    unable: ClassVar[Mapping[str, str]] = {
        **ITSELF,
        **CopilotProbe.unable,
        "cut": "its pipes are its own: when they close, it ends",
    }

    def __init__(self) -> None:
        super().__init__()
        self._log = SendLog()
        self._copilot: Any = None

    def open(self) -> AbstractAsyncContextManager[Backend[CopilotContent]]:
        """Open a lab, a folder, and Copilot with a tap."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[CopilotContent], None]:
        async with self.open_home() as home:
            env = program_env("copilot", self.lab.url, home)
            launch = Launch(find_program("copilot").command, home, env, tap=self._note)
            options = {
                **copilot_session(self.lab.url),
                "working_directory": home,
                "hooks": {"on_pre_tool_use": _allow_what_leaves},
            }
            async with open_backend(launch, Settings(options)) as self._copilot:
                yield self._copilot

    def _note(self, direction: str, message: dict[str, Any]) -> None:
        self._log.note(direction, message)
        self.look()

    def over(self, work: Work) -> float | None:
        """Copilot has said that it is idle."""
        return self._log.over.get(work.text)

    @property
    def works(self) -> Sequence[Work]:
        """Each `session.send`."""
        return self._log.works

    async def ask(self, work: Work) -> None:
        """Have the model run a command that changes something, which Copilot asks for."""
        await self.lab.parked(token_of(work))
        self.order(work, "tool", "touch asked.txt")

    def carries(self, answer: object, reply: str) -> bool:
        """Copilot is answered by a decision, and why."""
        return carries(answer, reply)

    async def die(self) -> None:
        """Kill Copilot."""
        cli = self._copilot._clis.current
        if cli is not None:
            self.bury()
            for found in await find_marked(dict([cli.address.mark])):
                os.kill(found.process.pid, signal.SIGKILL)


def _allow_what_leaves(called: Mapping[str, Any], invocation: object) -> dict[str, str] | None:
    """Let the model's command that leaves a process run, and ask about all others."""
    return {"permissionDecision": "allow"} if LEFT in str(called.get("toolArgs")) else None
