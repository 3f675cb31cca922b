"""A prompt whose client is gone, as the next client of the agent in memory takes it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, final

import trio

from ...._errors import BackendLost
from ....abc import Emit, End, How, Proof
from ....transports.orphans import ProcessAddress
from ..._probe import Work
from ._server import AgentProcess

__all__ = ["LeftPrompt", "find_left", "to_address"]

_HOST = "in-memory"
_MARK = "TURNSTOP_ORPHAN"


class _Agent(Protocol):
    works: list[Work]
    processes: list[AgentProcess]
    late: float

    def put_down(self, process: AgentProcess) -> None: ...


def to_address(number: int) -> ProcessAddress:
    """Where the agent's process of this number is, counted from 1."""
    return ProcessAddress(_HOST, number, number, (_MARK, f"process-{number}"))


def find_left(acp: _Agent, address: str) -> LeftPrompt:
    """What is at an address.

    Raises:
        BackendLost: it is another's.
    """
    place = ProcessAddress.parse(address)
    if place.host != _HOST or not 0 < place.pid <= len(acp.processes):
        raise BackendLost(f"this is no address of an agent in memory: {address}")
    return LeftPrompt(acp, acp.processes[place.pid - 1], place.session)


@final
class LeftPrompt:
    """It ends with its process, as with a real one."""

    acknowledges: ClassVar[bool] = False

    def __init__(self, acp: _Agent, process: AgentProcess, session: str) -> None:
        self.session = session or None
        self._acp = acp
        self._process = process

    async def follow(self, emit: Emit) -> End:
        """Wait for the end of the process."""
        await self._process.gone.wait()
        return End(How.CANCELLED, Proof.PROCESS)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Have the process end; it takes as long as a cancel does."""
        for work in self._acp.works:
            if work.runs and work.session == self.session:
                work.told_at.append(trio.current_time())
        sent()
        await trio.sleep(self._acp.late)
        self._acp.put_down(self._process)
