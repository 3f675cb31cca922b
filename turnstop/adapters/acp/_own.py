"""A turn of a process that is the room's own: it may be ended by force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from ..._errors import BackendMisbehaved
from ...abc import Proof
from ...transports.pace import wait_at_most
from ._turn import AcpTurn

__all__ = ["OwnAcpTurn"]


@final
class OwnAcpTurn(AcpTurn):
    """A turn of a process that is the room's own, which may be ended for it."""

    async def kill(self) -> None:
        """End the process, with SIGTERM and then SIGKILL to its group."""
        await self._end_agent()

    def _tool(self) -> Mapping[str, str | None] | None:
        tool = self._agent.profile.tool
        # Where nothing tells tools, all that an agent which has ended began in this turn is left.
        return {} if tool is None and self._agent.broken.is_set() else tool

    async def _end_agent(self) -> Proof:
        process = self.session.process
        self._agent.hasten()
        if process is not None:
            await process.end()
        loss = self._agent.loss()
        if not loss.gone:
            raise loss
        return Proof.PROCESS

    async def _see_obeyed(self) -> None:
        """Give a lost cancel up before the stop's time is over, so that the kill comes sooner."""
        profile = self._agent.profile
        if not await wait_at_most(self._answered, profile.obeys):
            self._error = BackendMisbehaved(
                f"{self._agent.name} has lost a cancel right behind its prompt: it has not obeyed "
                f"for {profile.obeys:g} s, and never will"
            )
            self._listening.cancel()
