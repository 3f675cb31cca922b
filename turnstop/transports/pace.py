"""Waiting for a sign, but not for ever; and calling, but no longer than it can be answered."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from .._service import open_service

__all__ = ["call_unless", "open_farewell", "wait_at_most"]

Result = TypeVar("Result")


async def wait_at_most(event: trio.Event, seconds: float) -> bool:
    """Wait until the event is set or the time is over; whether it is set.

    **Cancellation:** leaves nothing.
    """
    with trio.move_on_after(seconds):
        await event.wait()
    return event.is_set()


async def call_unless(
    over: trio.Event,
    call: Callable[[], Awaitable[Result]],
    *,
    within: float = math.inf,
    grace: float = 0.0,
) -> Result:
    """What `call()` returns, unless the event is set before that, or the time is over.

    Args:
        over: set when nobody will answer any more.
        call: what is called.
        within: seconds that it may take.
        grace: seconds that it has to see by itself that nobody will.

    Raises:
        trio.BrokenResourceError: the event is set.
        trio.TooSlowError: the time is over.

    **Cancellation:** of the call: what it makes of it.
    """
    scope = trio.CancelScope()

    async def watch() -> None:
        await over.wait()
        await trio.sleep(grace)
        scope.cancel()

    # A service, so that an error leaves as itself also where it meets a cancellation from outside.
    async with open_service() as service:
        service.start_soon(watch)
        with scope, trio.fail_after(within):
            return await call()
    raise trio.BrokenResourceError("what would answer is gone")


@asynccontextmanager
async def open_farewell(
    farewell: Callable[[], Awaitable[object]], *, within: float
) -> AsyncGenerator[None, None]:
    """Call `farewell` when the body leaves, however it does; it may take `within` seconds.

    **Cancellation:** reaches the body, and not the farewell.
    """
    try:
        yield
    finally:
        with trio.move_on_after(within, shield=True):
            await farewell()
