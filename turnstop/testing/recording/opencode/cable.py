"""The real transport of httpx2, with connections that can be broken and requests that are heard."""

from __future__ import annotations

from collections.abc import Callable

import httpx2

from .._http import CutStream, CuttableTransport

__all__ = ["Cable"]


class _Stream(CutStream, httpx2.AsyncByteStream):
    pass


class Cable(CuttableTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """The real transport.

    Attributes:
        note: told of each request when it goes out, and again with its answer.
    """

    broken = httpx2.ReadError
    stream = _Stream

    def __init__(
        self, note: Callable[[httpx2.Request, httpx2.Response | None], None] = lambda *_: None
    ) -> None:
        super().__init__(httpx2.AsyncHTTPTransport(), note)
