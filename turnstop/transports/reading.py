"""Tasks that read a remote turn, and outlive the calls which look at it.

A turn's stream begins in one call of the kernel and is read on in another, so the task that reads
belongs to neither: it belongs to whoever opened the connection, below the rooms.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, final

import trio

from .._service import Service, open_service
from .backlog import Backlog

Item = TypeVar("Item")


@final
class Reader(Generic[Item]):
    """One reading task, and what it found. Made by `Reading.start`."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._unread: Backlog[Item] = Backlog()

    def post(self, item: Item) -> None:
        """Add something to be received. Never waits, and from any task."""
        self._unread.post(item)

    async def receive(self) -> Item:
        """The oldest item that was not received yet; waits for one. See `Backlog.receive`.

        **Cancellation:** loses nothing.
        """
        return await self._unread.receive()

    def close(self) -> None:
        """Cancel the task; it has ended when the `Reading` closes at the latest."""
        self._scope.cancel()

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        with self._scope:
            await read()


@final
class Reading:
    """Where readers run. Made by `open_reading`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def start(
        self, reader: Reader[Item], read: Callable[[], Awaitable[None]], *, name: str
    ) -> None:
        """Run `read()` as the reader's task. It posts its errors: one that it raises ends all."""
        self._service.start_soon(reader._run, read, name=name)


@asynccontextmanager
async def open_reading() -> AsyncGenerator[Reading, None]:
    """Open a place for readers.

    **Cancellation:** reaches the readers when the body has left.
    """
    async with open_service() as service:
        yield Reading(service)
