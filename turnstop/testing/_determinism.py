"""One seed, one order of tasks."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import trio._core._run as trio_run

__all__ = ["deterministic", "quiet_kernel"]


@contextmanager
def deterministic(seed: int) -> Generator[None]:
    """Have Trio shuffle what could run at the same time by this seed, and log nothing.

    It is Trio's own entry point for Hypothesis: a batch of tasks is sorted before it is shuffled.
    """
    before, state = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r.seed(seed)
    try:
        with quiet_kernel():
            yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        trio_run._r.setstate(state)


@contextmanager
def quiet_kernel() -> Generator[None]:
    """What the kernel logs of turns that are meant to go wrong is noise."""
    logger = logging.getLogger("turnstop")
    # Its level is that of the adapters' loggers below it, too.
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
