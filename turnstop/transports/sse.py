"""Server-sent events: bytes in, events out, and nothing that reads or waits."""

from __future__ import annotations

import attrs

from .._errors import BackendMisbehaved
from ._lines import MAX_LINE, LineSplitter


@attrs.frozen
class ServerEvent:
    """One event of the stream; `kind` is `"message"` where the server did not name it."""

    data: str
    kind: str = "message"
    id: str = ""


@attrs.define
class EventParser:
    """Puts events together from a stream's chunks, wherever it was cut.

    A line ends at a newline, a carriage return, or both, and at no other character: JSON may hold
    what Unicode calls a line separator. An event that the stream's end cut off is dropped, as the
    format says.

    Attributes:
        limit: how long an event's data, or a line, may get, in bytes.
    """

    limit: int = MAX_LINE
    _lines: LineSplitter = attrs.field(init=False)
    _returned: bool = attrs.field(default=False, init=False)
    _data: list[bytes] = attrs.field(factory=list, init=False)
    _length: int = attrs.field(default=0, init=False)
    _kind: str = attrs.field(default="", init=False)
    _id: str = attrs.field(default="", init=False)
    _begun: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = LineSplitter(self.limit)

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take a chunk; return the events that it completes.

        Raises:
            BackendMisbehaved: a line or an event is longer than the limit.
        """
        found = (self._take(line) for line in self._lines.feed(self._with_newlines(chunk)))
        return [event for event in found if event is not None]

    def _with_newlines(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        # A line end may have been cut in two.
        rest = chunk.removeprefix(b"\n") if self._returned else chunk
        self._returned = chunk.endswith(b"\r")
        return rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun, line = True, line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._finish()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        return None

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._length += len(value) + 1
        if self._length > self.limit:
            raise BackendMisbehaved(f"it wrote an event of more than {self.limit} bytes")

    def _finish(self) -> ServerEvent | None:
        data, kind = self._data, self._kind
        self._data, self._length, self._kind = [], 0, ""
        if not data:
            return None
        text = b"\n".join(data).decode(errors="replace")
        return ServerEvent(text, kind or "message", self._id)
