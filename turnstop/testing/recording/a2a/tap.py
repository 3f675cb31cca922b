"""A transport of httpx that writes down what goes by, for the golden wire."""

from __future__ import annotations

import json
from typing import Any

import httpx

from ....transports.sse import ServerEvent
from .._http import TappedStream, TappedTransport

__all__ = ["WireTap"]

_CARD = "agent-card"


class _Stream(TappedStream, httpx.AsyncByteStream):
    pass


class WireTap(TappedTransport, httpx.AsyncBaseTransport):
    """Passes everything on.

    A call stands in the wire as it is, and so does its answer. The agent's card stands there as if
    it were a method, `agent-card`. A stream that the agent ended has a last frame of its own,
    `{"id": ID, "end": true}`.
    """

    stream = _Stream

    def asked(self, request: httpx.Request) -> dict[str, Any]:
        """The call."""
        found: dict[str, Any] = json.loads(request.content or f'{{"id": 0, "method": "{_CARD}"}}')
        return found

    def answered(self, asked: dict[str, Any], response: httpx.Response, content: bytes) -> Any:
        """The answer, or what is there in its place."""
        found = _read(content.decode(errors="replace"))
        return {"id": 0, "result": found} if asked["method"] == _CARD else found

    def event(self, event: ServerEvent) -> Any:
        """The answer in it."""
        return _read(event.data)

    def end(self, asked: dict[str, Any]) -> Any:
        """To which call it belongs."""
        return {"id": asked["id"], "end": True}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
