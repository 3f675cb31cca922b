"""A transport of httpx2 that writes down what goes by, for the golden wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from ....transports.sse import EventParser
from ..._wire import WireFrame

__all__ = ["WireTap"]


class WireTap(httpx2.AsyncBaseTransport):
    """Passes everything on.

    A request stands in the wire as `{"ask": "POST", "path": [...], "body": ...}`, its answer as
    `{"answer": "POST", "path": [...], "status": 200, "body": ...}`, an event as opencode sends it.

    Attributes:
        frames: what went by.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self.frames: list[WireFrame] = []
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass a request on.

        **Cancellation:** what has gone by by then is written down.
        """
        path = [part for part in request.url.path.split("/") if part]
        body = json.loads(request.content) if request.content else None
        self.frames.append(WireFrame("->", {"ask": request.method, "path": path, "body": body}))
        response = await self._inner.handle_async_request(request)
        if "text/event-stream" in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Tapped(self, response.stream)
            return response
        content = await response.aread()
        found = json.loads(content) if content else None
        told = {"answer": request.method, "path": path, "status": response.status_code}
        self.note({**told, "body": found})
        headers = {"content-type": response.headers.get("content-type", "")}
        return httpx2.Response(response.status_code, headers=headers, content=content)

    def note(self, body: Any) -> None:
        """Write down what the server says."""
        self.frames.append(WireFrame("<-", body))

    async def aclose(self) -> None:
        """Close what is below.

        **Cancellation:** as there.
        """
        await self._inner.aclose()


class _Tapped(httpx2.AsyncByteStream):
    def __init__(self, tap: WireTap, inner: httpx2.AsyncByteStream) -> None:
        self._tap = tap
        self._inner = inner
        self._chunks = aiter(inner)
        self._parser = EventParser()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        for event in self._parser.feed(chunk):
            self._tap.note(json.loads(event.data))
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
