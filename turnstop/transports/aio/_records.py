"""What the bridge tells about its tasks."""

from __future__ import annotations

import attrs

from ._filing import Filed
from ._jobs import Job

__all__ = ["AioStatistics", "Bridged"]


@attrs.frozen
class AioStatistics:
    """A snapshot of a bridge.

    Attributes:
        tasks: asyncio tasks that have not ended, those of the library's own included.
        threads: functions of asyncio code that its loop's executor runs, or will run.
        calls: calls that somebody waits for.
        turns: turns that have a task on the loop, or a function in a thread.
        abandoned: calls that were given up and have not ended yet.
        errors: errors on the loop that had nobody to go to, since it was opened. Each was logged.
    """

    tasks: int
    threads: int
    calls: int
    turns: int
    abandoned: int
    errors: int


@attrs.frozen
class Bridged:
    """An asyncio task that a turn left on the loop, or a thread. Its `str` names it.

    Attributes:
        name: the task's name; `"thread"` for a function that the loop's executor runs, which
            nothing can end.
        what: the coroutine, or the function, that it runs.
        turn_id: whose it is.
    """

    name: str = attrs.field(eq=False)
    what: str = attrs.field(eq=False)
    turn_id: str = attrs.field(eq=False)
    _filed: Filed = attrs.field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return not self._filed.done()

    def __str__(self) -> str:
        kind = "thread" if isinstance(self._filed, Job) else f"task {self.name}"
        return f"asyncio {kind} ({self.what})"


def describe(filed: Filed, turn_id: str, what: str | None = None) -> Bridged:
    """What people are told of it."""
    if isinstance(filed, Job):
        return Bridged("thread", name_of(filed.what), turn_id, filed)
    return Bridged(filed.get_name(), what or name_of(filed.get_coro()), turn_id, filed)


def of_turn(turn_id: str) -> str:
    """Whose something is, for the log."""
    return f"of turn {turn_id}" if turn_id else "outside of any turn"


def name_of(code: object) -> str:
    """What a function or a coroutine is called."""
    return getattr(code, "__qualname__", None) or repr(code)
