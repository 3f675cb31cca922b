"""The real transport of httpx2, with connections that can be broken and requests that are heard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager

import httpx2
import trio

__all__ = ["Cable"]


class Cable(httpx2.AsyncBaseTransport):
    """The real transport.

    Attributes:
        note: told of each request when it goes out, and again with its answer.
    """

    def __init__(
        self, note: Callable[[httpx2.Request, httpx2.Response | None], None] = lambda *_: None
    ) -> None:
        self.note = note
        self._inner = httpx2.AsyncHTTPTransport()
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
            raise httpx2.ReadError("the cable was pulled")

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass a request on.

        **Cancellation:** as the real transport.
        """
        self.note(request, None)
        with self.use():
            response = await self._inner.handle_async_request(request)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Cut(self, response.stream)
            self.note(request, response)
            return response
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Close the connections.

        **Cancellation:** as the real transport.
        """
        await self._inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, cable: Cable, inner: httpx2.AsyncByteStream) -> None:
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
