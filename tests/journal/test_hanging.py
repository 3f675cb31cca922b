"""A journal on a disk that does not answer: whoever opens it can leave, and nothing stays open."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest
import trio
from trio.testing import MockClock

from turnstop import Ending, _sqlite, open_rooms
from turnstop.journal import _entering, _file, _journal, _taking, open_journal
from turnstop.journal._reading import list_open
from turnstop.journal._session import holds, this_session

from .test_journal import Agent

PLACES: Final = {
    "name": (_journal, "resolve", 1),
    "writer": (_sqlite, "_open", 1),
    "reader": (_sqlite, "_open", 2),
    "session": (_file, "enter", 1),
}


class Disk:
    """It hangs in one call: before that is made, or after."""

    def __init__(self, real: Callable[..., Any], number: int, after: bool) -> None:
        self.hangs, self.answers, self.over = (threading.Event() for _ in range(3))
        self.was_answered = False
        self._real, self._left, self._after = real, number, after

    def __call__(self, *args: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left:
            return self._real(*args, **more)
        try:
            if not self._after:
                self._hang()
            found = self._real(*args, **more)
            if self._after:
                self._hang()
            return found
        finally:
            self.over.set()

    def _hang(self) -> None:
        self.hangs.set()
        self.was_answered = self.answers.wait(60)


class Watched(sqlite3.Connection):
    """It is counted when it is made, and when it is closed, which a disk that hangs holds up."""

    count = 0
    disk: Disk

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._is_closed = False
        Watched.count += 1

    def close(self) -> None:
        if self.disk.hangs.is_set():
            self.disk.answers.wait(60)
        super().close()
        Watched.count -= not self._is_closed
        self._is_closed = True


async def wait(event: threading.Event) -> None:
    with trio.fail_after(10):
        while not event.is_set():  # noqa: ASYNC110 - a thread's
            await trio.sleep(0.001)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", PLACES)
async def test_whoever_opens_it_can_leave(
    name: str, after: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, call, number = PLACES[name]
    disk = Disk(getattr(module, call), number, after)
    monkeypatch.setattr(module, call, disk)
    monkeypatch.setattr(Watched, "disk", disk, raising=False)
    monkeypatch.setattr(_sqlite, "_CLOSE_WITHIN", 0.1)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    is_out = trio.Event()

    async def use() -> None:
        async with open_journal(path):
            raise AssertionError("it was opened")

    async def leave(scope: trio.CancelScope) -> None:
        with scope:
            await use()
        is_out.set()

    scope = trio.CancelScope()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave, scope)
            await wait(disk.hangs)
            scope.cancel()
            with trio.move_on_after(5):
                await is_out.wait()
            in_time = is_out.is_set()
            disk.answers.set()
    finally:
        disk.answers.set()
    assert in_time
    await wait(disk.over)
    assert disk.was_answered
    with trio.fail_after(10):
        while Watched.count:  # noqa: ASYNC110 - a thread's
            await trio.sleep(0.001)
    monkeypatch.undo()
    assert holds(path, 1) is not True
    # What was left is nobody's: the next one finds a file in order, and itself alone.
    async with open_journal(path):
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("SELECT COUNT(*) FROM sessions WHERE ended = 0").fetchone()[0]
        assert await list_open(path) == []
    assert not [one for one in os.listdir(path.parent) if "-owner-" in one]


async def test_a_disk_that_works_is_waited_for_on_whatever_clock(
    path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with open_journal(path) as journal:
        lock = journal._database._write_lock
        for number in range(3):
            lock.acquire()
            journal.admit("agent", "hall", str(number))
            # Its thread is waited for, and nothing else is there to wait for.
            await trio.to_thread.run_sync(time.sleep, 0.02)
            lock.release()
        assert await journal.take_over("agent") == []
    assert caplog.records == []


async def test_a_session_that_is_not_written_holds_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again where the file was busy, and then the disk is full."""
    held: list[Any] = []
    real = _file.enter

    def enter(*args: Any) -> Any:
        found = real(*args)
        held.append(found[1])
        return found

    class Full:
        async def write(self, fn: Callable[[sqlite3.Connection], object], *, abandon: bool) -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                for _ in range(2):
                    database.execute("BEGIN IMMEDIATE")
                    fn(database)
                    database.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    async with open_journal(path):
        pass
    monkeypatch.setattr(_file, "enter", enter)
    with pytest.raises(sqlite3.OperationalError, match="is full"):
        await _entering.enter(cast(Any, Full()), path, this_session())
    assert len(held) == 2
    assert all(one is not None and one._files == [] for one in held)


@pytest.mark.parametrize("by", ["a note", "the figures"])
async def test_a_disk_that_hangs_is_told_and_holds_nobody_up(
    by: str,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the clock of threads: Trio's jumps while they work."""
    monkeypatch.setattr(_taking, "_LOOKS_WITHIN", 0.2)
    async with open_journal(path) as journal:
        # As a write that does not come back.
        journal._database._write_lock.acquire()
        try:
            journal.admit("agent", "hall", "1")
            await trio.sleep(100)
            assert journal._writing_since is not None
            assert (journal.statistics().failing, caplog.records) == (None, [])
            journal._writing_since -= 10
            assert (journal.statistics().failing, caplog.records) == (None, [])
            journal._writing_since -= 1
            if by == "a note":
                journal.admit("agent", "hall", "2")
            else:
                journal.statistics()
            assert "the disk does not answer" in caplog.text
            assert journal.statistics().failing == "the disk does not answer"
            assert len(caplog.records) == 1
            async with open_rooms(Agent(), journal=journal) as rooms:
                assert "which turns were left: 'the disk does not answer'" in caplog.text
                async with rooms.turn("kitchen", "bake") as turn:
                    await trio.sleep(1)
                    asked = trio.current_time()
                    turn.stop()
                assert (turn.ending, trio.current_time()) == (Ending.STOPPED, asked)
        finally:
            journal._database._write_lock.release()
        until = time.monotonic() + 10
        while journal.statistics().waiting or journal.statistics().failing:
            assert time.monotonic() < until
            await trio.sleep(0.01)
        assert "is written again; lost: 0 notes" in caplog.text
