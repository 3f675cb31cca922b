"""The far end of a program's pipes, in memory: JSON lines in either direction."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import trio
from trio.testing import memory_stream_pair

from ..._unwrap import open_private_nursery
from .._wire import Direction, WireFrame

__all__ = ["LineEnd"]


@attrs.define(eq=False, slots=False)
class LineEnd:
    """Keeps what goes by. What it does when it is told something is a subclass's: `_heard`.

    Attributes:
        wire: all that it was told and has said, in the order in which it went by.
    """

    wire: list[WireFrame]
    _far: trio.StapledStream[Any, Any] | None = attrs.field(default=None, init=False)
    _outbox: trio.MemorySendChannel[bytes] | None = attrs.field(default=None, init=False)
    _unsent: trio.MemoryReceiveChannel[bytes] | None = attrs.field(default=None, init=False)

    def connect(self) -> trio.StapledStream[Any, Any]:
        """Connect to it, anew; return the client's stream."""
        near, self._far = memory_stream_pair()
        self._outbox, self._unsent = trio.open_memory_channel[bytes](math.inf)
        return near

    async def serve(self) -> None:
        """Serve the connection.

        **Cancellation:** ends the serving; the stream stays as it is.
        """
        assert self._far is not None
        assert self._unsent is not None
        buffer = b""
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._send_all, self._far, self._unsent)
            async for chunk in self._far:
                *lines, buffer = (buffer + bytes(chunk)).split(b"\n")
                for line in lines:
                    frame = json.loads(line)
                    self._keep("->", frame)
                    self._heard(nursery, frame)
            nursery.cancel_scope.cancel()

    def _heard(self, nursery: trio.Nursery, frame: dict[str, Any]) -> None:
        raise NotImplementedError

    async def _send_all(
        self, stream: trio.StapledStream[Any, Any], unsent: trio.MemoryReceiveChannel[bytes]
    ) -> None:
        async for data in unsent:
            await stream.send_all(data)
        await stream.send_eof()

    def hang_up(self) -> None:
        """End the connection, once all that was said has been sent."""
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None

    @property
    def is_connected(self) -> bool:
        """Whether anybody can hear it."""
        return self._outbox is not None

    def write_line(self, line: bytes) -> None:
        """Say a line, whatever it is; nobody hears it where there is no connection."""
        if self._outbox is not None:
            self._outbox.send_nowait(line + b"\n")

    def _keep(self, direction: Direction, frame: dict[str, Any]) -> None:
        self.wire.append(WireFrame(direction, frame))
