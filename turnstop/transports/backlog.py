"""What was said and is not read yet: whoever says it never waits, and one task reads.

A peer that floods must not outrun its reader: what is read in one scheduler pass, a whole chunk of
lines, is to be read on in one pass too. So the reader takes what is there without waiting for a
pass after each piece; the other tasks get their turn when nothing is left, and now and then before.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar, final

import trio
import trio.lowlevel

__all__ = ["MAX_UNREAD", "Backlog"]

Item = TypeVar("Item")

MAX_UNREAD = 10_000
"""What may wait for a reader that does not read, before what is said is no longer kept."""

# More than one chunk of a stream holds, which is 64 KiB, and few enough for a pass to be short.
_AT_ONCE = 2_000


@final
class Backlog(Generic[Item]):
    """A queue between one who posts and one who receives."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._more = trio.Event()
        self._closed = False
        self._at_once = 0

    def __len__(self) -> int:
        return len(self._items)

    def post(self, item: Item) -> None:
        """Add something, from any task; never waits. Nothing, where it is closed."""
        if not self._closed:
            self._items.append(item)
            self._more.set()

    async def receive(self) -> Item:
        """Return the oldest item that was not received yet; wait for one.

        Raises:
            trio.EndOfChannel: it is closed, and all from before has been returned.

        **Cancellation:** loses nothing. Each call may be cancelled, but only one that finds
        nothing, and one in some thousands, lets other tasks run.
        """
        if self._items and self._at_once < _AT_ONCE:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._at_once += 1
        else:
            await self._wait()
            self._at_once = 1
        if not self._items:
            raise trio.EndOfChannel
        return self._items.popleft()

    async def _wait(self) -> None:
        if self._items or self._closed:
            await trio.lowlevel.checkpoint()
        else:
            self._more = trio.Event()
            await self._more.wait()

    def take(self) -> list[Item]:
        """What was not received yet. Never waits."""
        taken = [*self._items]
        self._items.clear()
        return taken

    def close(self) -> None:
        """Take nothing more; what is there may still be received."""
        self._closed = True
        self._more.set()
