"""Transports between a client of HTTPX and the real one: one that can be cut, one that writes down.

httpx and httpx2 have the same classes under two names. What stands here needs neither: a transport
of one of them says which it is, by the bases that it adds.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Self, TypeVar

import trio

from ...transports.sse import EventParser, ServerEvent
from .._wire import WireFrame

__all__ = ["CutStream", "CuttableTransport", "TappedStream", "TappedTransport"]


_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class _Passing:
    """The stream of a response, whose chunks go on as they are."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._chunks: AsyncIterator[bytes] = aiter(inner)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Transport:
    """A transport over another.

    Attributes:
        stream: makes the stream of a response, told this transport and the stream below.
    """

    stream: ClassVar[Callable[..., Any]]

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        """Close what is below.

        **Cancellation:** as there.
        """
        await self._inner.aclose()


class CuttableTransport(_Transport, Generic[_Request, _Response]):
    """Connections that can be broken, and requests that are heard.

    Attributes:
        broken: what a client is told where they are.
        note: told of each request when it goes out, and again with its answer.
    """

    broken: ClassVar[type[Exception]]

    def __init__(
        self, inner: Any, note: Callable[[_Request, _Response | None], None] = lambda *_: None
    ) -> None:
        super().__init__(inner)
        self.note = note
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
            raise self.broken("the cable was pulled")

    async def handle_async_request(self, request: _Request) -> _Response:
        """Pass a request on.

        **Cancellation:** as the transport below.
        """
        self.note(request, None)
        with self.use():
            response: Any = await self._inner.handle_async_request(request)
            response.stream = self.stream(self, response.stream)
            self.note(request, response)
            answer: _Response = response
            return answer
        raise AssertionError("unreachable")


class CutStream(_Passing):
    """A stream that fails where its transport is cut."""

    def __init__(self, cable: CuttableTransport[Any, Any], inner: Any) -> None:
        super().__init__(inner)
        self._cable = cable

    async def __anext__(self) -> bytes:
        with self._cable.use():
            return await super().__anext__()
        raise AssertionError("unreachable")


class TappedTransport(_Transport):
    """Writes down what goes by, for the golden wire.

    A request stands in the wire as `{"ask": "POST", "path": [...], "body": ...}`, its answer as
    `{"answer": "POST", "path": [...], "status": 200, "body": ...}`, an event as its data.

    Attributes:
        frames: what went by.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.frames: list[WireFrame] = []

    async def handle_async_request(self, request: Any) -> Any:
        """Pass a request on.

        **Cancellation:** what has gone by by then is written down.
        """
        asked = self.asked(request)
        self.frames.append(WireFrame("->", asked))
        response = await self._inner.handle_async_request(request)
        kind = response.headers.get("content-type", "")
        if "text/event-stream" in kind:
            response.stream = self.stream(self, response.stream, asked)
            return response
        content = await response.aread()
        self.note(self.answered(asked, response, content))
        headers = {"content-type": kind}
        return type(response)(response.status_code, headers=headers, content=content)

    def asked(self, request: Any) -> dict[str, Any]:
        """What stands in the wire of a request."""
        path = [part for part in request.url.path.split("/") if part]
        body = json.loads(request.content) if request.content else None
        return {"ask": request.method, "path": path, "body": body}

    def answered(self, asked: dict[str, Any], response: Any, content: bytes) -> Any:
        """What stands in the wire of an answer that is no stream."""
        told = {"answer": asked["ask"], "path": asked["path"], "status": response.status_code}
        return {**told, "body": json.loads(content) if content else None}

    def event(self, event: ServerEvent) -> Any:
        """What stands in the wire of an event."""
        return json.loads(event.data)

    def end(self, asked: dict[str, Any]) -> Any:
        """What stands in the wire of the end of a stream; None: nothing."""
        return None

    def note(self, body: Any) -> None:
        """Write down what the server says."""
        self.frames.append(WireFrame("<-", body))


class TappedStream(_Passing):
    """A stream whose events are written down, and its end."""

    def __init__(self, tap: TappedTransport, inner: Any, asked: dict[str, Any]) -> None:
        super().__init__(inner)
        self._tap = tap
        self._asked = asked
        self._parser = EventParser()

    async def __anext__(self) -> bytes:
        try:
            chunk = await super().__anext__()
        except StopAsyncIteration:
            if (end := self._tap.end(self._asked)) is not None:
                self._tap.note(end)
            raise
        for event in self._parser.feed(chunk):
            self._tap.note(self._tap.event(event))
        return chunk
