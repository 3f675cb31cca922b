"""The Claude adapter over processes in memory: all of it but the pipes and the program."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast, final

import trio

from ...._errors import BackendLost
from ...._service import open_service
from ....abc import Backend
from ....adapters.claude import ClaudeContent
from ....adapters.claude._open import _Backend
from ....adapters.claude._wire import StreamJson, Unasked, topic_of
from ....transports.jsonrpc import Connection, open_connection
from ....transports.orphans import OrphanedTurn, ProcessAddress
from ....transports.peer import Peer
from ....transports.proctable import Marked
from ....transports.restart import open_restartings
from .._left import LeftTurn, find_process, to_address
from ._cli import Cli
from ._recording import RecordingClaude


@asynccontextmanager
async def open_recorded(claude: RecordingClaude) -> AsyncGenerator[Backend[ClaudeContent], None]:
    """Open the adapter over it; a process that is lost is begun anew, as with `open_claude`.

    No tools are run, and none are looked for in the process table. Opened once more, it is the next
    owner, and takes up what the one before has left.

    **Cancellation:** as `open_claude`, but takes no time.
    """

    begun: list[Cli] = []

    def open_process(mark: str, session: str, resume: bool) -> AbstractAsyncContextManager[Peer]:
        return cast("AbstractAsyncContextManager[Peer]", _connect(claude, begun, session, resume))

    try:
        async with open_restartings() as processes:
            yield _Backend(processes, open_process, partial(_find_left, claude), _find_none)
    finally:
        claude.end_all(begun)


def _find_left(claude: RecordingClaude, address: str) -> OrphanedTurn:
    place, process = find_process(address, claude.processes)
    end = partial(claude.end_left, process)
    return cast("OrphanedTurn", LeftTurn(place, process, claude.works, end, claude.tell))


async def _find_none(marks: Mapping[str, str]) -> Sequence[Marked]:
    await trio.lowlevel.checkpoint()
    return ()


@final
class _Process:
    """What stands for a peer, and for its process."""

    def __init__(self, cli: Cli, rpc: Connection, address: ProcessAddress) -> None:
        self.rpc = rpc
        self.address = address
        self._cli = cli

    @property
    def process(self) -> _Process:
        return self

    @property
    def broken(self) -> trio.Event:
        return self.rpc.broken

    def hasten(self) -> None:
        # Whether it heeds that or not, it is ended with its connection.
        self._cli.hastened = not self._cli.ended

    def loss(self) -> BackendLost:
        fate = "has ended" if self._cli.ended else "is still running"
        why = f"; {self.rpc.why}" if self.rpc.why else ""
        return BackendLost(f"claude {fate}{why}", gone=self._cli.ended)


@asynccontextmanager
async def _connect(
    claude: RecordingClaude, begun: list[Cli], session: str, resume: bool
) -> AsyncGenerator[_Process, None]:
    if resume and session not in claude.on_disk:
        raise BackendLost(f"No conversation found with session ID: {session}", gone=True)
    async with open_service() as service:
        cli = claude.begin(session, cast("Any", service))
        begun.append(cli)
        address = to_address(len(claude.processes))
        service.start_soon(cli.serve)
        unasked = Unasked()
        async with open_connection(
            cli.near, cli.near, topic_of=topic_of, fallback=unasked.hear, dialect=StreamJson()
        ) as rpc:
            process = _Process(cli, rpc, address)
            try:
                await unasked.greet(rpc)
                yield process
            finally:
                # As with a real one, its end comes first and is told second.
                claude.end(cli)
                rpc.declare_lost(process.loss)
