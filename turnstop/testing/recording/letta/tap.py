"""A transport of httpx that writes down what goes by, for the golden wire."""

from __future__ import annotations

from typing import Any

import httpx

from ....transports.sse import ServerEvent
from .._http import TappedStream, TappedTransport

__all__ = ["WireTap"]

_DONE = "[DONE]"


class _Stream(TappedStream, httpx.AsyncByteStream):
    pass


class WireTap(TappedTransport, httpx.AsyncBaseTransport):
    """Passes everything on.

    An event of a stream stands in the wire as `{"event": "message", "said": ...}`, and the stream's
    end as `{"event": "end"}`.
    """

    stream = _Stream

    def event(self, event: ServerEvent) -> Any:
        """What was said, and of which kind."""
        said = _DONE if event.data == _DONE else super().event(event)
        return {"event": event.kind, "said": said}

    def end(self, asked: dict[str, Any]) -> Any:
        """It came."""
        return {"event": "end"}
