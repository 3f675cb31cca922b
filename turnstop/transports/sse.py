"""Server-sent events: lines in, events out, and nothing that reads or waits."""

from __future__ import annotations

import attrs


@attrs.frozen
class ServerEvent:
    """One event of the stream; `kind` is `"message"` where the server did not name it."""

    data: str
    kind: str = "message"
    id: str = ""


@attrs.define
class EventParser:
    """Puts events together from a stream's lines, which are given without their ends.

    An event that the stream's end cut off is dropped, as the format says.
    """

    _data: list[str] = attrs.field(factory=list, init=False)
    _kind: str = attrs.field(default="", init=False)
    _id: str = attrs.field(default="", init=False)
    _begun: bool = attrs.field(default=False, init=False)

    def feed(self, line: str) -> ServerEvent | None:
        """Take a line; return the event that it completes, if any."""
        if not self._begun:
            self._begun, line = True, line.removeprefix("\ufeff")
        if not line:
            return self._finish()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _finish(self) -> ServerEvent | None:
        data, kind = self._data, self._kind
        self._data, self._kind = [], ""
        if not data:
            return None
        return ServerEvent("\n".join(data), kind or "message", self._id)
