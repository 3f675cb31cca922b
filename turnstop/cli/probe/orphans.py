"""What lost its parents while an adapter was probed: on Linux it becomes this process's child.

A mark in the environment and a session are found as long as they are kept. What is started with an
environment and a session of its own keeps neither, but whoever is told to be the parent of orphans
gets it all the same, and keeps its pid from being given away until it is reaped.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import attrs

from ...transports.proctable import TableEntry

__all__ = ["Orphans", "adopting"]

_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37
_SHOWN = 200
_DEAD = "(dead)"


@attrs.frozen
class Orphans:
    """The children that this process has been given, and did not start.

    Attributes:
        since: what started earlier is none of them; ticks, as in `TableEntry.started`.
        before: pids of the children that were there already.
    """

    since: int
    before: frozenset[int]

    def find(self, *, own: int) -> list[TableEntry]:
        """Those that are alive, with all that descends from them; `own` was started here."""
        table = _read_table()
        found = {one.pid: one for one in self._adopted(table, own)}
        # A parent is older than its child, but for a pid that went round.
        for one in sorted(table.values(), key=lambda one: one.started):
            if one.parent in found:
                found[one.pid] = one
        return [_named(one) for one in found.values() if one.command != _DEAD]

    def reap(self, *, own: int) -> None:
        """Let go of those that have ended."""
        for one in self._adopted(_read_table(), own):
            with suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)

    def _adopted(self, table: dict[int, TableEntry], own: int) -> list[TableEntry]:
        ours = (one for one in table.values() if one.parent == os.getpid() and one.pid != own)
        return [one for one in ours if one.started >= self.since and one.pid not in self.before]


@contextmanager
def adopting(since: int) -> Iterator[Orphans | None]:
    """Be the parent of every orphan among one's descendants; None where the system cannot do it."""
    if sys.platform != "linux" or not os.path.exists("/proc/self/stat"):
        yield None
        return
    libc, before = ctypes.CDLL(None), ctypes.c_int(0)
    libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before))
    if libc.prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) != 0:
        yield None
        return
    try:
        children = (one.pid for one in _read_table().values() if one.parent == os.getpid())
        yield Orphans(since, frozenset(children))
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(before.value))


def _read_table() -> dict[int, TableEntry]:
    """Every process, the dead ones too that nobody has reaped."""
    found = (_read_entry(name) for name in os.listdir("/proc") if name.isdigit())
    return {one.pid: one for one in found if one is not None}


def _read_entry(pid: str) -> TableEntry | None:
    # The name in parentheses may hold anything, parentheses and spaces too.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return TableEntry(
        pid=int(pid),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        command=_DEAD if fields[0] in b"ZX" else "",
    )


def _named(entry: TableEntry) -> TableEntry:
    words = _read(str(entry.pid), "cmdline").rstrip(b"\0").replace(b"\0", b" ")
    return attrs.evolve(entry, command=words.decode(errors="replace")[:_SHOWN])


def _read(pid: str, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
