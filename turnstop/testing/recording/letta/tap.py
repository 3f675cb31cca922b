"""A transport of httpx that writes down what goes by, for the golden wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from ....transports.sse import EventParser, ServerEvent
from ..._wire import WireFrame

__all__ = ["WireTap"]


class WireTap(httpx.AsyncBaseTransport):
    """Passes everything on.

    A request stands in the wire as `{"ask": "POST", "path": [...], "body": ...}`, its answer as
    `{"answer": "POST", "path": [...], "status": 200, "body": ...}`, an event of a stream as
    `{"event": "message", "said": ...}`, and the stream's end as `{"event": "end"}`.

    Attributes:
        frames: what went by.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.frames: list[WireFrame] = []
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on.

        **Cancellation:** what has gone by by then is written down.
        """
        path = [part for part in request.url.path.split("/") if part]
        body = json.loads(request.content) if request.content else None
        self.frames.append(WireFrame("->", {"ask": request.method, "path": path, "body": body}))
        response = await self._inner.handle_async_request(request)
        if "text/event-stream" in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Tapped(self, response.stream)
            return response
        content = await response.aread()
        found = json.loads(content) if content else None
        told = {"answer": request.method, "path": path, "status": response.status_code}
        self.note({**told, "body": found})
        headers = {"content-type": response.headers.get("content-type", "")}
        return httpx.Response(response.status_code, headers=headers, content=content)

    def note(self, body: Any) -> None:
        """Write down what the server says."""
        self.frames.append(WireFrame("<-", body))

    def note_event(self, event: ServerEvent) -> None:
        """Write down what it says in a stream."""
        done = event.data == "[DONE]"
        self.note({"event": event.kind, "said": "[DONE]" if done else json.loads(event.data)})

    async def aclose(self) -> None:
        """Close what is below.

        **Cancellation:** as there.
        """
        await self._inner.aclose()


class _Tapped(httpx.AsyncByteStream):
    def __init__(self, tap: WireTap, inner: httpx.AsyncByteStream) -> None:
        self._tap = tap
        self._inner = inner
        self._chunks = aiter(inner)
        self._parser = EventParser()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._tap.note({"event": "end"})
            raise
        for event in self._parser.feed(chunk):
            self._tap.note_event(event)
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
