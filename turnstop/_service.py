"""A nursery for services: its tasks are cancelled only after everything inside has left."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVarTuple, final

import trio
from trio.lowlevel import enable_ki_protection

from ._unwrap import open_private_nursery

Args = TypeVarTuple("Args")


@final
class Service:
    """Starts tasks that an outer cancellation does not reach. Made by `open_service`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()
        self._deadline = math.inf

    @enable_ki_protection
    def start_soon(
        self,
        async_fn: Callable[[*Args], Awaitable[object]],
        *args: *Args,
        name: object = None,
    ) -> None:
        """Start a task. An error of it cancels the body and leaves `open_service`."""
        self._nursery.start_soon(self._shielded, async_fn, args, name=name or async_fn)

    async def _shielded(self, async_fn: Callable[..., Awaitable[object]], args: Any) -> None:
        # A task that is cancelled before its first step still runs up to its first checkpoint,
        # so the shield is up before the cancellation can be delivered.
        with trio.CancelScope(shield=True, deadline=self._deadline) as scope:
            self._scopes.add(scope)
            await async_fn(*args)
        # Not where it raised: that ends the service, and the set with it.
        self._scopes.discard(scope)

    def _stop(self) -> None:
        self._deadline = -math.inf
        for scope in tuple(self._scopes):
            scope.cancel()


@asynccontextmanager
@enable_ki_protection
async def open_service() -> AsyncGenerator[Service, None]:
    """Open a service nursery.

    **Cancellation:** reaches the body at once and the services only when the body has left. A
    service bounds its own clean-up: this exit waits for it.
    """
    async with open_private_nursery() as nursery:
        service = Service(nursery)
        try:
            yield service
        finally:
            service._stop()


async def see_through(seconds: float, async_fn: Callable[[], Awaitable[object]]) -> None:
    """Call it in a task of its own, and give it so long.

    **Cancellation:** neither ends it nor is told; Ctrl-C is raised when it is over.
    """

    @enable_ki_protection
    async def run() -> None:
        with trio.move_on_after(seconds, shield=True):
            await async_fn()

    async with open_private_nursery() as nursery:
        nursery.start_soon(run, name=async_fn)
