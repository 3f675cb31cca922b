from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

HANG = 4.0
KEPT: list[object] = []


def run_in_virtual_time(*args: Any, clock: object = None, **kwargs: Any) -> Any:
    """`trio.run`, on a clock that starts at 0 and jumps when there is nothing to do."""
    return trio.run(*args, clock=MockClock(autojump_threshold=0), **kwargs)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        ours = item.path.is_relative_to(Path(__file__).parent)
        if ours and inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A kernel that waits for ever fails its test instead of holding up the rest.

    A run in virtual time that has nothing to wait for spins, so that it is its processor time
    that tells a hang, and a busy machine makes none.
    """
    hangs: list[str] = []

    def bark(_: int, frame: FrameType | None) -> None:
        hangs.append(f"hangs: spun for {HANG} s")
        raise AssertionError(hangs[-1])

    before = signal.signal(signal.SIGPROF, bark)
    interrupt = signal.getsignal(signal.SIGINT)
    signal.setitimer(signal.ITIMER_PROF, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        if hangs:
            _forget_the_crashed_run(interrupt)


def _forget_the_crashed_run(interrupt: Any) -> None:
    """What the crashed run leaves behind must not fail the tests after it."""
    trio._core._run.GLOBAL_RUN_CONTEXT.__dict__.clear()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, interrupt)
    # Its tasks cannot be ended any more, and must not be collected either: that makes noise.
    kinds = (Coroutine, AsyncGenerator, trio.Nursery)
    KEPT.append([found for found in gc.get_objects() if isinstance(found, kinds)])
