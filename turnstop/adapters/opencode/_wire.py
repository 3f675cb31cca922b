"""What is said to an opencode server over HTTP, and what its answers mean when they are none."""

from __future__ import annotations

import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from contextlib import asynccontextmanager
from typing import Any, Final, final

import httpx2

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused

_SHOWN: Final = 500
_CONNECT: Final = 10.0
_ANSWER: Final = 60.0
_NAMES_ONE: Final = re.compile(r"/(session|permission|question)/(?!status$)[^/]+")


class NotThere(Exception):
    """opencode itself says that it knows no such session, message or question."""


class NoOpenCode(BackendMisbehaved):
    """Something else than opencode has answered: a proxy that knows no server just now, say."""


@final
class Wire:
    """The calls, all of them about one directory.

    Attributes:
        url: where the server is; known once it has said so.
    """

    def __init__(self, http: httpx2.AsyncClient, directory: str | None, url: str = "") -> None:
        self.url = url
        self._http = http
        self._params = {} if directory is None else {"directory": directory}

    async def get(self, path: str, **params: str | int) -> Any:
        """What the server has there.

        Raises:
            NotThere: opencode says that there is no such thing.
            BackendError: it did not answer, or not with this.

        **Cancellation:** changes nothing.
        """
        return await self._ask("GET", path, params)

    async def listed(self, path: str, **params: str | int) -> list[Mapping[str, Any]]:
        """The things that the server has there; as `get`.

        Raises:
            BackendMisbehaved: it told no list of things.

        **Cancellation:** changes nothing.
        """
        found = await self.get(path, **params)
        if not (isinstance(found, list) and all(isinstance(one, Mapping) for one in found)):
            raise BackendMisbehaved(f"opencode told no list of {path}: {str(found)[:_SHOWN]}")
        return found

    async def post(
        self, path: str, body: Any = None, *, sent: Callable[[], None] | None = None
    ) -> Any:
        """Have the server do something. `sent` is called when the request has left.

        Raises:
            NotThere: as `get`, and the next one.
            BackendError: it did not do it, or nobody knows.

        **Cancellation:** the server may have been told.
        """
        return await self._ask("POST", path, {}, body, sent)

    async def delete(self, path: str) -> None:
        """Have the server drop something; as `post`.

        **Cancellation:** the server may have been told.
        """
        await self._ask("DELETE", path, {})

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[AsyncIterable[bytes], None]:
        """The server's stream of events, as it comes.

        Raises:
            BackendError: there is none, or it broke.

        **Cancellation:** closes it.
        """
        timeout = httpx2.Timeout(_ANSWER, connect=_CONNECT, read=None)
        request = self._build("GET", "/event", {}, None, timeout)
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code >= 400:
                    await response.aread()
                    raise self._refused(response, "/event")
                yield response.aiter_raw()
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            raise self._explain(error) from error

    def _build(
        self, method: str, path: str, params: dict[str, Any], body: Any, timeout: httpx2.Timeout
    ) -> httpx2.Request:
        try:
            request = self._http.build_request(
                method,
                f"{self.url}{path}",
                params={**self._params, **params},
                json=body,
                headers={"Accept": "text/event-stream" if path == "/event" else "application/json"},
                timeout=timeout,
            )
        except httpx2.InvalidURL as error:
            # An id that the server made up is in it.
            raise BackendMisbehaved(f"opencode told what is no id: {path!r}") from error
        request.stream = _Body(request.content)
        return request

    async def _ask(
        self,
        method: str,
        path: str,
        params: dict[str, Any],
        body: Any = None,
        sent: Callable[[], None] | None = None,
    ) -> Any:
        timeout = httpx2.Timeout(_ANSWER, connect=_CONNECT)
        request = self._build(method, path, params, body, timeout)
        if sent is not None:
            request.extensions["trace"] = _tracer(sent)
        try:
            response = await self._http.send(request)
        except httpx2.HTTPError as error:
            raise self._explain(error) from error
        if response.status_code >= 400:
            raise self._refused(response, path)
        if not response.content:
            return None
        try:
            return response.json()
        except (ValueError, RecursionError):
            text = response.text[:_SHOWN]
            raise BackendMisbehaved(
                f"opencode answered {path} by what is no JSON: {text}"
            ) from None

    def _refused(self, response: httpx2.Response, path: str) -> Exception:
        status, said = response.status_code, response.text[:_SHOWN]
        text = f"opencode at {self.url} answered HTTP {status} to {path}: {said}"
        if status == 401:
            return BackendRefused(
                f"opencode at {self.url} wants a password: give open_opencode the one that it was "
                "started with in OPENCODE_SERVER_PASSWORD"
            )
        if status == 404:
            return NotThere(text) if _says_not_there(response, path) else NoOpenCode(text)
        return BackendRefused(text) if status < 500 else BackendMisbehaved(text)

    def _explain(self, error: httpx2.HTTPError) -> BackendError:
        if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
            return BackendRefused(
                f"nothing answers at {self.url}: start `opencode serve` there, or correct the url"
            )
        if isinstance(error, httpx2.TimeoutException):
            return BackendLost(f"opencode at {self.url} has not answered for {_ANSWER:g} s")
        return BackendLost(f"the connection to opencode at {self.url} broke: {error!r}")


def _says_not_there(response: httpx2.Response, path: str) -> bool:
    """Whether a 404 is opencode's own word about what the path names.

    A proxy's says nothing of a session: that may work on.
    """
    if _NAMES_ONE.match(path) is None:
        return False
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return False
    told = (body.get("name"), body.get("_tag")) if isinstance(body, dict) else ()
    return any(isinstance(one, str) and one.endswith("NotFoundError") for one in told)


class _Body(httpx2.AsyncByteStream):
    """A request's body, all at once. HTTPX's is a generator, which a cancel leaves half-read."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _tracer(sent: Callable[[], None]) -> Callable[[str, Any], Awaitable[None]]:
    async def trace(name: str, info: Any) -> None:
        if name.endswith(".send_request_body.complete"):
            sent()

    return trace
