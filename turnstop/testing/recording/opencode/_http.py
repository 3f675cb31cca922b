"""Streams of events that somebody sends into, and requests that can be broken off."""

from __future__ import annotations

import json
from typing import Any

import attrs
import httpx2
import trio

from .._far_http import FedStream

_PULLED = "the cable was pulled"


class Stream(FedStream, httpx2.AsyncByteStream):
    """A stream of events."""

    broken = httpx2.ReadError

    def say(self, event: Any) -> None:
        """Send an event."""
        self.say_raw(f"data: {json.dumps(event)}\n\n")


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
