"""The backend of an executor: its remote turns are calls of a function."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeAlias

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from .._calls import unprotected
from .._functions import check_made
from ..abc import Emit, End, How, Request
from ._job import Job, Stopped, ThreadJob
from ._task import Holding, InputRequired, Task, TaskState

__all__ = ["Claiming", "Function", "Functions", "Holding"]

logger = logging.getLogger("turnstop.executor")

Claiming: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Is given the job, and returns what holds its claim: a block around the function, and no more."""
Function: TypeAlias = Callable[[Any], Any]


def _text_of(error: BaseException) -> str:
    # What a nursery of the function's own says of itself helps nobody who is elsewhere.
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_text_of, error.exceptions))
    return str(error) or repr(error)


@attrs.define(eq=False)
class Functions:
    """Starts one; see `turnstop.abc.Backend`."""

    fn: Function
    thread: bool
    claim: Claiming | None

    @enable_ki_protection
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

    @enable_ki_protection
    async def follow(self, emit: Emit) -> End:
        """Hold the claim, call the function, let the claim go."""
        task = self.task
        assert task.over is not None
        try:
            with task.scope:
                await self._work()
        except Exception as error:
            if not (self._fail(error) or task.failed_by(error)):
                logger.warning("task %s has failed after its end was decided: %r", task, error)
        finally:
            task.over.set()
        return End(How.CANCELLED if task.is_cancelled else How.COMPLETED)

    @enable_ki_protection
    async def cancel(self, sent: Callable[[], None]) -> None:
        """Decide it, where that is still open."""
        self.task.abort()
        sent()

    async def _work(self) -> None:
        functions, task = self.functions, self.task
        if functions.thread:
            token = trio.lowlevel.current_trio_token()
            job: Any = ThreadJob._create(task, self.session, token)
        else:
            job = Job._create(task, self.session)
        try:
            # Ctrl-C is kept from it, though it is not ours: else it might never be let go.
            async with functions.claim(job) if functions.claim else nullcontext() as claim:
                job.claim = task.claim = claim
                if task.begin():
                    await self._call(job)
        finally:
            self.session = job.session

    async def _call(self, job: Any) -> None:
        try:
            if self.functions.thread:
                await self.task.threads.run(self._call_in_thread, job)
            else:
                self._decide(await unprotected(self.functions.fn, job))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # Now, and not when its claim is released: a cancel until then comes too late. So does
            # the one by which its whole program ends.
            self._fail(error)
            raise

    def _call_in_thread(self, job: ThreadJob) -> None:
        try:
            job.checkpoint()
            result = self.functions.fn(job)
            self._decide(check_made(result, "open it with thread=False, or return a result"))
        except Stopped:
            pass

    def _fail(self, error: BaseException) -> bool:
        return self.task.decide(TaskState.FAILED, error=error, text=_text_of(error))

    def _decide(self, result: object) -> None:
        if isinstance(result, InputRequired):
            self.task.decide(TaskState.INPUT_REQUIRED, text=result.text)
        else:
            self.task.decide(TaskState.COMPLETED, result=result)
