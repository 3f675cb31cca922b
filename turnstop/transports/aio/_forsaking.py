"""What becomes of the tasks that are still on a loop when it has stopped."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import trio

from ._filing import Task
from ._host import EAGER

__all__ = ["forsake"]

logger = logging.getLogger("turnstop.aio")


def forsake(loop: asyncio.AbstractEventLoop) -> None:
    """End them as Python ends what nobody holds, but here, where they still find their loop.

    Left to Python, it comes at any later moment, at the program's end at the latest; and one that
    swallows everything, and finds no loop to wait on, would spin there for ever.
    """
    loop.set_task_factory(_make_stillborn)  # type: ignore[arg-type]
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        _unregister(task)
    for task in tasks:
        _close(loop, task)


def _unregister(task: Task) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    asyncio._unregister_task(task)
    if EAGER:
        asyncio.tasks._unregister_eager_task(task)  # type: ignore[attr-defined]


# It runs what somebody else has written, which Ctrl-C must be able to end.
@trio.lowlevel.disable_ki_protection
def _close(loop: asyncio.AbstractEventLoop, task: Task) -> None:
    chain: list[Any] = [task.get_coro()]
    while (inner := getattr(chain[-1], "cr_await", None)) is not None:
        chain.append(inner)
    # As in any step of it: what finds itself in no task fails without a wait, and may try again.
    asyncio.tasks._enter_task(loop, task)
    try:
        _in_context_of(task, chain[0].close)
    except (Exception, asyncio.CancelledError, SystemExit) as error:
        _tell(error)
    except BaseExceptionGroup as group:
        # A group of tasks makes one of what it is closed by.
        _, rest = group.split(GeneratorExit)
        if rest is not None and rest.subgroup(KeyboardInterrupt) is not None:
            raise
        if rest is not None:
            _tell(rest)
    finally:
        asyncio.tasks._leave_task(loop, task)
    for coro in chain:
        if getattr(coro, "cr_frame", None) is not None:
            # It goes on waiting. So it must never be destroyed, not even with the program.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


def _in_context_of(task: Task, fn: Callable[[], object]) -> None:
    # A clean-up puts back context variables, which none but their own context allows.
    if sys.version_info >= (3, 12):
        task.get_context().run(fn)
    else:
        fn()


def _tell(error: BaseException) -> None:
    logger.warning("left behind, asyncio code has raised %r, which ends nothing", error)


def _make_stillborn(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> Task:
    options.pop("eager_start", None)
    task: Task = asyncio.Task(coro, loop=loop, **options)
    _unregister(task)
    coro.close()
    return task
