"""Ends asyncio tasks, and waits for them from Trio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import final

import attrs
import trio

from ._filing import Task
from ._host import Host

__all__ = ["close_generators", "end_tasks"]


async def end_tasks(host: Host, tasks: Sequence[Task]) -> None:
    """Cancel tasks, all at once, and return when they have ended.

    **Cancellation:** they are cancelled all the same, and nobody waits for them.
    """
    joining = _Joining(host)
    host.run(joining.begin, tasks)
    await joining.over.wait()


async def close_generators() -> None:
    """Close the async generators that nobody reads to their end. On the loop's side."""
    await asyncio.get_running_loop().shutdown_asyncgens()


@final
@attrs.define(eq=False)
class _Joining:
    _host: Host
    over: trio.Event = attrs.field(factory=trio.Event)
    _left: int = 1

    def begin(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if not task.done():
                self._left += 1
                task.add_done_callback(self._count)
                # Not here: a future of somebody else's making may fail at it.
                task.get_loop().call_soon(task.cancel)
        self._count(None)

    def _count(self, _: object) -> None:
        self._left -= 1
        if not self._left:
            self._host.tell(self.over.set)
