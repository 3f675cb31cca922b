"""Waiting for a sign, but not for ever."""

from __future__ import annotations

import trio

__all__ = ["wait_at_most"]


async def wait_at_most(event: trio.Event, seconds: float) -> bool:
    """Wait until the event is set or the time is over; whether it is set.

    **Cancellation:** leaves nothing.
    """
    with trio.move_on_after(seconds):
        await event.wait()
    return event.is_set()
