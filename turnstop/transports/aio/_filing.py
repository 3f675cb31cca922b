"""Which asyncio task belongs to which turn.

Tasks are found by the context that they were made in: asyncio copies it from task to task and from
callback to callback, so that what a library starts for a turn is the turn's, however deep it is.
They are kept by weak references, as asyncio keeps them; what has ended is thrown out now and then.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeAlias, final

import attrs

from ...abc import current_turn

__all__ = ["NOBODY", "Filing"]

Task: TypeAlias = "asyncio.Task[Any]"

NOBODY = ""
"""What `current_turn` is where a call belongs to no turn."""

_FEW = 32


@attrs.define(eq=False)
class _Shelf:
    """Weak references to tasks, in the order in which the tasks were made."""

    turn_id: str
    _refs: list[weakref.ref[Task]] = attrs.field(factory=list)
    _prune_at: int = _FEW

    def add(self, task: Task) -> None:
        self._refs.append(weakref.ref(task))
        if len(self._refs) >= self._prune_at:
            self._prune_at = 2 * len(self.alive()) + _FEW

    def alive(self) -> list[Task]:
        # From another thread than the loop's, this may miss what is added in that instant.
        refs = [*self._refs]
        tasks = [task for ref in refs if (task := ref()) is not None and not task.done()]
        self._refs[: len(refs)] = [weakref.ref(task) for task in tasks]
        return tasks


@final
class Filing:
    """A task factory, and what it has made. Each turn has its shelf; what is nobody's has one."""

    def __init__(self) -> None:
        self._nobodys = _Shelf(NOBODY)
        # By identity: turns of two rooms may be called the same. A shelf keeps its turn's id, so
        # that no other object can have its address meanwhile.
        self._shelves: dict[int, _Shelf] = {}
        self._prune_at = _FEW

    def make(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> Task:
        """Make a task as the loop would, and file it. A task factory."""
        context: Context | None = options.get("context")
        turn_id = current_turn.get(NOBODY) if context is None else context.get(current_turn, NOBODY)
        task: Task = asyncio.Task(coro, loop=loop, **options)
        if not task.done():
            self._shelf(turn_id).add(task)
        return task

    def alive(self, turn_id: str) -> list[Task]:
        """The tasks of this turn that have not ended, the oldest first."""
        if not turn_id:
            return self._nobodys.alive()
        shelf = self._shelves.get(id(turn_id))
        tasks = [] if shelf is None else shelf.alive()
        if not tasks:
            self._shelves.pop(id(turn_id), None)
        return tasks

    def all_alive(self) -> list[tuple[str, Task]]:
        """Every task that has not ended, with its turn."""
        shelves = [self._nobodys, *self._shelves.values()]
        return [(shelf.turn_id, task) for shelf in shelves for task in shelf.alive()]

    def count_turns(self) -> int:
        """How many turns have a task that has not ended."""
        self._throw_out()
        return len(self._shelves)

    def _shelf(self, turn_id: str) -> _Shelf:
        if not turn_id:
            return self._nobodys
        shelf = self._shelves.get(id(turn_id))
        if shelf is None:
            if len(self._shelves) >= self._prune_at:
                self._throw_out()
                self._prune_at = 2 * len(self._shelves) + _FEW
            shelf = self._shelves[id(turn_id)] = _Shelf(turn_id)
        return shelf

    def _throw_out(self) -> None:
        for key, shelf in [*self._shelves.items()]:
            if not shelf.alive():
                del self._shelves[key]


TaskFactory: TypeAlias = Callable[..., Task]
