"""A server of `turnstop serve`, as a command sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, final
from urllib.parse import quote, urldefrag

import attrs
import click
import httpx2

from ...transports.sse import EventParser, ServerEvent
from .showing import visible

__all__ = ["Refused", "Remote", "Unreachable", "path_of", "remote_at"]

_SILENCE = 45.0
"""Seconds without a word, after which a stream is taken for broken; a server that has nothing to
say says so three times in that time."""


class Refused(click.ClickException):
    """The server has said no, and why.

    Attributes:
        status: as HTTP has it.
        retry_after: seconds, after which it may say yes; None: it will not.
    """

    exit_code = 1

    def __init__(self, status: int, text: str, retry_after: float | None) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.retry_after = status, retry_after


class Unreachable(click.ClickException):
    """There is no server, or none that can be talked to like this."""

    exit_code = 2


def path_of(room: str, what: str = "") -> str:
    """The path of a room, or of something of it."""
    return f"/rooms/{quote(room, safe='')}" + (f"/{what}" if what else "")


def remote_at(url: str, token: str | None) -> Remote:
    """The server at an address, which may have its token behind it, as the server prints it."""
    base, fragment = urldefrag(url)
    told = fragment.removeprefix("token=") if fragment.startswith("token=") else ""
    if not (token := token or told):
        raise Unreachable("no token: say --token, or set TURNSTOP_TOKEN to what the server printed")
    try:
        headers = {"Authorization": f"Bearer {token}"}
        client = httpx2.Client(base_url=base.rstrip("/"), headers=headers, trust_env=False)
    except (httpx2.InvalidURL, UnicodeEncodeError):
        raise Unreachable(f"{base} is no address of a server, or the token is none") from None
    if client.base_url.scheme not in ("http", "https") or not client.base_url.host:
        raise Unreachable(f"{base} is no address of a server: it has to be http://HOST:PORT")
    return Remote(click.get_current_context().with_resource(client))


@final
@attrs.frozen
class Remote:
    """A server, and the token for it. Made by `remote_at`."""

    _http: httpx2.Client

    def get(self, path: str) -> Any:
        """Ask for something.

        Raises:
            Refused: the server has said no.
            Unreachable: it cannot be asked.
        """
        return self._talk(lambda: self._http.get(path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Tell it something; as `get` otherwise."""
        return self._talk(lambda: self._http.post(path, json=body))

    def events(self, path: str, after: str) -> Iterator[ServerEvent]:
        """What happens, behind the event with this id, until the stream ends.

        Raises:
            Refused: the server has said no.
            Unreachable: there is none, or the stream broke.
        """
        headers, parser = {"Last-Event-ID": after} if after else {}, EventParser()
        timeout = httpx2.Timeout(10.0, read=_SILENCE)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                _check(response)
                for chunk in response.iter_bytes():
                    yield from parser.feed(chunk)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    def _talk(self, call: Callable[[], httpx2.Response]) -> Any:
        try:
            response = call()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        _check(response)
        return _json_of(response)

    def _unreachable(self, error: Exception) -> Unreachable:
        why = str(error) or type(error).__name__
        url = str(self._http.base_url).rstrip("/")
        return Unreachable(f"no server answers at {url}: {why.rstrip('.')}; see --url")


def _json_of(response: httpx2.Response) -> Any:
    try:
        return json.loads(response.read())
    except ValueError:
        raise Unreachable("what answers there is no server of turnstop") from None


def _check(response: httpx2.Response) -> None:
    if response.is_success:
        return
    found = _json_of(response)
    text = found.get("error") if isinstance(found, dict) else None
    after = response.headers.get("retry-after", "")
    seconds = float(after) if after.isascii() and after.isdigit() else None
    raise Refused(response.status_code, visible(str(text)), seconds)
