"""Which process is which, for ever: a pid alone says little, since it is given to others later."""

from __future__ import annotations

import os
import platform
from typing import Final

__all__ = ["find_host", "find_start", "is_gone", "is_same_place"]

_STARTED: Final = 19


def find_host() -> str:
    """Where a pid means something: a machine, one of its starts, a container; with blanks between.

    Only the machine where the others cannot be found.
    """
    machine = platform.node().replace(" ", "-") or "localhost"
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{machine} {file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return machine


def find_start(pid: int) -> int:
    """When the process of this pid was begun, in clock ticks; 0 where none runs, or is shown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, parentheses and spaces too.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in b"ZX" else int(fields[_STARTED])


def is_same_place(one: str, other: str) -> bool:
    """Whether a pid means the same at both hosts. A machine may be given another name meanwhile."""
    return one == other or one.split()[1:] == other.split()[1:] != []


def is_gone(pid: int, started: int) -> bool:
    """Whether it is certain that the process of this pid that was begun then runs no more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0] in b"ZX" or int(fields[_STARTED]) != started
    except (FileNotFoundError, ProcessLookupError):
        return _is_free(pid)
    except OSError:
        # It cannot be looked at, as when no file can be opened any more.
        return False


def _is_free(pid: int) -> bool:
    # Other people's processes may be there and not be shown.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
