"""Threads for what asyncio code runs in its loop's default executor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, final

import outcome
import trio

from ._filing import Filing

__all__ = ["Threads"]

Result = TypeVar("Result")


@final
class Threads(ThreadPoolExecutor):
    """An executor whose threads keep no program from ending, as Trio's do not.

    Python itself waits at its exit for those of `ThreadPoolExecutor`, which is derived from since
    asyncio takes no other kind: none of its threads is ever started.
    """

    def __init__(self, filing: Filing) -> None:
        super().__init__()
        self._filing = filing
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._free = threading.Semaphore(self._max_workers)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Have a function run in a thread, soon."""
        future: Future[Result] = Future()
        job = self._filing.employ(partial(fn, *args, **kwargs))
        future.add_done_callback(lambda _: job.call_off() if future.cancelled() else None)
        self._waiting.put((future, job.run))
        if self._free.acquire(blocking=False):
            trio.lowlevel.start_thread_soon(self._work, lambda _: None, name="turnstop executor")
        return future

    def _work(self) -> None:
        while True:
            with suppress(Empty):
                while True:
                    _run(*self._waiting.get_nowait())
            self._free.release()
            # Whoever has put something there since then found no thread free.
            if self._waiting.empty() or not self._free.acquire(blocking=False):
                return


def _run(future: Future[Result], work: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    result = outcome.capture(work)
    if isinstance(result, outcome.Error):
        future.set_exception(result.error)
    else:
        future.set_result(result.value)
