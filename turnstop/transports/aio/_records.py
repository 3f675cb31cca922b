"""What the bridge tells about its tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs

__all__ = ["AioStatistics", "Bridged"]


@attrs.frozen
class AioStatistics:
    """A snapshot of a bridge.

    Attributes:
        tasks: asyncio tasks that have not ended, those of the library's own included.
        calls: calls that somebody waits for.
        turns: turns that have a task on the loop.
        abandoned: calls that were given up and have not ended yet.
        errors: errors on the loop that had nobody to go to, since it was opened. Each was logged.
    """

    tasks: int
    calls: int
    turns: int
    abandoned: int
    errors: int


@attrs.frozen
class Bridged:
    """An asyncio task that a turn left on the loop. Its `str` names it.

    Attributes:
        name: the task's name.
        what: the coroutine that it runs.
        turn_id: whose it is.
    """

    name: str = attrs.field(eq=False)
    what: str = attrs.field(eq=False)
    turn_id: str = attrs.field(eq=False)
    _task: asyncio.Task[Any] = attrs.field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return not self._task.done()

    def __str__(self) -> str:
        return f"asyncio task {self.name} ({self.what})"


def describe(task: asyncio.Task[Any], turn_id: str, what: str | None = None) -> Bridged:
    """What people are told of a task."""
    return Bridged(task.get_name(), what or name_of(task.get_coro()), turn_id, task)


def name_of(code: object) -> str:
    """What a function or a coroutine is called."""
    return getattr(code, "__qualname__", None) or repr(code)
