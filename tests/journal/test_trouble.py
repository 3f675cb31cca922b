"""A journal in a program that is in trouble itself: no threads, a log that raises, damaged rows."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstop import Ending
from turnstop._sqlite import Database
from turnstop.journal import Journal, _file, _journal, open_journal
from turnstop.journal._reading import list_open
from turnstop.journal._session import holds, this_session

from .conftest import Read
from .test_journal import Agent, opened


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.01)


class Unruly(logging.Handler):
    """A handler that lets out what it meets."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError("the log is full")


@pytest.fixture
def unruly() -> Iterator[None]:
    handler = Unruly()
    logger = logging.getLogger("turnstop.journal")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


async def test_a_handler_of_the_log_ends_no_writing(path: Path, unruly: None) -> None:
    away = path.with_name("away.db")
    async with opened(path, Agent()) as (journal, rooms):
        os.rename(path, away)
        async with rooms.turn("kitchen", "bake") as turn:
            await until(lambda: journal.statistics().failing is not None)
        os.rename(away, path)
        await until(lambda: journal.statistics().waiting == 0)
    assert turn.ending is Ending.STOPPED
    assert journal.statistics().lost == 0


async def test_a_handler_of_the_log_ends_no_stop(path: Path, unruly: None) -> None:
    async with opened(path, Agent()) as (journal, rooms):
        for _ in range(2):
            async with rooms.turn("kitchen", "bake") as turn:
                await trio.sleep(0.01)
                journal._closed = True
                turn.stop()
            assert turn.ending is Ending.STOPPED
        assert rooms.statistics().rooms == 0
        journal._closed, journal._failing = False, None


async def test_where_no_thread_is_to_be_had_turns_go_on_and_nothing_is_lost(
    path: Path, read: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise RuntimeError("can't start new thread")

    async with opened(path, Agent()) as (journal, rooms):
        with monkeypatch.context() as patch:
            patch.setattr("trio._threads.start_thread_soon", refuse)
            async with rooms.turn("kitchen", "bake") as turn:
                await until(lambda: journal.statistics().failing is not None)
            assert turn.ending is Ending.STOPPED
            assert await journal.take_over("agent") == []
        await until(lambda: journal.statistics().waiting == 0)
        assert journal.statistics().lost == 0
        assert [kind for (kind,) in read("SELECT kind FROM records")][-1] == "settled"
    assert "it cannot be seen which turns were left" in caplog.text


async def test_a_journal_can_be_closed_where_no_thread_is_to_be_had(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        async with open_journal(path) as journal:
            assert holds(path, journal._session)
            patch.setattr("trio._threads.start_thread_soon", refuse)
        assert not holds(path, journal._session)
    for connection in (journal._database._writer, journal._database._reader):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    async with open_journal(path):
        pass


async def test_where_the_closing_cannot_be_written_the_session_is_gone_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Database.write

    async def write_or_not(database: Database, fn: Any, **how: Any) -> Any:
        def fn_on_a_full_disk(connection: sqlite3.Connection) -> None:
            fn(connection)
            raise sqlite3.OperationalError("database or disk is full")

        is_last = getattr(fn, "func", None) is _file.leave
        return await write(database, fn_on_a_full_disk if is_last else fn, **how)

    monkeypatch.setattr(Database, "write", write_or_not)
    async with open_journal(path) as journal:
        journal.admit("agent", "kitchen", "1")
        await until(lambda: journal.statistics().waiting == 0)
    # This process is there; its lock, which it has let go, tells that the session is not.
    assert holds(path, journal._session) is False
    assert [one.alive for one in await list_open(path)] == [False]
    monkeypatch.undo()
    async with open_journal(path) as another:
        assert [one.turn_id for one in await another.take_over("agent")] == ["1"]


async def test_a_session_that_makes_no_sense_ends_nobody(path: Path, read: Read) -> None:
    async with open_journal(path):
        pass
    host = this_session().host
    with closing(sqlite3.connect(path)) as database, database:
        new = "INSERT INTO sessions (host, pid, started, beat) VALUES (?, ?, ?, ?)"
        rows = [(host, 10**14, 5, 0.0), ("x", "y", "z", "oops")]
        database.executemany(new, rows)
        database.execute(
            "INSERT INTO open SELECT id << 32, id, 'agent', ?, NULL FROM sessions",
            ('{"backend": "agent", "room": "a", "turn_id": "t"}',),
        )
    assert len(await list_open(path)) == 3
    async with opened(path, Agent()) as (_, rooms):
        async with rooms.turn("kitchen", "bake"):
            await trio.sleep(0.01)


@pytest.fixture
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_default_handler")
@pytest.mark.parametrize("at", ["the writing", "the leaving"])
def test_ctrl_c_while_it_is_closed_waits_until_it_is(
    path: Path, read: Read, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that there is something to be written yet.
    monkeypatch.setattr(_journal, "_GATHERS", 10.0)
    finish, write = _journal.Journal._finish, Database.write

    async def struck_finish(journal: Journal) -> None:
        assert journal.statistics().waiting
        signal.raise_signal(signal.SIGINT)
        await finish(journal)

    async def struck_write(database: Database, fn: Any, **how: Any) -> Any:
        if getattr(fn, "func", None) is _file.leave:
            signal.raise_signal(signal.SIGINT)
        return await write(database, fn, **how)

    if at == "the writing":
        monkeypatch.setattr(_journal.Journal, "_finish", struck_finish)
    else:
        monkeypatch.setattr(Database, "write", struck_write)

    async def main() -> None:
        async with opened(path, Agent()) as (_, rooms), rooms.turn("kitchen", "bake"):
            await trio.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert [kind for (kind,) in read("SELECT kind FROM records")][-1] == "settled"
    assert read("SELECT ended FROM sessions") == [(1,)]
    assert list(path.parent.glob("*-owner-*")) == []
