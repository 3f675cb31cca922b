"""The file of `turnstop.feeds.sqlite`: what it has, how it is made, and who may serve it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, final

import trio

__all__ = ["FeedInUse", "File", "locked", "open_file"]

Result = TypeVar("Result")

_VERSION: Final = 1
_APPLICATION: Final = int.from_bytes(b"turn")
_PATIENCE: Final = 10.0
"""Seconds that another program may keep the file from us."""
_BUSY: Final = 0.1
"""Of these, those which one try takes, in a thread that nothing can end."""
_PAUSE: Final = 0.01
# `ended` says in which order messages have finished: NULL where one has not.
# `after` is where in the row of messages a control was posted: it is heard in its place.
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        room TEXT NOT NULL,
        id TEXT NOT NULL,
        content TEXT NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 0,
        ended INTEGER UNIQUE,
        state TEXT NOT NULL DEFAULT 'waiting',
        reason TEXT NOT NULL DEFAULT '',
        UNIQUE (room, id)
    )""",
    "CREATE INDEX IF NOT EXISTS unfinished ON messages (room, number) WHERE ended IS NULL",
    "CREATE INDEX IF NOT EXISTS waiting ON messages (number) WHERE ended IS NULL",
    "CREATE TABLE IF NOT EXISTS paused (room TEXT PRIMARY KEY)",
    """CREATE TABLE IF NOT EXISTS controls (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        after INTEGER NOT NULL,
        control TEXT NOT NULL
    )""",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


class FeedInUse(RuntimeError):
    """Another process serves this file."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the one that serves it.

    Raises:
        FeedInUse: another process does.
        OSError: there is no such folder, or it cannot be written.
    """
    with open(f"{path}.lock", "a", opener=_open_for_us) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FeedInUse(
                f"another process serves {path}: end it, or take another file"
            ) from None
        yield


def _open_for_us(path: str, flags: int) -> int:
    # What has been said is for nobody else to read. SQLite makes what is beside it alike.
    return os.open(path, flags, 0o600)


def _connect(path: Path) -> sqlite3.Connection:
    # Not where there is one: closing it would take away the locks of who has it open here.
    with suppress(FileExistsError):
        os.close(_open_for_us(str(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    database = _open(path)
    try:
        _check(path, database)
        database.execute("PRAGMA journal_mode = WAL").fetchall()
        # What is acknowledged to whoever posts must survive the machine, not only the program.
        database.execute("PRAGMA synchronous = FULL")
        # What is taken out is overwritten, which not every SQLite does of itself.
        database.execute("PRAGMA secure_delete = ON")
        # Also tells a file that cannot be written.
        _transact(database, _make)
    except BaseException:
        database.close()
        raise
    return database


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)


def _check(path: Path, database: sqlite3.Connection) -> None:
    query = "SELECT application_id, user_version, (SELECT COUNT(*) FROM sqlite_master)"
    tables = " FROM pragma_application_id, pragma_user_version"
    ((application, version, things),) = database.execute(query + tables).fetchall()
    if application != _APPLICATION and (application or version or things):
        raise sqlite3.DatabaseError("another program has made it: take another file")
    if version > _VERSION:
        raise sqlite3.DatabaseError("it was made by a newer turnstop")
    if os.stat(path).st_nlink > 1:
        # By another name it has another log beside it, and who uses both damages it.
        raise sqlite3.DatabaseError("the file has several names: leave it one")


def _make(database: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        database.execute(statement)


def _write_back(database: sqlite3.Connection) -> bool:
    try:
        ((is_kept, *_),) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        return False
    return not is_kept


def _transact(database: sqlite3.Connection, fn: Callable[[sqlite3.Connection], Result]) -> Result:
    database.execute("BEGIN IMMEDIATE")
    try:
        found = fn(database)
        database.execute("COMMIT")
    except BaseException:
        # A full disk may have ended it already.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return found


async def _patiently(
    fn: Callable[..., Result], *args: Any, limiter: trio.CapacityLimiter
) -> Result:
    """Call it in a thread, again and again while another program keeps the file from us.

    A try is short, since nothing can end a thread; so who is cancelled leaves at once.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return await trio.to_thread.run_sync(fn, *args, limiter=limiter)
        except sqlite3.OperationalError as error:
            # Its last byte is the kind; what Python's own part raises has none.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            is_kept = kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_kept or time.monotonic() > until:
                raise
        await trio.sleep(_PAUSE)


@final
class File:
    """The file, opened twice: who reads waits for nobody who writes.

    Each is used by one thread at a time; and the threads are its own, so that nobody else's delay
    it.
    """

    def __init__(self, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._writer, self._reader = writer, reader
        self._writing, self._reading = trio.CapacityLimiter(1), trio.CapacityLimiter(1)

    async def write(self, fn: Callable[[sqlite3.Connection], Result]) -> Result:
        """Change it in one go; return when that is on the disk.

        **Cancellation:** it is changed, or not.
        """
        return await _patiently(_transact, self._writer, fn, limiter=self._writing)

    async def write_back(self) -> bool:
        """Leave nothing in the log beside it; False where another program uses it just now.

        **Cancellation:** it is left there, or not.
        """
        # One short try: who listens for what others have posted does not wait for them here.
        return await trio.to_thread.run_sync(_write_back, self._writer, limiter=self._writing)

    async def read(self, fn: Callable[[sqlite3.Connection], Result]) -> Result:
        """Read what has been written so far.

        **Cancellation:** changes nothing.
        """
        return await _patiently(fn, self._reader, limiter=self._reading)


@asynccontextmanager
async def open_file(path: Path) -> AsyncGenerator[File, None]:
    """Open it; it is made where there is none, for its owner only.

    Raises:
        OSError: there is no such folder, or it cannot be written.
        sqlite3.Error: it is another program's, or cannot be written.

    **Cancellation:** it is closed when the body has left.
    """
    limiter = trio.CapacityLimiter(1)
    try:
        writer = await _patiently(_connect, path, limiter=limiter)
    except sqlite3.Error as error:
        raise type(error)(f"{path}: {error}") from error
    with closing(writer), closing(await _patiently(_open, path, limiter=limiter)) as reader:
        yield File(writer, reader)
