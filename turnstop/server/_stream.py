"""Events as a stream that can be taken up again where it broke."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import attrs
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .._unwrap import open_private_nursery
from ._ring import Record, Ring
from ._wire import to_line

__all__ = ["EventResponse", "Streams", "place_of"]

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
_ELSEWHERE: Final = -1
_DIGITS: Final = 18
_BATCH: Final = 64 * 1024
"""Bytes of data that are held for a listener that does not read, roughly."""


def place_of(last_event_id: str, epoch: str, latest: int) -> int | None:
    """The number of the event that was heard last.

    Args:
        last_event_id: as it is said; empty: nothing was heard.
        epoch: this server's.
        latest: the number of this server's last event.

    Returns:
        None where nothing was heard, and so nothing missed; -1 where it is no event that this
        server has sent.
    """
    if not last_event_id:
        return None
    heard, _, number = last_event_id.rpartition("-")
    if heard != epoch or not (number.isascii() and number.isdigit()):
        return _ELSEWHERE
    found = int(number[:_DIGITS])
    return found if found <= latest else _ELSEWHERE


@attrs.define
class Streams:
    """How many there are."""

    count: int = 0


class EventResponse(Response):
    """A ring's events from a place on, as server-sent events, until the ring is closed."""

    media_type = "text/event-stream"

    def __init__(
        self, ring: Ring, epoch: str, place: int | None, heartbeat: float, streams: Streams
    ) -> None:
        """Make one.

        Args:
            ring: whose records.
            epoch: what begins the id of each event.
            place: the number of the event heard last, as of `place_of`.
            heartbeat: seconds of silence, after which a comment is sent.
            streams: counts it, while it lasts.
        """
        super().__init__()
        del self.headers["content-length"]
        self._ring, self._epoch, self._place = ring, epoch, place
        self._heartbeat, self._streams = heartbeat, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events.

        **Cancellation:** the stream breaks; whoever reads it may take it up again.
        """
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return

        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        self._streams.count += 1
        self._ring.listeners += 1
        try:
            async with open_private_nursery() as nursery:
                nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
                await send(start)
                await self._tell(write)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                nursery.cancel_scope.cancel()
        finally:
            self._streams.count -= 1
            self._ring.listeners -= 1

    async def _tell(self, write: Write) -> None:
        ring = self._ring
        await write(b": turnstop\n\n")
        number = ring.lost if self._place is None else self._place
        while True:
            if number < ring.lost:
                number = ring.lost
                await write(self._gap())
            found: list[Record] | None = None
            with trio.move_on_after(self._heartbeat):
                found = [*await ring.wait_after(number, _BATCH)]
            if found is None:
                await write(b": \n\n")
            elif not found:
                return
            else:
                number = found[-1].number
                await write(b"".join(self._event(one) for one in found))

    def _gap(self) -> bytes:
        reason = "events were missed: ask for the rooms, and how they stand"
        return self._event(Record(self._ring.lost, "gap", to_line({"reason": reason})))

    def _event(self, record: Record) -> bytes:
        lines = f"id: {self._epoch}-{record.number}\nevent: {record.kind}\ndata: {record.data}\n\n"
        return lines.encode()


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
