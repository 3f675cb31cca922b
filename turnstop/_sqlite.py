"""A SQLite file of turnstop's: made for its owner only, checked, and used by threads of its own."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._service import see_through

__all__ = ["Database", "Schema", "name_file", "open_database", "open_for_us", "read_file"]

Result = TypeVar("Result")

_PATIENCE: Final = 10.0
"""Seconds that another program may keep the file from us."""
_BUSY: Final = 0.1
"""Of these, those which one try takes, in a thread that nothing can end."""
_PAUSE: Final = 0.01
_CLOSE_WITHIN: Final = 2.0
_HOLDS: Final = {b"turn": "messages", b"tnjl": "turns", b"tclm": "claims"}
"""What the files of turnstop's are of, by their `Schema.application`."""


@attrs.frozen
class Schema:
    """What a file is of, so that one of another kind, or of a newer turnstop, is left alone.

    Attributes:
        application: four bytes, SQLite's `application_id`.
        version: of the schema.
        statements: what makes it; they change nothing where it is made.
        secure_delete: overwrite what is taken out, which not every SQLite does of itself.
    """

    application: bytes
    version: int
    statements: tuple[str, ...]
    secure_delete: bool = False

    @property
    def number(self) -> int:
        """What SQLite keeps of `application`."""
        return int.from_bytes(self.application)


def open_for_us(path: str, flags: int) -> int:
    """An opener of a file for nobody else to read; SQLite makes what is beside it alike."""
    return os.open(path, flags, 0o600)


