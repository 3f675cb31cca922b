"""A program that speaks JSON-RPC on its stdin and stdout: process and connection as one thing.

However the two come apart, the process is ended first and its end is told second, so that what
callers learn is final: the exit status, the end of stderr, and whether the work is gone.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import final

import trio

from .._errors import BackendLost, BackendRefused
from .._service import open_service
from ._lines import MAX_LINE
from .dialect import Dialect
from .jsonrpc import Connection, Incoming, RpcError, open_connection
from .process import ChildProcess, Grace, open_process

__all__ = ["Peer", "open_peer"]


@final
class Peer:
    """A running program and the connection to it. Made by `open_peer`.

    Attributes:
        process: the program.
        rpc: the connection.
    """

    def __init__(self, process: ChildProcess, rpc: Connection) -> None:
        self.process = process
        self.rpc = rpc

    @property
    def broken(self) -> trio.Event:
        """Set when the program can no longer be talked to; it may still be on its way out."""
        return self.rpc.broken

    def loss(self) -> BackendLost:
        """A new error: how the program was lost, and whether it is gone."""
        text = self.process.describe()
        why = self.rpc.why
        if why is None and self.process.signalled and not self.process.hastened:
            text = f"{text}; it had closed its stdout and went on"
        error = BackendLost(
            f"{text}; {why}" if why else text, gone=self.process.returncode is not None
        )
        error.__cause__ = why
        return error


@asynccontextmanager
async def open_peer(
    command: Sequence[str],
    *,
    topic_of: Callable[[Incoming], str | None],
    fallback: Callable[[Incoming], object],
    handshake: Callable[[Connection], Awaitable[object]],
    patience: float = 30.0,
    dialect: Dialect | None = None,
    max_line: int = MAX_LINE,
    name: str = "",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    install: str = "",
    grace: Grace | None = None,
) -> AsyncGenerator[Peer, None]:
    """Run a program and talk JSON-RPC to it; see `open_process` and `open_connection`.

    `handshake` makes the first calls, within `patience` seconds. When the program's stream ends,
    when it exits, or when it breaks the protocol, `Peer.broken` is set. The block is then to be
    left: the program is ended, and every caller and topic is told.

    Raises:
        BackendRefused: the program is missing, or does not answer in time.
        BackendLost: the system could not start it, or it was lost before the handshake was done.

    **Cancellation:** ends the program; bounded as in `open_process`.
    """
    peer = None
    try:
        async with open_process(
            command, name=name, cwd=cwd, env=env, install=install, grace=grace
        ) as process:
            async with open_connection(
                process.stdin,
                process.stdout,
                topic_of=topic_of,
                fallback=fallback,
                dialect=dialect,
                max_line=max_line,
                describe=process.describe,
            ) as rpc:
                peer = Peer(process, rpc)
                async with open_service() as service:
                    service.start_soon(_watch, peer)
                    if await _shake_hands(peer, handshake, patience):
                        yield peer
                        return
    finally:
        if peer is not None:
            peer.rpc.declare_lost(peer.loss)
    assert peer is not None
    raise peer.loss()


async def _shake_hands(
    peer: Peer, handshake: Callable[[Connection], Awaitable[object]], patience: float
) -> bool:
    # A service, so that an error leaves as itself also where it meets a cancellation from outside.
    async with open_service() as service:
        with trio.move_on_after(patience) as scope:

            async def leave_when_broken() -> None:
                await peer.broken.wait()
                scope.cancel()

            service.start_soon(leave_when_broken)
            try:
                await handshake(peer.rpc)
            except RpcError as error:
                peer.rpc.give_up(f"it refused the handshake: {error}")
            return not peer.broken.is_set()
    if peer.broken.is_set():
        return False
    # No loss, which would be made good by another start, and another.
    text = f"{peer.process.describe()}, and did not answer within {patience:g} s of its start"
    raise BackendRefused(text)


async def _watch(peer: Peer) -> None:
    # A grandchild that holds the pipes open would hide the end of the program for ever.
    await peer.process.wait()
    await peer.rpc.run_down()
