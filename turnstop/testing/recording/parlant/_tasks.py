"""What runs the engine's tasks: one for each session, as Parlant's `BackgroundTaskService`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

__all__ = ["BackgroundTasks"]


class BackgroundTasks:
    """Tasks by their tags. As there, one lock is held while an older task is waited for."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lock = asyncio.Lock()

    async def restart(self, work: Coroutine[Any, Any, None], *, tag: str) -> asyncio.Task[None]:
        """Start a task; end the one that has the tag first.

        **Cancellation:** the older one was told.
        """
        async with self._lock:
            older = self._tasks.get(tag)
            if older is not None and not older.done():
                older.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await older
            task = self._tasks[tag] = asyncio.create_task(work)
            return task

    def cancel_all(self) -> None:
        """Tell all of them; as at the server's end."""
        for task in self._tasks.values():
            task.cancel()
