"""An asyncio iterable, read on the loop, and what was read, handed out in Trio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Any, Generic, TypeVar, final

import attrs
import trio

from ..backlog import Backlog
from ._host import Host

__all__ = ["Iteration"]

Item = TypeVar("Item")

_AHEAD = 1_000
"""How many items are read before anybody asks for them."""


@final
@attrs.define(eq=False)
class Iteration(Generic[Item]):
    """An async iterator in Trio's flavour, over what `pump` reads in asyncio's."""

    # No generator: one that is not read to its end would be left to the garbage collector.

    _host: Host
    _read: Callable[..., AsyncIterable[Item]]
    _args: Any
    _unread: Backlog[tuple[Item] | Exception | None] = attrs.field(factory=Backlog)
    _wanted: asyncio.Event = attrs.field(factory=asyncio.Event)
    # Each is written in one thread. What is on its way between them is unread, too.
    _said: int = 0
    _taken: int = 0
    _over: bool = False
    _closing: bool = False
    _last_error: Exception | None = None

    async def pump(self) -> None:
        """Read everything, some way ahead of who asks. In asyncio's flavour."""
        source = aiter(self._read(*self._args))
        try:
            async for item in source:
                self._said += 1
                self._host.tell(self._unread.post, (item,))
                while self._said - self._taken >= _AHEAD:
                    self._wanted.clear()
                    await self._wanted.wait()
        finally:
            if (close := getattr(source, "aclose", None)) is not None:
                await close()

    def end(self, error: Exception | None) -> None:
        """Nothing more comes, but this error if it is one."""
        if self._closing:
            self._last_error = error
        self._unread.post(error)

    def close(self) -> None:
        """Nobody reads on."""
        self._closing = True

    def check_end(self) -> None:
        """Raise what the iterable's own clean-up has raised since nobody reads on."""
        if self._last_error is not None:
            raise self._last_error

    def __aiter__(self) -> Iteration[Item]:
        return self

    async def __anext__(self) -> Item:
        if self._over:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        found = await self._unread.receive()
        if isinstance(found, tuple):
            self._taken += 1
            if self._said - self._taken == _AHEAD // 2:
                self._host.run(self._wanted.set)
            return found[0]
        self._over = True
        raise StopAsyncIteration if found is None else found
