"""Which process has written something, and whether it is still there."""

from __future__ import annotations

import os
from typing import Final

import attrs

from .._identity import find_host, find_start

__all__ = ["LAPSES_AFTER", "Session", "this_session"]

LAPSES_AFTER: Final = 30.0
"""Seconds without a sign of life after which a process on another machine is taken for dead."""


@attrs.frozen
class Session:
    """One process.

    Attributes:
        host: where its pid means something: a machine, since its last start, or a container there.
        started: when, in clock ticks since the machine's start; 0 where that cannot be found.
    """

    host: str
    pid: int
    started: int

    def is_dead(self, here: Session, silent_for: float) -> bool:
        """Whether it is certain, or as good as, that it is gone.

        Args:
            here: the process that asks.
            silent_for: seconds since its last sign of life.
        """
        if self.host == here.host and here.started:
            # One that stands still gives no sign of life, and is not dead.
            return find_start(self.pid) != self.started
        return silent_for > LAPSES_AFTER


def this_session() -> Session:
    """The process that asks."""
    pid = os.getpid()
    return Session(find_host(), pid, find_start(pid))
