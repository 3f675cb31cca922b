"""Which process is which, for ever: a pid alone says little, since it is given to others later."""

from __future__ import annotations

import os
import platform
from typing import Final

__all__ = ["find_host", "find_start"]

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
