"""What lies between a page and its server: a relay whose connections go silent, or break."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import trio


@attrs.define(eq=False)
class _Pair:
    client: trio.SocketStream
    server: trio.SocketStream
    is_silent: bool = False


@attrs.define(eq=False)
class Relay:
    """Relays connections to `target`, a port of this machine."""

    target: int
    port: int = 0
    accepted: int = 0
    _pairs: list[_Pair] = attrs.field(factory=list)

    def silence(self) -> None:
        """Have no client of today hear anything any more; those who come anew hear all."""
        for pair in self._pairs:
            pair.is_silent = True

    async def cut(self) -> None:
        """Break all connections that there are."""
        for pair in self._pairs:
            await trio.aclose_forcefully(pair.client)
            await trio.aclose_forcefully(pair.server)
        self._pairs.clear()

    async def serve(self, client: trio.SocketStream) -> None:
        self.accepted += 1
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.target)
        except OSError:
            await trio.aclose_forcefully(client)
            return
        pair = _Pair(client, server)
        self._pairs.append(pair)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_on, client, server, None)
            await self._pass_on(server, client, pair)
            nursery.cancel_scope.cancel()

    async def _pass_on(
        self, source: trio.SocketStream, sink: trio.SocketStream, pair: _Pair | None
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                if pair is None or not pair.is_silent:
                    await sink.send_all(chunk)
            if pair is None or not pair.is_silent:
                await sink.send_eof()


@asynccontextmanager
async def open_relay(target: int = 0) -> AsyncGenerator[Relay, None]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay = Relay(target, listener.socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, relay.serve, [listener])
        yield relay
        await relay.cut()
        nursery.cancel_scope.cancel()
