"""Which process has written something, and whether it is still there."""

from __future__ import annotations

import os
import platform
from typing import Final

import attrs

__all__ = ["LAPSES_AFTER", "Session", "this_session"]

LAPSES_AFTER: Final = 30.0
"""Seconds without a sign of life after which a process on another machine is taken for dead."""
_STARTED: Final = 19


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
            return _started(self.pid) != self.started
        return silent_for > LAPSES_AFTER


def this_session() -> Session:
    """The process that asks."""
    pid = os.getpid()
    return Session(_host(), pid, _started(pid))


def _host() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _started(pid: int) -> int:
    """When the process of this pid was begun; 0 where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, parentheses and spaces too.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in b"ZX" else int(fields[_STARTED])
