"""Which asyncio task, and which function in a thread, belongs to which turn.

Tasks are found by the context that they were made in: asyncio copies it from task to task and from
callback to callback, so that what a library starts for a turn is the turn's, however deep it is.
They are kept by weak references, as asyncio keeps them; what has ended is thrown out now and then.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar, final

import attrs

from ...abc import current_turn
from ._jobs import Job

__all__ = ["NOBODY", "Filed", "Filing", "tasks_of"]

Result = TypeVar("Result")

Task: TypeAlias = "asyncio.Task[Any]"
Filed: TypeAlias = "Task | Job[Any]"

NOBODY = ""
"""What `current_turn` is where a call belongs to no turn."""

_FEW = 32


@attrs.define(eq=False)
class _Shelf:
    """Weak references to what is filed, each with a number that tells what was made before it."""

    turn_id: str
    _refs: list[tuple[int, weakref.ref[Filed]]] = attrs.field(factory=list)
    _prune_at: int = _FEW

    def add(self, number: int, one: Filed) -> None:
        self._refs.append((number, weakref.ref(one)))
        if len(self._refs) >= self._prune_at:
            self._refs = [(number, weakref.ref(one)) for number, one in self._alive()]
            self._prune_at = 2 * len(self._refs) + _FEW

    def alive(self) -> list[Filed]:
        return [one for _, one in sorted(self._alive(), key=itemgetter(0))]

    def _alive(self) -> list[tuple[int, Filed]]:
        refs = [*self._refs]
        found = [(number, ref()) for number, ref in refs]
        return [(number, one) for number, one in found if one is not None and not one.done()]


@final
class Filing:
    """A task factory, and what it has made. Each turn has its shelf; what is nobody's has one.

    Others than the loop's thread may look, and see nothing of what is filed in that instant. Only
    the loop's thread makes, and throws out.
    """

    def __init__(self) -> None:
        self._nobodys = _Shelf(NOBODY)
        # By identity: turns of two rooms may be called the same. A shelf keeps its turn's id, so
        # that no other object can have its address meanwhile.
        self._shelves: dict[int, _Shelf] = {}
        self._prune_at = _FEW
        self._numbers = itertools.count()

    def make(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> Task:
        """Make a task as the loop would, and file it. A task factory."""
        context: Context | None = options.get("context")
        turn_id = current_turn.get(NOBODY) if context is None else context.get(current_turn, NOBODY)
        # Before its first step, which may be taken here, and in which it may make others.
        number = next(self._numbers)
        task: Task = asyncio.Task(coro, loop=loop, **options)
        if not task.done():
            self._shelf(turn_id).add(number, task)
        return task

    def employ(self, fn: Callable[[], Result]) -> Job[Result]:
        """File a function that a thread is to run. In the context of who wants it run."""
        job = Job(fn)
        self._shelf(current_turn.get(NOBODY)).add(next(self._numbers), job)
        return job

    def alive(self, turn_id: str) -> list[Filed]:
        """What of this turn has not ended, the oldest first."""
        shelf = self._shelves.get(id(turn_id)) if turn_id else self._nobodys
        return [] if shelf is None else shelf.alive()

    def all_alive(self) -> list[tuple[str, Filed]]:
        """All that has not ended, with its turn."""
        shelves = [self._nobodys, *self._shelves.copy().values()]
        return [(shelf.turn_id, one) for shelf in shelves for one in shelf.alive()]

    def all_tasks(self) -> list[Task]:
        """Every task that has not ended."""
        return tasks_of(one for _, one in self.all_alive())

    def count_turns(self) -> int:
        """How many turns have something that has not ended."""
        return sum(bool(shelf.alive()) for shelf in self._shelves.copy().values())

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


def tasks_of(filed: Iterable[Filed]) -> list[Task]:
    """What can be told to end."""
    return [one for one in filed if not isinstance(one, Job)]
