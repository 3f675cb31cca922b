"""Lines out of chunks of bytes, with a limit on how long one may get."""

from __future__ import annotations

from .._errors import BackendMisbehaved

MAX_LINE = 64 * 2**20


class LineSplitter:
    """Cuts a stream of chunks into lines."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, chunk: bytes | bytearray) -> list[bytes]:
        """Take a chunk; return the lines that it completed, without their newlines.

        Raises:
            BackendMisbehaved: a line is longer than the limit.
        """
        # Only the new bytes are searched: a long line in small pieces costs its length once.
        searched = len(self._buffer)
        self._buffer += chunk
        lines = []
        begin = 0
        while (end := self._buffer.find(b"\n", max(searched, begin))) >= 0:
            lines.append(bytes(self._buffer[begin:end]))
            begin = end + 1
        del self._buffer[:begin]
        if any(len(line) > self._limit for line in (*lines, self._buffer)):
            raise BackendMisbehaved(f"it wrote a line of more than {self._limit} bytes")
        return lines
