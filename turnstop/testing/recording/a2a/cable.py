"""The real transport of httpx, with connections that can be broken and requests that are heard."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from .._http import CutStream, CuttableTransport

__all__ = ["Cable"]


class _Stream(CutStream, httpx.AsyncByteStream):
    pass


class Cable(CuttableTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """The real transport.

    Attributes:
        note: told of each request when it goes out, and again with its answer.
    """

    broken = httpx.ReadError
    stream = _Stream

    def __init__(
        self, note: Callable[[httpx.Request, httpx.Response | None], None] = lambda *_: None
    ) -> None:
        super().__init__(httpx.AsyncHTTPTransport(), note)
