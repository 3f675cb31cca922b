"""Which process has written something, and whether it is still there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from .._identity import find_host, find_start, is_gone, is_same_place

__all__ = ["LAPSES_AFTER", "Hold", "Session", "forget_hold", "hold", "holds", "this_session"]

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

    def is_dead(self, here: Session, silent_for: float, holds: Callable[[], bool | None]) -> bool:
        """Whether it is certain, or as good as, that it is gone.

        Args:
            here: the process that asks.
            silent_for: seconds since its last sign of life.
            holds: says whether it holds its lock; None where that cannot be told.
        """
        held = holds() if self._shares_kernel(here) else None
        if held is False:
            return True
        if is_same_place(self.host, here.host) and here.started and self.started:
            # A child by fork holds the lock for it.
            return is_gone(self.pid, self.started)
        # One that stands still gives no sign of life, and is not dead.
        return silent_for > LAPSES_AFTER and not held

    def _shares_kernel(self, here: Session) -> bool:
        """Whether a lock of one is seen by the other: in a container, or before a new start too."""
        there, place = self.host.split(), here.host.split()
        return there[:1] == place[:1] or there[1:2] == place[1:2] != []


def this_session() -> Session:
    """The process that asks."""
    pid = os.getpid()
    return Session(find_host(), pid, find_start(pid))


@attrs.frozen
class Hold:
    """A lock for as long as a process lives, which the kernel lets go of whatever ends it.

    It tells of a process in another container, of one before the machine's last start, and of one
    that has become another program without a new pid, which a pid does not.
    """

    place: str
    _files: list[int]

    def let_go(self) -> None:
        """It is gone, for whoever looks. Any number of times, by any thread."""
        # Whoever gets it closes it: the number may be another file's then.
        with suppress(IndexError):
            os.close(self._files.pop())

    def forget(self) -> None:
        """It is gone, and nothing is to be told of it."""
        self.let_go()
        _forget(self.place)


def _place(path: Path, number: int) -> str:
    return f"{path}-owner-{number}"


def hold(path: Path, number: int) -> Hold | None:
    """Take the lock of a session of a journal; None where the file system has no such thing."""
    place = _place(path, number)
    # Of another file that had this name: whoever holds it has nothing in this one.
    _forget(place)
    try:
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        _forget(place)
        return None
    return Hold(place, [file])


def holds(path: Path, number: int) -> bool | None:
    """Whether a session holds its lock; None: it has none, or it cannot be looked at."""
    try:
        file = os.open(_place(path, number), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def forget_hold(path: Path, number: int) -> None:
    """Of a session that is gone nothing is kept."""
    _forget(_place(path, number))


def _forget(place: str) -> None:
    with suppress(OSError):
        os.unlink(place)
