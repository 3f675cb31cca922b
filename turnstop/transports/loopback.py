"""A program's pipes as a port on loopback, for a library which will only connect to one.

So the program stays a child of ours, in a session of its own: its end is seen, its stderr is kept,
and it is ended with everything that it started. The port is for one client, which proves that it
is ours by the token in its first message; nobody else is answered, nor holds it up: every user of
the machine may knock.

The library may write a header and a body apart. The second of two small writes is held back until
the first was acknowledged, which takes 40 ms where the receiver is in no hurry: here it is.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, final

import trio

from .._errors import BackendLost, BackendMisbehaved
from .._service import Service, open_service
from .framed import Message, MessageSplitter, frame
from .process import ChildProcess

__all__ = ["Loopback", "Tap", "open_loopback"]

Tap: TypeAlias = Callable[[str, Message], object]
"""Told each message as it goes by: `"->"` to the program, `"<-"` from it."""

_PROVEN_WITHIN = 5.0
_MAX_GREETING = 65536
_AT_THE_DOOR = 32
_BREATH = 0.1
_LAST_WORDS = 0.5
_CHUNK = 65536
_CLOSED = (trio.BrokenResourceError, trio.ClosedResourceError)
_QUICK = getattr(socket, "TCP_QUICKACK", None)


@final
class Loopback:
    """The port, and what goes by. Made by `open_loopback`.

    Attributes:
        port: on 127.0.0.1.
        token: what the client's first message, the call `connect`, has to bring. The program is
            not told of it.
        broken: set when the program has exited or closed its stdout, when it has written what is
            no message, or when the client has left.
        why: what it has done wrong, or None.
    """

    def __init__(self, process: ChildProcess, port: int, tap: Tap) -> None:
        self.port = port
        self.token = secrets.token_urlsafe(24)
        self.broken = trio.Event()
        self.why: BackendMisbehaved | None = None
        self._process = process
        self._tap = tap

    def loss(self) -> BackendLost:
        """A new error: how the program was lost, and whether it is gone."""
        text = self._process.describe()
        if self.why is None and self._process.signalled:
            text = f"{text}; it had closed its stdout and went on"
        error = BackendLost(
            f"{text}; {self.why}" if self.why else text, gone=self._process.returncode is not None
        )
        error.__cause__ = self.why
        return error

    async def _watch(self) -> None:
        # A grandchild that holds the pipes open would hide the end of the program for ever.
        await self._process.wait()
        with trio.move_on_after(_LAST_WORDS):
            await self.broken.wait()
        self.broken.set()

    async def _serve(self, listener: trio.SocketListener) -> None:
        try:
            door = _Door(self._is_ours)
            async with door.admit(listener) as (stream, first), open_service() as service:
                service.start_soon(self._tell, stream, first)
                await self._hear(stream)
        except BackendMisbehaved as error:
            self.why = error
        finally:
            self.broken.set()

    def _is_ours(self, message: Message) -> bool:
        params = message.get("params")
        token = params.pop("token", None) if isinstance(params, dict) else None
        proven = isinstance(token, str) and secrets.compare_digest(
            token.encode(errors="replace"), self.token.encode()
        )
        return message.get("method") == "connect" and proven

    async def _tell(self, stream: trio.SocketStream, first: Message) -> None:
        """Hand on what the client says, until it leaves."""
        stdin, splitter = self._process.stdin, MessageSplitter()
        with suppress(*_CLOSED):
            await stdin.send_all(frame(first))
            self._tap("->", first)
            while chunk := await _receive(stream):
                # As it is: only what was first had something taken out.
                await stdin.send_all(chunk)
                for message in splitter.feed(chunk):
                    self._tap("->", message)
        self.broken.set()

    async def _hear(self, stream: trio.SocketStream) -> None:
        """Hand on what the program says, to the end of its stdout."""
        splitter = MessageSplitter()
        with suppress(*_CLOSED):
            async for chunk in self._process.stdout:
                for message in splitter.feed(chunk):
                    self._tap("<-", message)
                await stream.send_all(chunk)


@final
class _Door:
    """Where the first who proves to be ours is let in, whoever else knocks."""

    def __init__(self, is_ours: Callable[[Message], bool]) -> None:
        self._is_ours = is_ours
        self._strangers: dict[trio.SocketStream, None] = {}
        self._ours: list[tuple[trio.SocketStream, Message]] = []
        self._proven = trio.Event()

    @asynccontextmanager
    async def admit(
        self, listener: trio.SocketListener
    ) -> AsyncGenerator[tuple[trio.SocketStream, Message], None]:
        """Our client and its first message. Nobody else is heard any more."""
        try:
            async with listener, open_service() as service:
                service.start_soon(self._accept, service, listener)
                await self._proven.wait()
            self._turn_away(self._strangers)
            yield self._ours[0]
        finally:
            self._turn_away([*self._strangers, *(stream for stream, _ in self._ours)])

    async def _accept(self, service: Service, listener: trio.SocketListener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError:
                # No more files may be open, for which a connection that waits is told each time.
                await trio.sleep(_BREATH)
                continue
            if len(self._strangers) == _AT_THE_DOOR:
                # Ours says at once who it is: those who came first are the least likely.
                self._turn_away([next(iter(self._strangers))])
            self._strangers[stream] = None
            service.start_soon(self._hear_out, stream)

    async def _hear_out(self, stream: trio.SocketStream) -> None:
        splitter, first = MessageSplitter(_MAX_GREETING), list[Message]()
        with trio.move_on_after(_PROVEN_WITHIN), suppress(*_CLOSED, BackendMisbehaved):
            while not first and (chunk := await _receive(stream)):
                first = splitter.feed(chunk)
        if stream not in self._strangers:
            return
        # Our client waits for an answer before it says more.
        if len(first) == 1 and splitter.is_even and self._is_ours(first[0]):
            del self._strangers[stream]
            self._ours.append((stream, first[0]))
            self._proven.set()
        else:
            self._turn_away([stream])

    def _turn_away(self, streams: Iterable[trio.SocketStream]) -> None:
        for stream in tuple(streams):
            stream.socket.close()
            self._strangers.pop(stream, None)


async def _receive(stream: trio.SocketStream) -> bytes:
    if _QUICK is not None:
        # It does not last: the system forgets it as soon as something is sent.
        with suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
    return bytes(await stream.receive_some(_CHUNK))


@asynccontextmanager
async def open_loopback(
    process: ChildProcess, tap: Tap = lambda direction, message: None
) -> AsyncGenerator[Loopback, None]:
    """Offer a program's stdin and stdout at a port on loopback while the block is open.

    Args:
        process: speaks messages behind a `Content-Length` header.
        tap: told what goes by; it raises nothing.

    **Cancellation:** closes the client's connection, and leaves the program as it is.
    """
    async with open_service() as service:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        loopback = Loopback(process, listener.socket.getsockname()[1], tap)
        service.start_soon(loopback._watch)
        service.start_soon(loopback._serve, listener)
        yield loopback
