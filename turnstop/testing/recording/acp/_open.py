"""The ACP adapter over an agent in memory: all of it but the pipes and the processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast, final

import trio

from ...._errors import BackendLost, BackendMisbehaved
from ...._service import open_service
from ....abc import Backend, End, How, Proof
from ....adapters.acp import AcpContent
from ....adapters.acp._agent import Agent, Launch, greet, to_agent, topic_of
from ....adapters.acp._asks import decline
from ....adapters.acp._open import open_backend
from ....adapters.acp._profiles import PROFILES
from ....adapters.acp._session import Settings
from ....transports.jsonrpc import Connection, RpcError, open_connection
from ....transports.orphans import OrphanedTurn, ProcessAddress
from ....transports.proctable import Marked
from .._left import LeftTurn, find_process, to_address
from ._recording import RecordingAcp
from ._server import AgentProcess


def open_recorded(
    acp: RecordingAcp,
    profile: str = "generic",
    *,
    shared: bool = False,
    cwd: str = "/home",
    mode: str | None = None,
) -> AbstractAsyncContextManager[Backend[AcpContent]]:
    """Open the adapter over it; a process that is lost is begun anew, as with `open_acp`.

    No processes are begun, and none are looked for in the process table. Opened once more, it is
    the next owner, and takes up what the one before has left.

    **Cancellation:** as `open_acp`, but takes no time.
    """
    launch = Launch(["agent"], PROFILES[profile])
    settings = Settings(cwd, (), mode)
    return _open(acp, launch, settings, shared)


@asynccontextmanager
async def _open(
    acp: RecordingAcp, launch: Launch, settings: Settings, shared: bool
) -> AsyncGenerator[Backend[AcpContent], None]:
    begun: list[AgentProcess] = []
    connect = partial(_connect, acp, launch, begun)
    async with open_service() as service:
        outer, acp.start_soon = acp.start_soon, service.start_soon
        try:
            async with open_backend(
                connect, settings, shared=shared, look=_find_none, attach=partial(_find_left, acp)
            ) as backend:
                yield backend
        finally:
            acp.start_soon = outer
            for process in begun:
                acp.end(process)


def _find_left(acp: RecordingAcp, address: str) -> OrphanedTurn:
    place, process = find_process(address, acp.processes)
    end = partial(acp.end_left, process)
    return cast("OrphanedTurn", LeftTurn(place, process, acp.works, end, _tell))


async def _tell(place: ProcessAddress) -> tuple[End, object | None]:
    # The protocol has no word for how a turn of a process that is gone has ended.
    return End(How.CANCELLED, Proof.PROCESS), place.session


async def _find_none(marks: Mapping[str, str]) -> Sequence[Marked]:
    await trio.lowlevel.checkpoint()
    return ()


@final
class _Peer:
    """What the adapter is given in place of a process and its pipes."""

    def __init__(self, acp: RecordingAcp, process: AgentProcess, rpc: Connection) -> None:
        self._acp = acp
        self._process = process
        self.rpc = rpc

    @property
    def process(self) -> _Peer:
        """Itself: it has the one method of a process that is used."""
        return self

    @property
    def broken(self) -> trio.Event:
        """Set when it can no longer be talked to."""
        return self.rpc.broken

    def hasten(self) -> None:
        """End it now, if it can be ended."""
        self._acp.put_down(self._process)

    def loss(self) -> BackendLost:
        """What became of it."""
        fate = "has ended" if self._process.ended else "is still running"
        why = f"; {self.rpc.why}" if self.rpc.why else ""
        return BackendLost(f"the agent {fate}{why}", gone=self._process.ended)


@asynccontextmanager
async def _connect(
    acp: RecordingAcp, launch: Launch, begun: list[AgentProcess]
) -> AsyncGenerator[Agent, None]:
    process = acp.begin()
    begun.append(process)
    address = to_address(len(acp.processes))
    stream = process.connect()
    async with open_service() as service:
        service.start_soon(process.serve)
        async with open_connection(stream, stream, topic_of=topic_of, fallback=decline) as rpc:
            peer = _Peer(acp, process, rpc)
            try:
                yield await _meet(peer, launch, address)
            finally:
                # As with a real one, its end comes first and is told second.
                acp.put_down(process)
                rpc.declare_lost(peer.loss)


async def _meet(peer: _Peer, launch: Launch, address: ProcessAddress) -> Agent:
    try:
        hello: Mapping[str, Any] = await greet(peer.rpc, launch)
    except RpcError as error:
        raise BackendMisbehaved(f"it refused the handshake: {error}") from error
    return to_agent(peer, launch, hello, address)
