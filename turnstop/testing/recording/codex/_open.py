"""The codex adapter over an app server in memory: all of it but the pipes and the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast, final

import trio

from ...._errors import BackendLost
from ...._service import open_service
from ....abc import Backend
from ....adapters.codex import CodexContent
from ....adapters.codex._asks import decline
from ....adapters.codex._open import _Backend, _greet, _Settings, _topic_of
from ....transports.dialect import JsonRpc
from ....transports.jsonrpc import Connection, open_connection
from ....transports.orphans import OrphanedTurn, Tell
from ....transports.proctable import Marked
from ....transports.restart import Restarting, open_restarting
from .._left import LeftTurn, find_process, to_address
from ._recording import RecordingCodex

_PLAIN = {"cwd": None, "model": None, "sandbox": None, "approval": None, "tools": ()}


@asynccontextmanager
async def open_recorded(
    codex: RecordingCodex, **settings: Any
) -> AsyncGenerator[Backend[CodexContent], None]:
    """Open the adapter over it; a process that is lost is begun anew, as with `open_codex`.

    Takes the settings of `open_codex`. No shell commands are run, and none are looked for in the
    process table. What another that was opened in the same home has left is taken up.

    **Cancellation:** as `open_codex`, but takes no time.
    """
    chosen = _Settings(**{**_PLAIN, **settings})
    try:
        async with open_restarting(partial(_connect, codex)) as restarting:
            await restarting.get()
            yield _Backend(
                cast("Restarting[Any]", restarting), chosen, _find_none, partial(_find_left, codex)
            )
    finally:
        codex.end_all()


def _find_left(codex: RecordingCodex, address: str, *, tell: Tell, tools: object) -> OrphanedTurn:
    place, process = find_process(address, codex.processes)
    end = partial(process.codex.end_left, process)
    return cast("OrphanedTurn", LeftTurn(place, process, codex.works, end, tell))


async def _find_none(marks: Mapping[str, str]) -> Sequence[Marked]:
    await trio.lowlevel.checkpoint()
    return ()


@final
class _Process:
    """What `open_restarting` is given in place of a peer, and of its process."""

    def __init__(self, codex: RecordingCodex, rpc: Connection) -> None:
        self._codex = codex
        self.rpc = rpc
        self.address = to_address(len(codex.processes))

    @property
    def process(self) -> _Process:
        return self

    @property
    def broken(self) -> trio.Event:
        return self.rpc.broken

    def loss(self) -> BackendLost:
        fate = "has ended" if self._codex.ended else "is still running"
        why = f"; {self.rpc.why}" if self.rpc.why else ""
        return BackendLost(f"codex {fate}{why}", gone=self._codex.ended)


@asynccontextmanager
async def _connect(codex: RecordingCodex) -> AsyncGenerator[_Process, None]:
    stream = codex.connect()
    async with open_service() as service:
        service.start_soon(codex.serve)
        async with open_connection(
            stream, stream, topic_of=_topic_of, fallback=decline, dialect=JsonRpc(version=False)
        ) as rpc:
            process = _Process(codex, rpc)
            try:
                await _greet(rpc)
                yield process
            finally:
                # As with a real one, its end comes first and is told second.
                codex.put_down()
                rpc.declare_lost(process.loss)
