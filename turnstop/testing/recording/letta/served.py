"""A server in memory on loopback, for clients that are processes of their own.

Needs the extra `lab`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import httpx
import trio

from ....lab._http import Http, RemoteProtocolError
from ._server import RecordingLetta

__all__ = ["open_served"]


@asynccontextmanager
async def open_served(server: RecordingLetta) -> AsyncGenerator[str, None]:
    """Serve it; yields where it listens, as `http://127.0.0.1:port`.

    **Cancellation:** closes every connection. The server goes on.
    """
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.start_soon(partial(trio.serve_listeners, partial(_serve, server, url), listeners))
        yield url
        nursery.cancel_scope.cancel()


async def _serve(server: RecordingLetta, url: str, stream: trio.SocketStream) -> None:
    http = Http(stream)
    try:
        while (request := await http.next_request()) is not None:
            asked = httpx.Request(
                request.method.decode(),
                url + request.target.decode(),
                headers=[(name.decode(), value.decode()) for name, value in request.headers],
                content=await http.read_body(),
            )
            # Whoever has asked may have gone: what was asked for is done all the same.
            await _answer(http, await server.handle_async_request(asked))
            if not http.start_next_cycle():
                break
    except (trio.BrokenResourceError, RemoteProtocolError, httpx.ReadError):
        pass
    finally:
        await trio.aclose_forcefully(stream)


async def _answer(http: Http, response: httpx.Response) -> None:
    await http.head(response.status_code, response.headers.multi_items())
    if response.is_stream_consumed:
        await http.end(response.content)
        return
    # Not by HTTPX's generators, which a connection that breaks would leave half-read.
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for chunk in response.stream:
        await http.data(chunk)
    await http.end()
