"""The real transport of httpx, with connections that can be broken at this end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager

import httpx
import trio

__all__ = ["Cable"]


class Cable(httpx.AsyncBaseTransport):
    """The real transport, with connections that can be broken."""

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._uses: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """Break what is under way."""
        for use in self._uses:
            use.cancel()

    @contextmanager
    def use(self) -> Generator[None]:
        """Fail where it is cut meanwhile."""
        with trio.CancelScope() as scope:
            self._uses.add(scope)
            try:
                yield
            finally:
                self._uses.discard(scope)
        if scope.cancelled_caught:
            raise httpx.ReadError("the cable was pulled")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on.

        **Cancellation:** as the real transport.
        """
        with self.use():
            response = await self._inner.handle_async_request(request)
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Cut(self, response.stream)
            return response
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Close the connections.

        **Cancellation:** as the real transport.
        """
        await self._inner.aclose()


class _Cut(httpx.AsyncByteStream):
    def __init__(self, cable: Cable, inner: httpx.AsyncByteStream) -> None:
        self._cable = cable
        self._inner = inner
        self._chunks = aiter(inner)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with self._cable.use():
            return await anext(self._chunks)
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        await self._inner.aclose()
