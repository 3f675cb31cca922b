"""A transport of httpx that writes down what goes by, for the golden wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from ....transports.sse import EventParser
from ..._wire import WireFrame

__all__ = ["WireTap"]

_CARD = "agent-card"


class WireTap(httpx.AsyncBaseTransport):
    """Passes everything on.

    The agent's card stands in the wire as if it were a method, `agent-card`. A stream that the
    agent ended has a last frame of its own, `{"id": ID, "end": true}`.

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
        asked = json.loads(request.content or f'{{"id": 0, "method": "{_CARD}"}}')
        self.frames.append(WireFrame("->", asked))
        response = await self._inner.handle_async_request(request)
        is_stream = "text/event-stream" in response.headers.get("content-type", "")
        if not is_stream:
            text = (await response.aread()).decode(errors="replace")
            self.note(_read(text, asked["method"]))
            return httpx.Response(response.status_code, headers=response.headers, text=text)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Tapped(self, response.stream, asked["id"])
        return response

    def note(self, body: Any) -> None:
        """Write down what the agent says."""
        self.frames.append(WireFrame("<-", body))

    async def aclose(self) -> None:
        """Close what is below.

        **Cancellation:** as there.
        """
        await self._inner.aclose()


class _Tapped(httpx.AsyncByteStream):
    def __init__(self, tap: WireTap, inner: httpx.AsyncByteStream, request_id: object) -> None:
        self._tap = tap
        self._inner = inner
        self._chunks = aiter(inner)
        self._id = request_id
        self._parser = EventParser()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._tap.note({"id": self._id, "end": True})
            raise
        for event in self._parser.feed(chunk):
            self._tap.note(_read(event.data, ""))
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _read(text: str, method: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return {"id": 0, "result": found} if method == _CARD else found
