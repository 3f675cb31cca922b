"""What a function is given: what it is to do, and where it may be stopped.

A cancelled async function is cancelled at its next checkpoint, as any Trio code; one in a thread
is left by `Stopped` at its next `checkpoint`. What must not be interrupted is a *step*: it runs to
its end, and what it returns is discarded where the task was cancelled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVarTuple, final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from .._calls import unprotected
from .._functions import check_made, is_async
from .._records import OnlyMadeByUs
from ..events import Event
from ._task import Task

__all__ = ["Job", "Stopped", "ThreadJob"]

Args = TypeVarTuple("Args")


class Stopped(BaseException):
    """The task of this thread is cancelled; raised by the methods of `ThreadJob`.

    Not an `Exception`, so that a broad `except Exception` around a step does not swallow it.
    """


@attrs.define(eq=False)
class _Job(metaclass=OnlyMadeByUs):
    _task: Task
    session: object | None
    claim: Any = attrs.field(default=None, init=False)

    @property
    def task_id(self) -> str:
        """Names the task."""
        return self._task.task_id

    @property
    def room(self) -> str:
        """The conversation."""
        return self._task.room

    @property
    def content(self) -> Any:
        """What it is to do, as the caller gave it."""
        return self._task.content

    def _note_progress(self) -> None:
        if self.claim is not None:
            self.claim.note_progress()


@final
@attrs.define(eq=False)
class Job(_Job):
    """What an async function is given.

    Attributes:
        session: what this room's last task left here; leave something for the next.
        claim: what is held for it; None where nothing is.
    """

    def emit(self, event: Event) -> None:
        """Tell the caller something; nothing is told once the task is cancelled. Never waits."""
        self._note_progress()
        self._task.tell(event)

    async def checkpoint(self) -> None:
        """Go on, unless the task is cancelled; and note progress.

        **Cancellation:** this is where it arrives.
        """
        self._note_progress()
        await trio.lowlevel.checkpoint()

    @enable_ki_protection
    async def step(self, fn: Callable[[*Args], Any], *args: *Args) -> Any:
        """Do something that must not be interrupted, and return what it returns.

        Args:
            fn: async; or an ordinary function, which is called in a thread.
            args: its arguments.

        Raises:
            TypeError: it is an ordinary function, and has only made a coroutine or a generator.

        **Cancellation:** before it: nothing is called. Meanwhile: it goes on to its end, and what
        it returns is discarded.
        """
        await self.checkpoint()
        if is_async(fn):
            with trio.CancelScope(shield=True):
                result = await unprotected(fn, *args)
        else:
            result = await self._task.threads.run(fn, *args)
        await self.checkpoint()
        return check_made(result, "give the step an async function, or one that does it")


@final
@attrs.define(eq=False)
class ThreadJob(_Job):
    """What a blocking function is given; its methods are called in its thread.

    Attributes:
        session: what this room's last task left here; leave something for the next.
        claim: what is held for it; None where nothing is.
    """

    _token: trio.lowlevel.TrioToken

    @property
    def is_cancelled(self) -> bool:
        """Whether the task is cancelled, for code that cannot be left by an exception."""
        return self._task.is_cancelled

    def checkpoint(self) -> None:
        """Go on, or raise `Stopped` where the task is cancelled; and note progress."""
        if self._task.is_cancelled:
            raise Stopped
        self._note_progress()

    def emit(self, event: Event) -> None:
        """Tell the caller something. A checkpoint."""
        self.checkpoint()
        trio.from_thread.run_sync(self._task.tell, event, trio_token=self._token)

    def step(self, fn: Callable[[*Args], Any], *args: *Args) -> Any:
        """Do something between two checkpoints.

        What it returns is discarded where the task was cancelled meanwhile.

        Raises:
            TypeError: it has only made a coroutine or a generator.
        """
        self.checkpoint()
        result = check_made(fn(*args), "give the step an ordinary function")
        self.checkpoint()
        return result
