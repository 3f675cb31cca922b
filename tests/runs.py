"""Which run of the tests started a process; a plugin of pytest.

Whatever a run starts carries its mark, which names the run's own process. At its end nothing that
carries it may be alive. A run that is killed cannot see to that: the next one ends what it left.

Nothing here is turnstop's: what is tested may be broken, and must not choose what is killed.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["find_run", "look", "name_run", "sweep"]

# As `turnstop.lab.environments` has it, which needs more than the core's tests have.
VARIABLE = "TURNSTOP_LAB_RUN"
NEEDLE = f"{VARIABLE}=".encode()
# What is being ended when a run ends may take a moment.
PATIENCE = 3.0
GRACE = 0.3

left_key = pytest.StashKey[list[str]]()
before_key = pytest.StashKey[str | None]()


class Process(NamedTuple):
    """With its start time the pid names it for ever."""

    pid: int
    started: int
    parent: int

    def __str__(self) -> str:
        words = read(self.pid, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
        return f"pid {self.pid}: {words.decode(errors='replace')[:200]}"


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def look(pid: int) -> Process | None:
    """The process, if it lives: not a zombie, nor one that is just being reaped."""
    fields = read(pid, "stat").rpartition(b")")[2].split()
    if not fields or fields[0] in b"ZX":
        return None
    return Process(pid, int(fields[19]), int(fields[1]))


def table() -> dict[int, Process]:
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def mark_of(pid: int) -> str:
    words = read(pid, "environ").split(b"\0")
    return next((word[len(NEEDLE) :].decode() for word in words if word.startswith(NEEDLE)), "")


def name_run(pid: int | None = None) -> str:
    """The mark of a run: its process, by namespace, pid and start time; empty: there is none."""
    found = look(pid or os.getpid())
    with suppress(OSError):
        space = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
        return f"{space}.{found.pid}.{found.started}" if found is not None else ""
    return ""


def is_dead(mark: str) -> bool:
    """Whether the run has ended; of what another namespace's run is, nothing is known here."""
    if (parts := re.fullmatch(r"(\d+)\.(\d+)\.\d+", mark)) is None:
        return False
    space, pid = parts.groups()
    if not read(int(pid), "stat") and Path("/proc", pid).exists():
        # It is there and cannot be looked at just now.
        return False
    return name_run().startswith(f"{space}.") and name_run(int(pid)) != mark


def find_run(mark: str) -> list[Process]:
    """What a run has started, and what that has, without its mark; not this process, nor above."""
    processes = table()
    above = set()
    pid = os.getpid()
    while pid in processes and pid not in above:
        above.add(pid)
        pid = processes[pid].parent
    found = {pid for pid in processes if pid not in above and mark_of(pid) == mark}
    for one in sorted(processes.values(), key=lambda one: one.started):
        if one.parent in found and one.pid not in above:
            found.add(one.pid)
    return [processes[pid] for pid in found]


def end(mark: str) -> None:
    """End what a run has started, and what that starts on its way out."""
    signal_all(find_run(mark), signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    until = time.monotonic() + GRACE
    while (found := find_run(mark)) and time.monotonic() < deadline:
        if time.monotonic() >= until:
            signal_all(found, signal.SIGKILL)
        time.sleep(0.01)


def signal_all(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(OSError):
            handle = os.pidfd_open(process.pid)
            try:
                now = look(process.pid)
                # From here on the handle names one process: if it is the right one now, it is.
                if now is not None and now.started == process.started:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def sweep() -> None:
    """End what dead runs have left."""
    for mark in {mark_of(pid) for pid in table()} - {""}:
        if is_dead(mark):
            end(mark)


def wait_for_the_last(mark: str) -> list[str]:
    """Whatever is alive although it has had its time, by name; it is ended."""
    deadline = time.monotonic() + PATIENCE
    while (found := find_run(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [str(process) for process in found]
    end(mark)
    return names


def pytest_sessionstart(session: pytest.Session) -> None:
    # A shell has its background jobs ignore interrupts, nohup has them ignore the terminal's end;
    # and so would whatever is started here.
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    session.config.stash[before_key] = os.environ.get(VARIABLE)
    if mark := name_run():
        sweep()
        os.environ[VARIABLE] = mark


def pytest_sessionfinish(session: pytest.Session) -> None:
    mark = name_run()
    if not mark or os.environ.get(VARIABLE) != mark:
        return
    session.config.stash[left_key] = wait_for_the_last(mark)
    if session.config.stash[left_key]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if (before := session.config.stash[before_key]) is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = terminalreporter.config.stash.get(left_key, [])
    if left:
        terminalreporter.section("still running, started by this run", red=True)
        for name in left:
            terminalreporter.line(name)
