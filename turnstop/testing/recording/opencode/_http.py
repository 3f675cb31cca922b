"""Streams of events that somebody sends into, and requests that can be broken off."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import attrs
import httpx2
import trio

_PULLED = "the cable was pulled"


class Stream(httpx2.AsyncByteStream):
    """A stream of events.

    Attributes:
        closed: whether the client has let go of it.
    """

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[str | None](math.inf)
        self.closed = False

    def say(self, event: Any) -> None:
        """Send an event."""
        self.say_raw(f"data: {json.dumps(event)}\n\n")

    def say_raw(self, text: str) -> None:
        """Send a text as it is."""
        if not self.closed:
            self._send.send_nowait(text)

    def break_off(self) -> None:
        """Break the connection."""
        if not self.closed:
            self._send.send_nowait(None)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        text = await self._receive.receive()
        if text is None:
            raise httpx2.ReadError(_PULLED)
        return text.encode()

    async def aclose(self) -> None:
        """Note that the client has let go.

        **Cancellation:** it never waits.
        """
        self.closed = True


@attrs.define(eq=False)
class Request:
    """A request that is not answered yet.

    Attributes:
        method: of HTTP.
        path: the parts of its path.
        body: what came with it, or None.
    """

    method: str
    path: tuple[str, ...]
    body: Any
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def break_off(self) -> None:
        """Break its connection."""
        self._scope.cancel()

    async def answered_by(self, answer: Any) -> httpx2.Response:
        """What `answer(self)` returns.

        Raises:
            ReadError: it was broken off.

        **Cancellation:** what was begun goes on.
        """
        response: httpx2.Response
        with self._scope:
            response = await answer(self)
            return response
        raise httpx2.ReadError(_PULLED)


def read_request(request: httpx2.Request) -> Request:
    """A request, taken apart."""
    path = tuple(part for part in request.url.path.split("/") if part)
    return Request(request.method, path, json.loads(request.content) if request.content else None)


def answer(body: Any, status: int = 200) -> httpx2.Response:
    """A response with JSON; without a body where that is None."""
    return httpx2.Response(status) if body is None else httpx2.Response(status, json=body)
