"""Which run of the tests started a process; a plugin of pytest.

Whatever a run starts carries its mark, which names the run's own process. At its end nothing that
carries it may be alive. A run that is killed cannot see to that: the next one ends what it left.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from turnstop.transports.proctable import TableEntry, end_processes, find_marked

__all__ = ["find_run", "name_run", "sweep"]

# As `turnstop.lab.environments` has it, which needs more than the core's tests have.
VARIABLE = "TURNSTOP_LAB_RUN"
NEEDLE = f"{VARIABLE}=".encode()
# What is being ended when a run ends may take a moment.
PATIENCE = 3.0

left_key = pytest.StashKey[list[str]]()
before_key = pytest.StashKey[str | None]()


def name_run(pid: int | str = "self") -> str | None:
    """The mark of a run: its process, by namespace, pid and start time. None: there is none."""
    try:
        space = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    number = os.getpid() if pid == "self" else pid
    return None if fields[0] in "ZX" else f"{space}.{number}.{fields[19]}"


def marks() -> set[str]:
    """Every mark that a process here carries."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {word[len(NEEDLE) :].decode() for word in words if word.startswith(NEEDLE)}
    return found


def is_dead(mark: str) -> bool:
    """Whether the run has ended; of what another namespace's run is, nothing is known here."""
    space, _, rest = mark.partition(".")
    own = name_run()
    here = own is not None and own.partition(".")[0] == space
    return here and name_run(rest.partition(".")[0]) != mark


async def find_run(mark: str) -> list[TableEntry]:
    """The live processes that the run has started, this one and its ancestors left out."""
    return [one.process for one in await find_marked({VARIABLE: mark})]


async def sweep() -> list[TableEntry]:
    """End what dead runs have left, and return what could not be ended."""
    alive = []
    for mark in marks():
        if is_dead(mark):
            alive += await end_processes(lambda mark=mark: find_run(mark))
    return alive


async def _left(mark: str) -> list[str]:
    with trio.move_on_after(PATIENCE):
        while found := await find_run(mark):  # noqa: ASYNC110 - a stranger's death is no event
            await trio.sleep(0.05)
    names = [str(process) for process in found]
    await end_processes(lambda: find_run(mark), found)
    return names


def pytest_sessionstart(session: pytest.Session) -> None:
    mark = name_run()
    session.config.stash[before_key] = os.environ.get(VARIABLE)
    if mark is None:
        return
    trio.run(sweep)
    os.environ[VARIABLE] = mark


def pytest_sessionfinish(session: pytest.Session) -> None:
    mark = name_run()
    if mark is None or os.environ.get(VARIABLE) != mark:
        return
    session.config.stash[left_key] = trio.run(_left, mark)
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
