"""What a request passes before anything looks at it: its host, its token, its rate, its size.

In this order: who does not bear the token learns nothing and uses up the rate of nobody who does,
and a body is not read before it is known to be wanted.
"""

from __future__ import annotations

import hmac
from typing import Final

import attrs
import trio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ._settings import Settings

__all__ = ["KNOW", "Bucket", "Guard", "read_body"]

KNOW: Final = "turnstop.know"
"""In the state of a request: what to call when it bears the token."""

_CONTROLS: Final = ("/stop", "/interrupt", "/play", "/answers")
_DRAINED: Final = 8
"""So many times the limit is read of a body that is too large, so that its sender reads the answer
instead of finding its connection broken."""


@attrs.define(eq=False)
class Bucket:
    """So many at once, and so many a second after that. On Trio's clock."""

    rate: float
    burst: int
    _level: float = attrs.field(init=False)
    _at: float = attrs.field(factory=trio.current_time, init=False)

    def __attrs_post_init__(self) -> None:
        self._level = self.burst

    def take(self) -> float:
        """Take one; return 0, or in how many seconds there will be one."""
        now = trio.current_time()
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level < 1:
            return (1 - self._level) / self.rate
        self._level -= 1
        return 0.0


@attrs.define(eq=False)
class Guard:
    """An ASGI application before the one that answers.

    Attributes:
        open_paths: what is answered without a token.
        hosts: the names that it may be asked by; None: any.
    """

    app: ASGIApp
    settings: Settings
    open_paths: frozenset[str]
    hosts: frozenset[str] | None
    _requests: Bucket = attrs.field(init=False)
    _controls: Bucket = attrs.field(init=False)
    _strangers: Bucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        rate, burst = self.settings.rate, self.settings.burst
        self._requests = Bucket(rate, burst)
        self._controls = Bucket(rate, burst)
        self._strangers = Bucket(rate, burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it.

        Raises:
            HTTPException: it is refused: 401, 421 or 429.

        **Cancellation:** the connection is dropped.
        """
        if scope["type"] == "http":
            self._check(scope)
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        path: str = scope["path"]
        headers = Headers(scope=scope)
        self._check_host(headers)
        if not self._bears_token(headers):
            self._take(self._strangers)
            if path in self.open_paths:
                return
            raise HTTPException(
                401,
                "this needs the token that the server printed: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        scope.get("state", {}).get(KNOW, int)()
        is_control = scope["method"] == "POST" and path.endswith(_CONTROLS)
        self._take(self._controls if is_control else self._requests)

    def _check_host(self, headers: Headers) -> None:
        if self.hosts is None:
            return
        host, colon, port = headers.get("host", "").rpartition(":")
        # A colon is in an IPv6 address too, which brackets end.
        name = host if colon and port.isdigit() else f"{host}{colon}{port}"
        if name.lower().removesuffix(".") not in self.hosts:
            # A page may have had its own name point here (DNS rebinding).
            raise HTTPException(
                421,
                "the server is not asked by this name: see --allow-host; in Python, Settings.hosts",
            )

    def _take(self, bucket: Bucket) -> None:
        if seconds := bucket.take():
            raise HTTPException(
                429,
                f"more than {self.settings.rate:g} requests a second: try again later",
                {"Retry-After": str(int(seconds) + 1)},
            )

    def _bears_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        right = self.settings.token.encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(
            token.strip().encode("utf-8", "surrogateescape"), right
        )


async def read_body(request: Request, limit: int, silence: float) -> bytes:
    """Read a request's body.

    Raises:
        HTTPException: 413: it is longer than that many bytes. 408: nothing of it has come for that
            many seconds. 400: it was cut off.

    **Cancellation:** the rest is not read.
    """
    length, chunks, is_more = 0, list[bytes](), True
    while is_more and length <= limit * _DRAINED:
        with trio.move_on_after(silence) as scope:
            message = await request.receive()
        if scope.cancelled_caught:
            text = f"nothing of the body has come for {silence:g} seconds"
            raise HTTPException(408, text, {"Connection": "close"})
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the body was cut off")
        chunk: bytes = message.get("body", b"")
        length += len(chunk)
        if length <= limit:
            chunks.append(chunk)
        is_more = message.get("more_body", False)
    if length > limit:
        # What is left of it cannot be told from another request.
        unread = is_more and request.scope["http_version"].startswith("1")
        headers = {"Connection": "close"} if unread else None
        raise HTTPException(413, f"the body is longer than {limit} bytes", headers)
    return b"".join(chunks)
