"""`open_executor`: tasks as turns of rooms of their own."""

from __future__ import annotations

import itertools
import logging
import secrets
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from typing import final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from .._budget import StopBudget
from .._errors import BackendError, RoomsClosed
from .._functions import is_async
from .._records import OnlyMadeByUs
from .._rooms import Rooms, open_rooms
from .._unwrap import open_private_nursery
from ._run import Claiming, Function, Functions
from ._task import Hear, Outcome, Task, TaskState, call_unprotected, check_thread

__all__ = ["Executor", "ExecutorStatistics", "open_executor"]

logger = logging.getLogger("turnstop.executor")


@attrs.frozen
class ExecutorStatistics:
    """A snapshot of an executor.

    Attributes:
        live: tasks of which nothing is told yet.
        cancelled: of those, the ones that will end CANCELED: they are being waited for.
        told: how many have ended in each state, since it was opened.
        stragglers: the ids of those whose work goes on though their stop's budget is over. Of
            those whose thread was left behind, until that ends.
    """

    live: int
    cancelled: int
    told: dict[TaskState, int]
    stragglers: tuple[str, ...] = ()


@final
@attrs.define(eq=False, repr=False)
class Executor(metaclass=OnlyMadeByUs):
    """Runs a function for whoever submits tasks. Made by `open_executor`.

    Attributes:
        token: the way into Trio's thread, where its methods are called.
    """

    _rooms: Rooms[Task]
    _nursery: trio.Nursery
    _observers: Sequence[Callable[[Outcome], object]]
    token: trio.lowlevel.TrioToken = attrs.field(
        factory=trio.lowlevel.current_trio_token, init=False
    )
    _tasks: dict[str, Task] = attrs.field(factory=dict, init=False)
    _lanes: dict[str, deque[Task]] = attrs.field(factory=dict, init=False)
    _told: Counter[TaskState] = attrs.field(factory=Counter, init=False)
    _stragglers: dict[str, Task] = attrs.field(factory=dict, init=False)
    _closing: bool = attrs.field(default=False, init=False)
    # Whoever submits may hold a claim, or work on a turn: its tasks are no part of that.
    _context: Context = attrs.field(factory=copy_context, init=False)
    _prefix: str = attrs.field(factory=lambda: secrets.token_hex(4), init=False)
    _numbers: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    @enable_ki_protection
    def submit(
        self, room: str, content: object, *, task_id: str | None = None, hear: Hear | None = None
    ) -> Task:
        """Have the function called. Never waits.

        Args:
            room: the conversation: its tasks are done one after another.
            content: for the function.
            task_id: unique among live tasks; made up by default.
            hear: called in Trio's thread with what becomes of it: `Began`, events, and at last
                the `Outcome`. It must not wait.

        Raises:
            RoomsClosed: the executor is closing.
            ValueError: there is a live task of that id.
            RuntimeError: called from another thread.
        """
        check_thread(self.token, "executor.submit, room, content")
        if self._closing:
            raise RoomsClosed("the executor is closing: it takes no more tasks")
        if task_id is None:
            task_id = f"{self._prefix}-{next(self._numbers)}"
        if task_id in self._tasks:
            raise ValueError(f"task {task_id} has not ended: its id cannot be used again yet")
        task: Task = Task._create(task_id, room, content, hear, self._stop)
        task.turn = self._rooms.turn(room, task, turn_id=task_id)
        self._tasks[task_id] = task
        if (lane := self._lanes.get(room)) is None:
            lane = self._lanes[room] = deque()
            name = f"turnstop tasks of {room!r}"
            self._context.copy().run(self._start_soon, self._serve, room, lane, name=name)
        lane.append(task)
        return task

    def cancel(self, task_id: str, *, reason: str = "", source: str = "") -> bool:
        """Cancel a task, as `Task.cancel` does; False also where no such task is live."""
        task = self._tasks.get(task_id)
        return task is not None and task.cancel(reason=reason, source=source)

    def find(self, task_id: str) -> Task | None:
        """The live task of this id."""
        return self._tasks.get(task_id)

    async def retire(self, room: str) -> None:
        """Cancel a room's tasks, and drop its session: this conversation is over.

        Raises:
            RoomsClosed: the executor is closing.

        **Cancellation:** the tasks are cancelled all the same, and the session is kept.
        """
        for task in tuple(self._tasks.values()):
            if task.room == room:
                task.cancel(reason="its room is retired")
        await self._rooms.retire(room)

    def statistics(self) -> ExecutorStatistics:
        """A snapshot."""
        cancelled = sum(task.is_cancelled for task in self._tasks.values())
        stragglers = self._stragglers.items()
        alive = (name for name, one in stragglers if not one.threads.left or one.threads.alive)
        return ExecutorStatistics(len(self._tasks), cancelled, dict(self._told), tuple(alive))

    def __repr__(self) -> str:
        return f"<Executor: {len(self._tasks)} live>"

    def _start_soon(self, fn: Callable[..., Awaitable[object]], *args: object, name: str) -> None:
        self._nursery.start_soon(fn, *args, name=name)

    @enable_ki_protection
    async def _serve(self, room: str, lane: deque[Task]) -> None:
        # A cancellation around the executor is a stop of its rooms, and so of each turn.
        with trio.CancelScope(shield=True):
            while lane:
                await self._run(lane.popleft())
        del self._lanes[room]

    async def _run(self, task: Task) -> None:
        # Nothing of the function's own: that never leaves it. Its outcome tells the rest.
        with suppress(BackendError, RoomsClosed):
            async with task.turn as turn:
                async for _ in turn:
                    pass
        if task.over is None or task.over.is_set():
            await self._finish(task)
        else:
            # It counts as over, and works on: what it holds must not be held for ever.
            if task.claim is not None:
                task.claim.let_lapse()
            self._stragglers[task.task_id] = task
            if self._closing:
                task.threads.leave()
            self._nursery.start_soon(self._finish, task, name=f"turnstop end of {task.task_id}")

    @enable_ki_protection
    async def _finish(self, task: Task) -> None:
        if task.over is not None:
            with trio.CancelScope(shield=True):
                await task.over.wait()
        del self._tasks[task.task_id]
        if not task.threads.left:
            self._stragglers.pop(task.task_id, None)
        try:
            task.conclude()
        finally:
            # Also where Ctrl-C has come to whoever hears of it.
            self._note(task.outcome)

    def _stop(self, task: Task, reason: str, source: str) -> None:
        task.turn.stop(reason, source)
        lane = self._lanes.get(task.room)
        if lane is not None and task in lane:
            lane.remove(task)
            # Not in here: who hears of it may call what it likes.
            self._nursery.start_soon(self._finish, task, name=f"turnstop end of {task.task_id}")

    def _note(self, outcome: Outcome | None) -> None:
        assert outcome is not None
        self._told[outcome.state] += 1
        for observer in self._observers:
            try:
                call_unprotected(observer, outcome)
            except Exception:
                logger.exception("%r has failed at %r", observer, outcome)

    def _close(self) -> None:
        self._closing = True
        for task in tuple(self._tasks.values()):
            task.cancel(reason="the executor is closing")
        for task in self._stragglers.values():
            task.threads.leave()


