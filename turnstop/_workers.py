"""Kernel tasks that do one job after another: waking one costs a third of starting one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeAlias

import attrs
import trio
from trio.lowlevel import Abort, enable_ki_protection

Job: TypeAlias = Callable[[], Awaitable[object]]

# More are needed in one instant only where everything stops at once.
MAX_IDLE = 16


async def _nothing() -> None:
    """The job of a worker that may go."""


@attrs.define(eq=False)
class _Worker:
    """A task that has done its job and waits for the next."""

    task: trio.lowlevel.Task
    idle: list[_Worker]
    job: Job = _nothing

    def abort(self, _: object) -> Abort:
        self.idle.remove(self)
        return Abort.SUCCEEDED


@attrs.define(eq=False)
class Workers:
    """Has jobs done, each by a task that does nothing else meanwhile, protected from Ctrl-C.

    Attributes:
        start_soon: the nursery's.
    """

    start_soon: Callable[..., None]
    _idle: list[_Worker] = attrs.field(factory=list, init=False)
    _over: bool = attrs.field(default=False, init=False)

    def spawn(self, context: Context, job: Job, name: str) -> None:
        """Have a job done in a copy of `context`, whoever asks for it."""
        # A copy, since a context is entered once at a time, and this may be the asker's own.
        context = context.copy()
        if not self._idle:
            context.run(self.start_soon, self._work, job, name=name)
            return
        worker = self._idle.pop()
        # Trio runs each step of a task in what its `context` is then.
        worker.job, worker.task.context, worker.task.name = job, context, name
        trio.lowlevel.reschedule(worker.task)

    def dismiss(self) -> None:
        """Let the idle ones go, and keep none from here on."""
        self._over = True
        while self._idle:
            self.spawn(Context(), _nothing, "turnstop idle")

    @enable_ki_protection
    async def _work(self, job: Job) -> None:
        await job()
        del job  # who waits keeps nothing of a turn that is over
        worker = _Worker(trio.lowlevel.current_task(), self._idle)
        while not self._over and len(self._idle) < MAX_IDLE:
            self._idle.append(worker)
            await trio.lowlevel.wait_task_rescheduled(worker.abort)
            job, worker.job = worker.job, _nothing
            await job()
            del job