def _connect(path: Path, schema: Schema) -> sqlite3.Connection:
    # Not where there is one: closing it would take away the locks of who has it open here.
    with suppress(FileExistsError):
        os.close(open_for_us(str(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    database = _open(path)
    try:
        is_made = _check(path, schema, database) == schema.version
        database.execute("PRAGMA journal_mode = WAL").fetchall()
        # What is acknowledged to whoever posts must survive the machine, not only the program.
        database.execute("PRAGMA synchronous = FULL")
        # Otherwise only where that costs no writing: where SQLite does it of itself, to drop much
        # would be to write it all once more.
        how = "ON" if schema.secure_delete else "FAST"
        database.execute(f"PRAGMA secure_delete = {how}").fetchall()
        # Also tells a file that cannot be written. One that is made is not: it may be damaged.
        _transact(database, lambda database: None if is_made else _make(database, schema))
    except BaseException:
        database.close()
        raise
    return database


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)


def _check(path: Path, schema: Schema, database: sqlite3.Connection) -> int:
    """See that it is a file of this kind, or empty, and return which version; 0: it is empty.

    Raises:
        sqlite3.DatabaseError: it is another program's, newer, or has several names.
    """
    query = "SELECT application_id, user_version, (SELECT COUNT(*) FROM sqlite_master)"
    tables = " FROM pragma_application_id, pragma_user_version"
    ((application, version, things),) = database.execute(query + tables).fetchall()
    if application != schema.number and (application or version or things):
        raise sqlite3.DatabaseError(f"{_tell_kind(application, schema)}: take another file")
    if version > schema.version:
        raise sqlite3.DatabaseError("it was made by a newer turnstop")
    if os.stat(path).st_nlink > 1:
        # By another name it has another log beside it, and who uses both damages it.
        raise sqlite3.DatabaseError("the file has several names: leave it one")
    return int(version)


def _tell_kind(application: int, schema: Schema) -> str:
    found = _HOLDS.get((application & 0xFFFFFFFF).to_bytes(4))
    wanted = _HOLDS.get(schema.application)
    if found is None or wanted is None:
        return "another program has made it"
    return f"it holds {found}, not {wanted}"


def _make(database: sqlite3.Connection, schema: Schema) -> None:
    for statement in schema.statements:
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {schema.number}")
    database.execute(f"PRAGMA user_version = {schema.version}")


def _write_back(database: sqlite3.Connection) -> bool:
    try:
        ((is_kept, *_),) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        return False
    return not is_kept


def _transact(database: sqlite3.Connection, fn: Callable[[sqlite3.Connection], Result]) -> Result:
    """Call it while nobody else writes; what it changes is on the disk, or nothing is changed."""
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
    fn: Callable[..., Result],
    *args: Any,
    limiter: trio.CapacityLimiter,
    abandon: bool = False,
    patience: float | None = None,
) -> Result:
    """Call it in a thread, again and again while another program keeps the file from us.

    A try is short, since nothing can end a thread; so who is cancelled leaves at once.
    """
    until = time.monotonic() + (_PATIENCE if patience is None else patience)
    while True:
        try:
            return await trio.to_thread.run_sync(
                fn, *args, limiter=limiter, abandon_on_cancel=abandon
            )
        except sqlite3.OperationalError as error:
            # Its last byte is the kind; what Python's own part raises has none.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            is_kept = kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_kept or time.monotonic() > until:
                raise
        await trio.sleep(_PAUSE)


async def _connect_or_leave(
    connect: Callable[..., sqlite3.Connection], *args: Any, limiter: trio.CapacityLimiter
) -> sqlite3.Connection:
    """Connect in a thread, on a disk that may never answer.

    **Cancellation:** leaves the thread to itself, which closes what it has opened.
    """
    is_left, made = threading.Event(), list[sqlite3.Connection]()

    def attempt() -> sqlite3.Connection:
        made.append(database := connect(*args))
        if is_left.is_set():
            with suppress(IndexError):
                made.pop().close()
        return database

    try:
        return await _patiently(attempt, limiter=limiter, abandon=True)
    except BaseException:
        # Each looks for the other after it has said its own: one of both closes it.
        is_left.set()
        with suppress(IndexError):
            await see_through(math.inf, partial(_close, made.pop(), threading.Lock()))
        raise


def _read_once(path: Path, schema: Schema, fn: Callable[[sqlite3.Connection], Result]) -> Result:
    path = path.resolve(strict=True)
    if not path.is_file():
        raise sqlite3.DatabaseError("it is no regular file")  # a pipe would be waited for
    try:
        return _read_by(path, "mode=ro", schema, fn)
    except sqlite3.OperationalError:
        # SQLite has no place for what it keeps beside a file in a folder that cannot be written.
        # Where no log is there nobody has it open, and the file says all.
        if os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-wal"):
            raise
        return _read_by(path, "immutable=1", schema, fn)


def _read_by(
    path: Path, way: str, schema: Schema, fn: Callable[[sqlite3.Connection], Result]
) -> Result:
    where = f"{path.absolute().as_uri()}?{way}"
    with closing(sqlite3.connect(where, uri=True, timeout=_BUSY, isolation_level=None)) as database:
        if not _check(path, schema, database):
            raise sqlite3.DatabaseError("it is empty")
        database.execute("BEGIN")
        return fn(database)


async def read_file(
    path: Path, schema: Schema, fn: Callable[[sqlite3.Connection], Result]
) -> Result:
    """Read it as it is, in one go: it is not made, and nothing of it is changed.

    Raises:
        OSError: there is none.
        sqlite3.Error: it is empty, or another program's, or cannot be read.

    **Cancellation:** leaves the reading thread to end by itself; nothing else is left.
    """
    free = trio.CapacityLimiter(1)
    try:
        return await _patiently(_read_once, path, schema, fn, limiter=free, abandon=True)
    except sqlite3.Error as error:
        raise type(error)(f"{path}: {error}") from error


def _find_file(path: Path) -> tuple[int, int] | None:
    """Which file has this name; None where none has."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _alone(lock: threading.Lock, fn: Callable[..., Result], *args: Any) -> Result:
    with lock:
        return fn(*args)


@final
class Database:
    """The file, opened twice: who reads waits for nobody who writes.

    Each is used by one thread at a time; and the threads are its own, so that nobody else's delay
    it.
    """

    def __init__(self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path, self._is = path, _find_file(path)
        self._writer, self._reader = writer, reader
        self._writing, self._reading = trio.CapacityLimiter(1), trio.CapacityLimiter(1)
        # Held by the thread that uses it, for longer than anybody may wait for that thread.
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()

    async def write(
        self,
        fn: Callable[[sqlite3.Connection], Result],
        *,
        abandon: bool = False,
        patience: float | None = None,
    ) -> Result:
        """Change it in one go; return when that is on the disk.

        Args:
            fn: called again where the file was busy.
            abandon: leave at once when cancelled, whatever the disk does: it may be changed later.
            patience: seconds that another program may keep the file from us; 10 by default.

        **Cancellation:** it is changed, or not.
        """
        what = (self._write_lock, _transact, self._writer, fn)
        return await _patiently(
            _alone, *what, limiter=self._writing, abandon=abandon, patience=patience
        )

    async def write_back(self, *, abandon: bool = False) -> bool:
        """Leave nothing in the log beside it; False where another program uses it just now.

        Args:
            abandon: as for `write`.

        **Cancellation:** it is left there, or not.
        """
        # One short try: who listens for what others have posted does not wait for them here.
        what = (self._write_lock, _write_back, self._writer)
        return await trio.to_thread.run_sync(
            _alone, *what, limiter=self._writing, abandon_on_cancel=abandon
        )

    async def read(
        self, fn: Callable[[sqlite3.Connection], Result], *, abandon: bool = False
    ) -> Result:
        """Read what has been written so far.

        **Cancellation:** changes nothing.
        """
        what = (self._read_lock, fn, self._reader)
        return await _patiently(_alone, *what, limiter=self._reading, abandon=abandon)

    def check_place(self) -> None:
        """See that the file is still where it was opened. May be called by `fn` of `write`.

        Raises:
            sqlite3.OperationalError: it was moved, removed, or another is in its place.
        """
        if _find_file(self._path) != self._is:
            raise sqlite3.OperationalError(f"{self._path} was moved away, or removed, while open")

    async def maintain(self, statement: str, *, abandon: bool = False) -> None:
        """Have the writer do what cannot be part of a change, such as VACUUM.

        Args:
            abandon: as for `write`.

        **Cancellation:** it is done, or not.
        """

        def do(database: sqlite3.Connection) -> None:
            database.execute(statement).fetchall()

        what = (self._write_lock, do, self._writer)
        await _patiently(_alone, *what, limiter=self._writing, abandon=abandon)

    async def _close(self) -> None:
        for database, lock in ((self._writer, self._write_lock), (self._reader, self._read_lock)):
            # The last one writes the log back.
            await _close(database, lock)


async def _close(database: sqlite3.Connection, lock: threading.Lock) -> None:
    # A thread may have been left in it, on a disk that does not answer. Whenever that comes back it
    # is closed; it is waited for only so long, and Trio's thread waits for no disk.
    free = trio.CapacityLimiter(1)
    with trio.move_on_after(_CLOSE_WITHIN, shield=True):
        try:
            await trio.to_thread.run_sync(
                _alone, lock, database.close, limiter=free, abandon_on_cancel=True
            )
        except RuntimeError:
            # No thread is to be had: the garbage collector would close it in this one.
            if lock.acquire(blocking=False):
                database.close()


def name_file(path: Path, error: sqlite3.Error) -> sqlite3.Error:
    """The error with the file's name, and with what else can be seen of it."""
    why = ""
    if os.path.islink(os.path.realpath(path)):
        why = ": it is a link that leads to itself"
    elif os.path.exists(path) and not os.path.isfile(path):
        why = ": it is no regular file"
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        why = ": it cannot be written, or its folder cannot, where SQLite keeps what it needs"
    elif os.statvfs(path.parent).f_bavail == 0:
        why = ": the disk is full"
    return type(error)(f"{path}: {error}{why}")


@asynccontextmanager
@enable_ki_protection
async def open_database(path: Path, schema: Schema) -> AsyncGenerator[Database, None]:
    """Open it; it is made where there is none, for its owner only.

    Raises:
        OSError: there is no such folder, or it cannot be written.
        sqlite3.Error: it is another program's, or cannot be written.

    **Cancellation:** it is closed when the body has left. Until it is open, a thread is left to
    itself that waits for the disk.
    """
    limiter = trio.CapacityLimiter(1)
    try:
        writer = await _connect_or_leave(_connect, path, schema, limiter=limiter)
    except sqlite3.Error as error:
        raise name_file(path, error) from error
    try:
        reader = await _connect_or_leave(_open, path, limiter=limiter)
    except BaseException:
        await see_through(math.inf, partial(_close, writer, threading.Lock()))
        raise
    file = Database(path, writer, reader)
    try:
        yield file
    finally:
        # It bounds itself. Ctrl-C may be on its way, and would end the closing before it begins.
        await see_through(math.inf, file._close)
