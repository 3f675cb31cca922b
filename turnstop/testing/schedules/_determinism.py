"""One seed, one order of tasks."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import trio._core._run as trio_run

__all__ = ["deterministic"]


@contextmanager
def deterministic(seed: int) -> Generator[None]:
    """Have Trio shuffle what could run at the same time by this seed, and log nothing.

    It is Trio's own entry point for Hypothesis: a batch of tasks is sorted before it is shuffled.
    """
    logger = logging.getLogger("turnstop")
    before, state, level = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate(), logger.level
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r.seed(seed)
    # Thousands of turns are lost on purpose, and each is worth a warning.
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        trio_run._r.setstate(state)
        logger.setLevel(level)
