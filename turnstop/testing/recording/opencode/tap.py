"""A transport of httpx2 that writes down what goes by, for the golden wire."""

from __future__ import annotations

import httpx2

from .._http import TappedStream, TappedTransport

__all__ = ["WireTap"]


class _Stream(TappedStream, httpx2.AsyncByteStream):
    pass


class WireTap(TappedTransport, httpx2.AsyncBaseTransport):
    """Passes everything on; an event stands in the wire as opencode sends it."""

    stream = _Stream
