"""Connections: accepted and owned here, so that each of them ends when it should.

Hypercorn's own `serve` keeps its sockets to itself, and sends behind a shield without a bound: one
client that does not read holds it for ever. So Hypercorn speaks HTTP on a connection, and what is
accepted, how long a client may be silent, and when a connection is dropped, is decided here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast, final

import attrs
import hypercorn
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.types import ASGIApp

from .._unwrap import open_private_nursery
from ._guard import KNOW
from ._settings import Settings

__all__ = ["Connection", "Connections"]

logger = logging.getLogger("turnstop.server")

_PIECE: Final = 16 * 1024
"""Bytes of which a client has to take some, to be there: what Trio has the kernel hold unsent."""
_BUFFER: Final = 64 * 1024
"""Bytes that the kernel is asked to hold for a client that does not read."""


@final
@attrs.define(eq=False)
class Connection(trio.abc.HalfCloseableStream):
    """What Hypercorn takes for a `trio.SocketStream`: one whose client has to go on reading.

    Attributes:
        silence: seconds that the client may take nothing of what it is sent.
        is_known: it has borne the token.
        on_end: called when the client is found to be gone.
        talk: what is done for it.
    """

    stream: trio.SocketStream
    silence: float
    is_known: bool = False
    on_end: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    talk: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _head: bytes = attrs.field(default=b"", init=False)

    def __attrs_post_init__(self) -> None:
        with suppress(OSError):
            self.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, _BUFFER)

    @property
    def socket(self) -> trio.socket.SocketType:
        """Where its addresses are asked for."""
        return self.stream.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send, for as long as the client takes something.

        Raises:
            BrokenResourceError: it is gone, or has taken nothing for too long, and is dropped.
            ClosedResourceError: it was dropped.

        **Cancellation:** some of it is sent. Hypercorn shields this, so it has an end of its own.
        """
        if not self._head and _is_head(data):
            self._head = bytes(data)
            return
        rest = memoryview(self._head + data if self._head else data)
        self._head = b""
        rest = rest[self._send_at_once(rest) :]
        while rest:
            with trio.move_on_after(self.silence) as scope:
                await self.stream.send_all(rest[:_PIECE])
            if scope.cancelled_caught:
                self.drop()
                raise trio.BrokenResourceError("the client does not read")
            rest = rest[_PIECE:]

    def _send_at_once(self, data: memoryview) -> int:
        """Send what the kernel takes, in this step: else all else that is due goes before."""
        try:
            return os.write(self.socket.fileno(), data) if data else 0
        except OSError:
            return 0

    async def wait_send_all_might_not_block(self) -> None:
        """As `trio.SocketStream`.

        **Cancellation:** changes nothing.
        """
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As `trio.SocketStream`.

        **Cancellation:** loses nothing.
        """
        data: bytes | bytearray = b""
        try:
            data = await self.stream.receive_some(max_bytes)
        finally:
            if not data:
                await self.on_end()
        return data

    async def send_eof(self) -> None:
        """As `trio.SocketStream`.

        **Cancellation:** done.
        """
        await self.stream.send_eof()

    async def aclose(self) -> None:
        """As `trio.SocketStream`.

        **Cancellation:** done.
        """
        await self.stream.aclose()

    def drop(self) -> None:
        """Close it, in this step; whoever waits for it hears of that."""
        self.stream.socket.close()

    def evict(self) -> None:
        """Drop it, and wait for nothing more."""
        self.drop()
        self.talk.cancel()

    def know(self) -> None:
        """It has borne the token: its place is its own."""
        self.is_known = True


def _is_head(data: bytes | bytearray | memoryview) -> bool:
    """Of a final answer: Hypercorn sends what follows, be it nothing, in the same breath.

    Held back until then, both are one packet, and whoever presses STOP waits for one less.
    """
    found = bytes(data[:10])
    return found.startswith(b"HTTP/1.1 ") and found[9:] != b"1" and data[-4:] == b"\r\n\r\n"


@final
@attrs.define(eq=False)
class _Door(trio.abc.Listener[Connection]):
    """Lets so many in at once. Where all places are taken, whoever has held one longest without
    having borne the token leaves it: else strangers who hold on would keep every stop out.
    """

    listener: trio.SocketListener
    places: trio.Semaphore
    inside: dict[Connection, None]
    silence: float

    async def accept(self) -> Connection:
        """As `trio.SocketListener`.

        **Cancellation:** drops who waits for a place.
        """
        connection = Connection(await self.listener.accept(), self.silence)
        if not self.places.value:
            self._make_place()
        try:
            await self.places.acquire()
        except BaseException:
            connection.drop()
            raise
        self.inside[connection] = None
        return connection

    def _make_place(self) -> None:
        for one in self.inside:
            if not (one.is_known or one.talk.cancel_called):
                one.evict()
                return

    async def aclose(self) -> None:
        """As `trio.SocketListener`.

        **Cancellation:** done.
        """
        await self.listener.aclose()


@final
@attrs.define(eq=False)
class Connections:
    """All connections of a server."""

    app: ASGIApp
    settings: Settings
    _config: hypercorn.Config = attrs.field(factory=hypercorn.Config, init=False)
    _context: WorkerContext = attrs.field(factory=lambda: WorkerContext(None), init=False)
    _places: trio.Semaphore = attrs.field(init=False)
    _open: dict[Connection, None] = attrs.field(factory=dict, init=False)
    _left: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self._places = trio.Semaphore(self.settings.connections)
        self._config.accesslog = None
        self._config.errorlog = None
        self._config.include_server_header = False
        idle = min(self._config.keep_alive_timeout, self.settings.silence)
        self._config.keep_alive_timeout = idle

    async def serve(
        self,
        listeners: Sequence[trio.SocketListener],
        over: trio.Event,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer on whatever is accepted there, until it is over; closes the listeners.

        Connections that are idle then end at once, others have `close_within`.

        **Cancellation:** drops all connections, in this step.
        """
        silence = self.settings.silence
        doors = [_Door(one, self._places, self._open, silence) for one in listeners]
        async with open_private_nursery() as talking:
            let_in = partial(trio.serve_listeners, self._talk, doors, handler_nursery=talking)
            try:
                async with open_private_nursery() as accepting:
                    await accepting.start(let_in)
                    task_status.started()
                    await over.wait()
                    accepting.cancel_scope.cancel()
                await self._context.terminated.set()
                with trio.move_on_after(self.settings.close_within):
                    while self._open:
                        await self._left.park()
            finally:
                # Before anything is cancelled: Hypercorn sends behind a shield.
                for connection in [*self._open]:
                    connection.drop()
            talking.cancel_scope.cancel()

    async def _talk(self, connection: Connection) -> None:
        app, stream = ASGIWrapper(cast("Any", self.app)), cast("Any", connection)
        # In the scope of each request, where the guard finds it.
        state = ConnectionState({KNOW: connection.know})
        server = TCPServer(app, self._config, self._context, state, stream)
        # Else it waits for another request, and holds the place, when the client is gone.
        connection.on_end = server.idle_task.stop
        try:
            with connection.talk:
                await server.run()
        except* Exception as group:
            # Not its text: what somebody has sent may be in it.
            kinds = sorted({type(one).__name__ for one in _leaves(group)})
            logger.error("a connection went wrong and was dropped: %s", ", ".join(kinds))
        finally:
            connection.drop()
            del self._open[connection]
            self._places.release()
            self._left.unpark_all()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error
