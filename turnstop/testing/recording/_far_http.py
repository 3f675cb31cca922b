"""What far ends that speak HTTP in memory share: streams that are fed, and starts held back."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import ClassVar, Self

import trio

__all__ = ["FedStream", "HeldStarts"]


class FedStream:
    """The stream of a response, which somebody sends into, ends, or breaks.

    Attributes:
        broken: what the client is told where it is broken.
        closed: whether the client has let go of it.
    """

    broken: ClassVar[type[Exception]]

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[str | Exception](math.inf)
        self.closed = False

    def say_raw(self, text: str) -> None:
        """Send a text as it is."""
        self._put(text)

    def end(self) -> None:
        """End it, properly."""
        self._send.close()

    def break_off(self) -> None:
        """Break the connection."""
        self._put(self.broken("the cable was pulled"))

    def _put(self, item: str | Exception) -> None:
        # A client that has gone hears nothing, and the far end goes on; one that is over says none.
        if not self.closed:
            with suppress(trio.ClosedResourceError):
                self._send.send_nowait(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            item = await self._receive.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(item, Exception):
            raise item
        return item.encode()

    async def aclose(self) -> None:
        """Note that the client has let go.

        **Cancellation:** it never waits.
        """
        self.closed = True


class HeldStarts:
    """The lever that keeps the answers to starts back."""

    _released: trio.Event | None = None

    def hold_starts(self) -> None:
        """Answer no message from now on."""
        self._released = trio.Event()

    def release_starts(self) -> None:
        """Answer those that were held, and the next ones at once."""
        if self._released is not None:
            self._released.set()
            self._released = None

    async def _let_start(self) -> None:
        if self._released is not None:
            await self._released.wait()
