"""Events as a stream that can be taken up again where it broke."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trio

from ._ring import Record, Ring
from ._wire import to_line

__all__ = ["events_of", "place_of"]


def place_of(last_event_id: str, epoch: str) -> int | None:
    """The number of the event that was heard last; 0: none. None: it is none of this server."""
    if not last_event_id:
        return 0
    heard, _, number = last_event_id.rpartition("-")
    if heard != epoch or not (number.isascii() and number.isdigit()):
        return None
    return int(number[:18])


async def events_of(
    ring: Ring, epoch: str, place: int | None, heartbeat: float
) -> AsyncGenerator[bytes, None]:
    """The ring's events from a place on, as server-sent events, until the ring is closed.

    Args:
        ring: whose records.
        epoch: what begins the id of each event.
        place: the number of the event heard last; 0: from the first that is kept; None: from there
            too, and there is a gap before.
        heartbeat: seconds of silence, after which a comment is sent.

    **Cancellation:** changes nothing.
    """
    yield _gap(ring, epoch) if place is None else b": turnstop\n\n"
    # Whoever has heard nothing has missed nothing.
    number = place or ring.lost
    while True:
        if number < ring.lost:
            number = ring.lost
            yield _gap(ring, epoch)
        found: list[Record] | None = None
        with trio.move_on_after(heartbeat):
            found = [*await ring.wait_after(number)]
        if found is None:
            yield b": \n\n"
            continue
        if not found:
            return
        number = found[-1].number
        yield b"".join(_event(epoch, record.number, record.kind, record.data) for record in found)


def _gap(ring: Ring, epoch: str) -> bytes:
    reason = "events were missed: ask for the rooms, and how they stand"
    return _event(epoch, ring.lost, "gap", to_line({"reason": reason}))


def _event(epoch: str, number: int, kind: str, data: str) -> bytes:
    return f"id: {epoch}-{number}\nevent: {kind}\ndata: {data}\n\n".encode()
