"""The process table: who runs, who started it, and how to end exactly that one.

A process is named by its pid *and* its start time, so that a recycled pid is never signalled.
Reads `/proc`; where there is none (macOS), nothing is found and callers rely on what the program
itself can tell.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from .._errors import BackendLost

__all__ = [
    "Marked",
    "TableEntry",
    "end_processes",
    "find_marked",
    "find_session",
    "has_table",
    "is_within",
    "still_alive",
    "ticks_now",
]

T = TypeVar("T")

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY = 0.002
# In what follows the name: where the code begins; where the environment begins and ends.
_CODE = slice(23, 24)
_ENVIRONMENT = slice(47, 49)
_LOOK_AGAIN_AFTER = 0.0005
_REPLACED_WITHIN = 1.0
_LOOKERS_LIMIT = 8
# What is not seen for these is not gone.
_SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_trouble = threading.local()
_lookers: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("turnstop lookers")
_looks: trio.lowlevel.RunVar[_Looks] = trio.lowlevel.RunVar("turnstop looks")


@attrs.frozen
class TableEntry:
    """A process as the table shows it.

    Attributes:
        started: when, in clock ticks since boot; with `pid` it names the process for ever.
    """

    pid: int
    started: int
    parent: int = attrs.field(eq=False)
    session: int = attrs.field(eq=False)
    command: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"pid {self.pid}: {self.command}"


@attrs.frozen
class Marked:
    """A process that carries a mark, and the environment that carries it.

    A process that has dropped its environment is given the one of the marked process that it
    descends from, or that leads its session.
    """

    process: TableEntry
    environment: Mapping[str, str] = attrs.field(repr=False, eq=False)


def still_alive(processes: Iterable[TableEntry]) -> list[TableEntry]:
    """Which of these run still; no others are looked for."""
    return _alive(processes)


def has_table() -> bool:
    """Whether this system has a process table that can be read here."""
    return (_PROC / "self/stat").exists()


def is_within(process: TableEntry) -> bool:
    """Whether this process is of its session, or was begun by it or by what is of its session."""
    entry = _read_entry(os.getpid()) if _alive([process]) else None
    while entry is not None and process.pid not in (entry.pid, entry.session):
        entry = _read_entry(entry.parent)
    return entry is not None


def ticks_now() -> int:
    """Now, on the clock of `TableEntry.started`."""
    return int(time.clock_gettime(_boot_clock()) * _TICKS)


def _boot_clock() -> int:
    return getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


async def find_marked(marks: Mapping[str, str]) -> list[Marked]:
    """Find every live process that was started with one of `marks` in its environment.

    A process that left its parents (`setsid`, `nohup`, a double fork) keeps the mark. One that
    dropped its environment is found while a marked process is its ancestor or leads its session.
    This process and its ancestors are never found.

    Raises:
        BackendLost: the table cannot be read now, as when no file can be opened any more.

    **Cancellation:** leaves the looking thread to end by itself; nothing else is left.
    """
    return await _look(lambda table: _pick_marked(table, marks))


async def find_session(session: int, *, since: int) -> list[TableEntry]:
    """Find the live processes of a session that started at `since` (ticks) or later.

    Raises:
        BackendLost: as `find_marked`.

    **Cancellation:** as `find_marked`.
    """

    def find(table: _Table) -> list[TableEntry]:
        found = table.entries.values()
        return [_named(e) for e in found if e.session == session and e.started >= since]

    return await _look(find)


async def _look(question: Callable[[_Table], T]) -> T:
    try:
        looks = _looks.get()
    except LookupError:
        _looks.set(looks := _Looks())
    return await looks.ask(question)


@attrs.define(eq=False)
class _Round:
    """One look, for all who asked before it began."""

    questions: list[Callable[[_Table], Any]] = attrs.field(factory=list)
    answers: list[Any] | None = None
    error: str = ""


@attrs.define(eq=False)
class _Looks:
    """The looks of a run: one at a time, and the next one is for all who ask meanwhile.

    To look through the table takes milliseconds. Where a hundred turns are taken up at once, or
    stopped, each look of its own would keep all the others waiting.
    """

    waiting: _Round | None = None
    busy: bool = False
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def ask(self, question: Callable[[_Table], T]) -> T:
        self.waiting = mine = self.waiting or _Round()
        number = len(mine.questions)
        mine.questions.append(question)
        while mine.answers is None and not mine.error:
            # Whoever looks may be cancelled: then the next one of the round does.
            if self.busy:
                await self._changed.wait()
            else:
                await self._look(mine)
        if mine.answers is None:
            raise BackendLost(f"the process table cannot be read now: {mine.error}")
        answer: T = mine.answers[number]
        return answer

    async def _look(self, mine: _Round) -> None:
        if self.waiting is mine:
            self.waiting = None
        self.busy = True
        look = partial(_answer, mine.questions)
        try:
            mine.answers, mine.error = await trio.to_thread.run_sync(
                look, abandon_on_cancel=True, limiter=_limiter()
            )
        finally:
            self.busy = False
            changed, self._changed = self._changed, trio.Event()
            changed.set()


def _answer(questions: Sequence[Callable[[_Table], Any]]) -> tuple[list[Any] | None, str]:
    _trouble.error = None
    table = _Table()
    answers = [question(table) for question in questions]
    error = _trouble.error
    return (answers, "") if error is None else (None, str(error))


def _limiter() -> trio.CapacityLimiter:
    # A look must not queue behind the application's own threads: it is on the way of a stop. Nor
    # behind another run's: a thread that outlives its run never gives its token back.
    try:
        return _lookers.get()
    except LookupError:
        _lookers.set(limiter := trio.CapacityLimiter(_LOOKERS_LIMIT))
        return limiter


async def end_processes(
    find: Callable[[], Awaitable[Sequence[TableEntry]]],
    found: Sequence[TableEntry] | None = None,
    *,
    grace: float = 0.25,
    patience: float = 1.0,
) -> list[TableEntry]:
    """End what `find` finds: SIGTERM, `grace` seconds, then SIGKILL for `patience` seconds.

    `found` is what it has found just now, if it was asked already. It is asked again after each
    round, since a process that is told to end may start others on its way out, and a loop that
    has just lost a child begins the next.

    Returns:
        those which are still alive.

    **Cancellation:** what was signalled stays signalled; what had only SIGTERM may live on.
    """
    alive = await find() if found is None else found
    await _end_round(alive, signal.SIGTERM, grace)
    deadline = trio.current_time() + patience
    # One that was known by its parent alone is found no more when the parent has ended.
    while alive := list(dict.fromkeys([*_alive(alive), *await find()])):
        await _end_round(alive, signal.SIGKILL, deadline - trio.current_time())
        if trio.current_time() >= deadline:
            break
    return list(alive)


async def _end_round(
    processes: Iterable[TableEntry], number: signal.Signals, seconds: float
) -> None:
    for process in processes:
        _signal(process, number)
    with trio.move_on_after(max(seconds, 0.0)):
        while processes := _alive(processes):  # noqa: ASYNC110 - a stranger's death is no event
            await trio.sleep(_LOOK_EVERY)


class _Table:
    """The processes as they are seen in one look."""

    @cached_property
    def entries(self) -> Mapping[int, TableEntry]:
        return _read_table()

    @cached_property
    def environments(self) -> Mapping[int, bytes]:
        """Of all but this process and those that it descends from."""
        others = self.entries.keys() - _ancestry(self.entries)
        deadline = time.monotonic() + _REPLACED_WITHIN
        return {pid: _read_environment(pid, deadline) for pid in sorted(others)}


def _pick_marked(table: _Table, marks: Mapping[str, str]) -> list[Marked]:
    blocks = table.environments
    needles = [f"{name}={value}".encode() for name, value in marks.items()]
    environments = {}
    for pid, block in blocks.items():
        # Most processes are strangers: only what may carry the mark is taken apart.
        if any(needle in block for needle in needles):
            environment = _parse(block)
            if any(environment.get(name) == value for name, value in marks.items()):
                environments[pid] = environment
    others = [table.entries[pid] for pid in blocks] if environments else []
    for entry in sorted(others, key=lambda entry: entry.started):
        if entry.pid not in environments:
            # A session counts when its leader is marked. A marked process may also sit in one
            # that is not its own, such as a terminal's: whoever else is there stays out.
            inherited = environments.get(entry.parent) or environments.get(entry.session)
            if inherited is not None:
                environments[entry.pid] = inherited
    return [Marked(_named(table.entries[pid]), found) for pid, found in environments.items()]


def _read_environment(pid: int, deadline: float) -> bytes:
    """The environment of a process, also of one that is just being replaced by another program.

    The kernel shows none for a moment then: it has no place for it yet, or one of no length.
    Whoever is looked at in that moment, when the shell that began it has just been ended, would be
    nobody's child and carry no mark.
    """
    while not (block := _read(pid, "environ")) and _may_have_one(pid):
        if time.monotonic() >= deadline:
            break
        # On a busy machine its next turn to run may be long in coming: to look in a tight loop
        # would only keep the processor from it.
        time.sleep(_LOOK_AGAIN_AFTER)
    return block


def _may_have_one(pid: int) -> bool:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    place = fields[_ENVIRONMENT]
    if len({*place}) == 2:
        return True
    # An empty environment has a place of no length; so has, for a moment, one that is being laid
    # out. Where the code begins is told last of all (and is 1 where we may not look).
    return fields[_CODE] == [b"0"] and _is_replaced(pid)


def _is_replaced(pid: int) -> bool:
    """Whether one that does not tell where its code begins has its next program loaded.

    It has memory, then.
    """
    return _read(pid, "statm").partition(b" ")[0] not in (b"", b"0")


def _ancestry(table: Mapping[int, TableEntry]) -> set[int]:
    """This process and all that it descends from: never anybody's leftovers."""
    found: set[int] = set()
    pid = os.getpid()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].parent
    return found


