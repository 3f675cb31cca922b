"""JSON-RPC messages behind a `Content-Length` header, as the Language Server Protocol frames them.

https://microsoft.github.io/language-server-protocol/specifications/base/0.9/specification/
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias, final

from .._errors import BackendMisbehaved
from .dialect import shorten

__all__ = ["Message", "MessageSplitter", "frame"]

Message: TypeAlias = dict[str, Any]

_LENGTH = re.compile(rb"(?i)(?:^|\r\n)content-length: *(\d{1,12})(?:\r\n|$)")
_HEADERS_END = b"\r\n\r\n"
_MAX_HEADERS = 4096
_MAX_BODY = 256 * 1024 * 1024


@final
class MessageSplitter:
    """Cuts a stream of bytes into messages.

    Args:
        max_body: the most bytes that a message may have; more is refused before they come.
    """

    def __init__(self, max_body: int = _MAX_BODY) -> None:
        self._max_body = max_body
        self._buffer = bytearray()
        self._body: int | None = None

    @property
    def is_even(self) -> bool:
        """Whether what was fed ends with a message."""
        return not self._buffer and self._body is None

    def feed(self, chunk: bytes | bytearray) -> list[Message]:
        """Take a chunk; return the messages that it completed.

        Raises:
            BackendMisbehaved: this is no such stream.
        """
        self._buffer += chunk
        found = []
        while (body := self._next()) is not None:
            found.append(_decode(body))
        return found

    def _next(self) -> bytes | None:
        if self._body is None:
            end = self._buffer.find(_HEADERS_END, 0, _MAX_HEADERS)
            if end < 0:
                self._check_begin()
                return None
            self._body = self._length(bytes(self._buffer[:end]))
            del self._buffer[: end + len(_HEADERS_END)]
        if len(self._buffer) < self._body:
            return None
        body = bytes(self._buffer[: self._body])
        del self._buffer[: self._body]
        self._body = None
        return body

    def _length(self, headers: bytes) -> int:
        found = _LENGTH.search(headers)
        if found is None or (length := int(found[1])) > self._max_body:
            raise BackendMisbehaved(f"it wrote a message without a length: {_shown(headers)}")
        return length

    def _check_begin(self) -> None:
        """Refuse now what will be no header, however long one waits for its end."""
        line, broken, _ = bytes(self._buffer[:_MAX_HEADERS]).partition(b"\n")
        if len(self._buffer) >= _MAX_HEADERS or (broken and b":" not in line):
            raise BackendMisbehaved(f"it wrote what is no message: {_shown(line)}")


def _decode(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise BackendMisbehaved(f"it wrote a message that is no JSON object: {_shown(body)}")
    return message


def _shown(text: bytes) -> str:
    return shorten(text[:2000].decode(errors="replace"))


def frame(message: Message) -> bytes:
    """The bytes of a message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
