"""The backend of an executor: its remote turns are calls of a function."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeAlias

import attrs
import trio

from ..abc import Emit, End, How, Request
from ._job import Job, Stopped, ThreadJob
from ._task import Holding, InputRequired, Task, TaskState

__all__ = ["Claiming", "Function", "Functions", "Holding", "is_async"]

logger = logging.getLogger("turnstop.executor")

Claiming: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Is given the job, and returns what holds its claim: a block around the function, and no more."""
Function: TypeAlias = Callable[[Any], Any]


def is_async(fn: Function) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


@attrs.define(eq=False)
class Functions:
    """Starts one; see `turnstop.abc.Backend`."""

    fn: Function
    thread: bool
    claim: Claiming | None
    # Not Trio's own limiter: work that waits in its thread would hold one of its tokens.
    limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(math.inf))

    async def start(self, request: Request[Task]) -> Run:
        # No wait in here: from this step on there is somebody who says when it is over.
        request.content.over = trio.Event()
        session = None if request.previous is not None else request.session
        return Run(self, request.content, session)


@attrs.define(eq=False)
class Run:
    """One call of the function, with its claim around it."""

    functions: Functions
    task: Task
    session: object | None

    async def follow(self, emit: Emit) -> End:
        """Hold the claim, call the function, let the claim go."""
        task = self.task
        assert task.over is not None
        try:
            with task.scope:
                await self._work(emit)
        except Exception as error:
            if not task.decide(TaskState.FAILED, error=error, text=str(error) or repr(error)):
                logger.warning("task %s has failed after its end was decided: %r", task, error)
        finally:
            task.over.set()
        return End(How.CANCELLED if task.is_cancelled else How.COMPLETED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Decide it, where that is still open."""
        self.task.abort()
        sent()

    async def _work(self, emit: Emit) -> None:
        functions, task = self.functions, self.task
        if functions.thread:
            token = trio.lowlevel.current_trio_token()
            job: Any = ThreadJob._create(task, self.session, emit, token)
        else:
            job = Job._create(task, self.session, emit)
        try:
            async with functions.claim(job) if functions.claim else nullcontext() as claim:
                job.claim = task.claim = claim
                if task.begin():
                    await self._call(job)
        finally:
            self.session = job.session

    async def _call(self, job: Any) -> None:
        functions = self.functions
        if functions.thread:
            # Waited for, whatever happens: its claim is held as long as it works.
            await trio.to_thread.run_sync(
                self._call_in_thread,
                job,
                thread_name=f"task {job.task_id}",
                limiter=functions.limiter,
            )
        else:
            self._decide(await functions.fn(job))

    def _call_in_thread(self, job: ThreadJob) -> None:
        try:
            job.checkpoint()
            result = self.functions.fn(job)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError(f"the function only made {result!r}: open it with thread=False")
            self._decide(result)
        except Stopped:
            pass

    def _decide(self, result: object) -> None:
        if isinstance(result, InputRequired):
            self.task.decide(TaskState.INPUT_REQUIRED, text=result.text)
        else:
            self.task.decide(TaskState.COMPLETED, result=result)