def _read_table() -> dict[int, TableEntry]:
    try:
        names = os.listdir(_PROC)
    except OSError as error:
        _note(error)
        return {}
    found = (_read_entry(int(name)) for name in names if name.isdigit())
    return {entry.pid: entry for entry in found if entry is not None}


def _read_entry(pid: int) -> TableEntry | None:
    stat = _read(pid, "stat")
    # The name in parentheses may hold anything, parentheses and spaces too.
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in b"ZX":
        return None
    return TableEntry(
        pid=pid, parent=int(fields[1]), session=int(fields[3]), started=int(fields[19])
    )


def _named(entry: TableEntry) -> TableEntry:
    command = _read(entry.pid, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
    return attrs.evolve(entry, command=command.decode(errors="replace")[:200])


def _parse(block: bytes) -> dict[str, str]:
    pairs = block.decode(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"{_PROC}/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError as error:
        _note(error)
        return b""


def _note(error: OSError) -> None:
    if error.errno in _SHORT_OF:
        _trouble.error = error


def _alive(processes: Iterable[TableEntry]) -> list[TableEntry]:
    return [process for process in processes if _read_entry(process.pid) == process]


def _signal(process: TableEntry, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        # From here on the handle names one process: if it is the right one now, it stays so.
        if _alive([process]):
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)
