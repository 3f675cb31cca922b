"""What a client of HTTPX has to be helped with, where a turn depends on its calls.

An SDK that makes the requests tells nobody when one has left, so the client itself is asked. And
bodies that are async generators do not take a cancellation in their stride: one that is dropped
half-read is collected later, and Trio rightly complains.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, final
from urllib.parse import urlsplit

import httpx
import trio

from .sse import EventParser, ServerEvent

__all__ = ["Departures", "bare_url", "read_events"]

Left: TypeAlias = Callable[[], None]
_MARK: Final = "turnstop-call"


def bare_url(url: str) -> str:
    """Where a server is, without the name, the password and the query that let one in.

    For what people read and files keep: errors, and the name and the addresses in a journal.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "what is no address"
    if not parts.netloc:
        return url
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}".rstrip("/")


@final
class Departures:
    """Tells when a request of a client has left.

    Args:
        http: the client; from now on, its requests are sent with their body all at once.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._awaited: dict[str, Left] = {}
        http.event_hooks["request"].append(self._tap)

    @contextmanager
    def awaited(self, left: Left) -> Generator[dict[str, str]]:
        """Yield headers; a request that has them calls `left` when it has left, without them."""
        key = str(uuid.uuid4())
        self._awaited[key] = left
        try:
            yield {_MARK: key}
        finally:
            self._awaited.pop(key, None)

    async def _tap(self, request: httpx.Request) -> None:
        request.stream = _Body(request.content)
        # The mark never leaves: it only says which call this request is.
        left = self._awaited.pop(request.headers.pop(_MARK, ""), None)
        if left is not None:
            request.extensions["trace"] = _tracer(left)


class _Body(httpx.AsyncByteStream):
    """A request's body, all at once. HTTPX's is a generator, which a cancel leaves half-read."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _tracer(left: Left) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    async def trace(name: str, info: Mapping[str, Any]) -> None:
        if name.endswith(".send_request_body.complete"):
            left()

    return trace


async def read_events(response: httpx.Response, hear: Callable[[ServerEvent], None]) -> None:
    """Read a stream of server-sent events to its end; `hear` is given each.

    Args:
        response: the answer, its body not read yet.
        hear: called in order, as they come; where it raises, reading ends.

    Raises:
        BackendMisbehaved: an event is too long.
        httpx.HTTPError: the connection broke.
        Exception: what `hear` has raised.

    **Cancellation:** what was heard was heard. The response is the caller's to close.
    """
    parser, failure = EventParser(), None
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_bytes():
            if failure is not None:
                continue
            try:
                for event in parser.feed(chunk):
                    hear(event)
            except Exception as error:
                # The generators below are only let go of by running them to an end.
                failure = error
                scope.cancel()
    if failure is not None:
        raise failure
