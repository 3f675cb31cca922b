"""A loop on Trio itself, in Trio's thread: trio-asyncio's."""

from __future__ import annotations

import asyncio
import heapq
import os
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, final

import attrs
import sniffio
import trio

from ..._unwrap import reraise
from ._early import import_trio_asyncio
from ._filing import Filing, Task
from ._forsaking import forsake
from ._host import EAGER, Doorway

__all__ = ["HostedLoop"]

trio_asyncio = import_trio_asyncio()

# Ctrl-C is raised in a loop's callbacks, and not in its own steps: it must say that it has ended.
# Nothing of asyncio's own is marked: Trio may run inside a callback of another loop, or beside one.
trio.lowlevel.enable_ki_protection(trio_asyncio.TrioEventLoop._main_loop)

# Fewer are not worth the looking.
_MANY_TIMERS = 64


@final
@attrs.define(eq=False)
class HostedLoop:
    """A loop that `serve` runs. See `Host`."""

    _doorway: Doorway
    filing: Filing = attrs.field(factory=Filing)
    ready: trio.Event = attrs.field(factory=trio.Event)
    over: trio.Event = attrs.field(factory=trio.Event)
    _loop: Any = None
    _stop: trio.Event = attrs.field(factory=trio.Event)
    _cancelled_timers: int = 0

    @property
    def running(self) -> bool:
        return self._loop is not None and bool(self._loop.is_running())

    def spawn(self, coro: Coroutine[Any, Any, Any], context: Context) -> Task:
        # A callback of a file runs in a Trio task that takes its context from here.
        context.run(trio_asyncio.current_loop.set, self._loop)
        if not EAGER:
            return self._loop.create_task(coro, context=context)  # type: ignore[no-any-return]
        # This is a Trio task. The first step must find itself on the loop, wherever it asks.
        token = trio_asyncio.current_loop.set(self._loop)
        library, sniffio.thread_local.name = sniffio.thread_local.name, "asyncio"
        try:
            return self.filing.make(self._loop, coro, context=context, eager_start=True)
        finally:
            sniffio.thread_local.name = library
            trio_asyncio.current_loop.reset(token)

    def run(self, fn: Callable[..., object], *args: Any) -> None:
        if self.running:
            fn(*args)

    def tell(self, fn: Callable[..., object], *args: Any) -> None:
        self._doorway.tell(fn, *args)

    async def serve(self) -> None:
        """Run the loop until `close`.

        Raises:
            KeyboardInterrupt, SystemExit: a task of a library raised it.
        """
        try:
            async with trio_asyncio.open_loop() as loop:
                self._set_up(loop)
                self.ready.set()
                try:
                    await self._stop.wait()
                    type(loop).stop(loop)
                    await loop.wait_stopped()
                finally:
                    self._end()
        except BaseExceptionGroup as group:
            reraise(_only_member(group))
        finally:
            # Ctrl-C may have come where a first step was about to put it back.
            sniffio.thread_local.name = "trio"
            self.over.set()

    def close(self) -> None:
        """Have the loop closed. Its tasks have ended by now; those which have not are let go."""
        self._stop.set()

    def _set_up(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop._q_send = _Queue(self._loop._q_send)
        loop.set_task_factory(self.filing.make)  # type: ignore[arg-type]
        loop.set_default_executor(_Executor(self.filing))
        self._loop._timer_handle_cancelled = self._note_cancelled_timer
        self._loop.stop = self._doorway.refuse_stop
        self._loop.default_exception_handler = self._doorway.report

    def _note_cancelled_timer(self, _: object) -> None:
        # trio-asyncio keeps a cancelled timer until it is due, with all that its context holds.
        self._cancelled_timers += 1
        timers = self._loop._timers
        if self._cancelled_timers > max(_MANY_TIMERS, len(timers) // 2):
            self._cancelled_timers = 0
            timers[:] = [timer for timer in timers if not timer.cancelled()]
            heapq.heapify(timers)

    def _end(self) -> None:
        """Have nothing waited for by the loop's own exit, and nothing run: it would, for ever.

        It runs what is queued in one step of Trio's, whatever queues itself again; it waits for
        each task and each generator that it finds; and a loop whose callback has ended it with
        Ctrl-C or an exit is to run no further one.
        """
        loop, queue = self._loop, self._loop._q_send
        del loop.stop
        loop._stopped.set()
        # Held until the end: what nobody holds is destroyed, and so runs.
        queued: list[asyncio.Handle] = []
        with suppress(trio.WouldBlock):
            while True:
                queued.append(loop._q_recv.receive_nowait())
        # Where it still waits for something to do.
        queue.send_nowait(asyncio.Handle(int, (), loop))
        loop._asyncgens = weakref.WeakSet()
        # Timers are in no such queue, and what comes from here on is not run either.
        loop._main_loop_one = _run_none
        loop.run_aio_coroutine = _refuse
        queue.over = True
        for handle in queued:
            queue.send_nowait(handle)
        awaited = [task for task in asyncio.all_tasks(loop) if _trio_waits_for(task)]
        library, sniffio.thread_local.name = sniffio.thread_local.name, "asyncio"
        try:
            forsake(loop)
        finally:
            sniffio.thread_local.name = library
        if awaited:
            self._give_up(loop._nursery.cancel_scope, awaited)

    def _give_up(self, scope: trio.CancelScope, tasks: list[Task]) -> None:
        # Trio code refuses to be cancelled until its task ends; not cancelled, it would take what
        # the task ends with for its own error.
        if not scope.cancel_called:
            trio.lowlevel.current_trio_token().run_sync_soon(self._give_up, scope, tasks)
            return
        for task in tasks:
            asyncio.Future.cancel(task)


class _Handle(asyncio.Handle):
    """A callback that Ctrl-C may end."""

    __slots__ = ()

    @trio.lowlevel.disable_ki_protection
    def _run(self) -> None:
        super()._run()


class _TimerHandle(asyncio.TimerHandle):
    """A timer whose callback Ctrl-C may end."""

    __slots__ = ()

    @trio.lowlevel.disable_ki_protection
    def _run(self) -> None:
        super()._run()


_INTERRUPTIBLE: dict[type, type] = {asyncio.Handle: _Handle, asyncio.TimerHandle: _TimerHandle}


@attrs.define(eq=False)
class _Queue:
    """The way into a loop's queue, which all its callbacks go, also from other threads.

    Attributes:
        over: nobody takes anything out of it any more.
    """

    _send: Any
    over: bool = False

    def send_nowait(self, handle: asyncio.Handle) -> None:
        if self.over:
            if _wakes_trio(handle._callback):  # type: ignore[attr-defined]
                trio.lowlevel.current_trio_token().run_sync_soon(handle._run)
            return
        kind = type(handle)
        if kind in _INTERRUPTIBLE:
            handle.__class__ = _INTERRUPTIBLE[kind]
        self._send.send_nowait(handle)


def _wakes_trio(callback: object) -> bool:
    return getattr(callback, "__module__", None) == "trio_asyncio._util"


def _trio_waits_for(task: Task) -> bool:
    return any(_wakes_trio(fn) for fn, _ in task._callbacks or ())


async def _refuse(coro: Coroutine[Any, Any, Any]) -> Any:
    """What Trio code that a library has called gets of a loop that runs nothing any more."""
    coro.close()
    raise RuntimeError("the asyncio loop is closed")


async def _run_none(no_wait: bool = False) -> None:
    """A step of a loop that runs nothing any more."""
    raise trio.WouldBlock


def _only_member(error: BaseException) -> BaseException:
    """What is inside the groups of the loop's own nurseries, where that is one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class _Executor(trio_asyncio.TrioExecutor):  # type: ignore[misc, name-defined]
    """Threads whose work is given up with whoever waits for it: a loop's exit must not wait."""

    def __init__(self, filing: Filing) -> None:
        # As many as asyncio has. Out of Trio's own, they would leave the program none.
        super().__init__(max_workers=min(32, (os.cpu_count() or 1) + 4))
        self._filing = filing

    async def submit(self, func: Callable[..., Any], *args: Any) -> Any:
        job = self._filing.employ(partial(func, *args))
        return await trio.to_thread.run_sync(job.run, limiter=self._limiter, abandon_on_cancel=True)