@asynccontextmanager
@enable_ki_protection
async def open_executor(
    fn: Function,
    *,
    thread: bool | None = None,
    claim: Claiming | None = None,
    budget: StopBudget | None = None,
    observers: Sequence[Callable[[Outcome], object]] = (),
) -> AsyncGenerator[Executor, None]:
    """Open an executor of a function.

    Args:
        fn: `async def fn(job: Job)`, or a blocking `def fn(job: ThreadJob)`. What it returns is
            the task's result, or an `InputRequired`.
        thread: whether it is blocking and runs in a thread; found out by default.
        claim: is given the job and returns what holds its claim, such as
            `lambda job: claims.hold(["repo"], holder=job.task_id)`. It is entered before the
            function is called, and left when that has returned. Its errors fail the task. It may
            wait, but not block Trio's thread: Ctrl-C is kept from it.
        budget: how long a task's room waits for the end of a cancelled one, and how long its claim
            is renewed meanwhile; 5 s and 2 s by default. It bounds neither the work nor the claim.
        observers: called with each `Outcome`. What must happen only for tasks that were completed
            belongs here, or in the caller's `hear`. One that raises is logged.

    The exit cancels what is live, and waits until it has ended. A thread that has not when the
    budget is over is left behind, since nothing can end it: it is logged and named in
    `ExecutorStatistics.stragglers`, its claim is not released but lapses, and its task is told
    FAILED. An async function is waited for, as in any nursery.

    **Cancellation:** cancels every task in the step in which it arrives, and waits like the exit.
    """
    if not callable(fn):
        raise TypeError(f"an executor runs a function: got {fn!r}")
    functions = Functions(fn, not is_async(fn) if thread is None else thread, claim)
    async with open_rooms(functions, budget=budget) as rooms:
        async with open_private_nursery() as nursery:
            executor: Executor = Executor._create(rooms, nursery, tuple(observers))
            try:
                yield executor
            finally:
                executor._close()
