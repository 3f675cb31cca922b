"""The processes that descend from this one, for who has no more patience with them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["kill_descendants"]


def _parents() -> dict[int, int]:
    """The parent of each process. None where the system shows no table."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold anything, parentheses and spaces too.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1])
    return found


def _descendants(root: int) -> list[int]:
    parents = _parents()
    found, level = [], [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def kill_descendants() -> int:
    """Kill them, and what they start meanwhile; return how many there were."""
    killed: set[int] = set()
    while fresh := set(_descendants(os.getpid())) - killed:
        for pid in fresh:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= fresh
    return len(killed)
