from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

HANG = 5.0


def run_in_virtual_time(*args: Any, clock: object = None, **kwargs: Any) -> Any:
    """`trio.run`, on a clock that starts at 0 and jumps when there is nothing to do."""
    return trio.run(*args, clock=MockClock(autojump_threshold=0), **kwargs)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and isinstance(item, pytest.Function):
            if inspect.iscoroutinefunction(item.obj):
                item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A kernel that waits for ever fails its test instead of holding up the rest."""

    def bark(_: int, frame: FrameType | None) -> None:
        # What the crashed run leaves behind must not fail the next test too.
        trio._core._run.GLOBAL_RUN_CONTEXT.__dict__.clear()
        raise AssertionError(f"hangs: nothing moved for {HANG} s")

    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
