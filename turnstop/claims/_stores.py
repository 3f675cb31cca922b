"""Where claims are kept: in a file, or in memory."""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

import trio
from trio.lowlevel import enable_ki_protection

from .. import _sqlite
from . import _rows
from ._errors import ClaimLapsed
from ._store import Wanted

__all__ = ["MemoryStore", "SqliteStore", "open_sqlite_store"]

Result = TypeVar("Result")

_SCHEMA: Final = _sqlite.Schema(b"tclm", _rows.VERSION, _rows.STATEMENTS)
# One for all processes of a machine, and nobody sets it.
_now = time.monotonic


@final
class SqliteStore:
    """A `ClaimStore` in a file, for the processes of one machine."""

    def __init__(self, database: _sqlite.Database) -> None:
        self._database = database

    # The time is taken within the transaction, for which one may have waited.

    async def acquire(self, wanted: Wanted) -> int:
        """See `ClaimStore`.

        **Cancellation:** it is granted, or not, and that perhaps later.
        """

        def write(database: sqlite3.Connection) -> int:
            return _rows.acquire(database, wanted, _now())

        return await self._database.write(write, abandon=True)

    async def renew(self, lease: str, ttl: float) -> bool:
        """See `ClaimStore`.

        **Cancellation:** it is renewed, or not, and that perhaps later.
        """

        def write(database: sqlite3.Connection) -> bool:
            return _rows.renew(database, lease, ttl, _now())

        return await self._database.write(write, abandon=True)

    async def release(self, lease: str) -> None:
        """See `ClaimStore`.

        **Cancellation:** it is released, or not, and that perhaps later.
        """
        await self._database.write(partial(_rows.release, lease=lease), abandon=True)

    async def check(self, token: int, scope: str) -> bool:
        """See `ClaimStore`.

        **Cancellation:** changes nothing.
        """

        def read(database: sqlite3.Connection) -> bool:
            return _rows.is_live(database, token, scope, _now)

        return await self._database.read(read, abandon=True)

    async def write(self, token: int, scope: str, fn: Callable[[], Result]) -> Result:
        """See `ClaimStore`. All claims of the file wait meanwhile.

        **Cancellation:** it is called to its end, or not at all.
        """

        def write(database: sqlite3.Connection) -> Result:
            if not _rows.is_live(database, token, scope, _now):
                raise ClaimLapsed(token, scope)
            return fn()

        return await self._database.write(write)


@final
class MemoryStore:
    """A `ClaimStore` for one program, and for tests: its time is Trio's, and it has no thread.

    It may be opened by several `open_claims`.
    """

    def __init__(self) -> None:
        # The garbage collector closes it in whatever thread it happens to run in.
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in _rows.STATEMENTS:
            self._database.execute(statement)
        weakref.finalize(self, self._database.close)

    async def acquire(self, wanted: Wanted) -> int:
        """See `ClaimStore`.

        **Cancellation:** nothing is granted.
        """
        await trio.lowlevel.checkpoint()
        return _rows.acquire(self._database, wanted, trio.current_time())

    async def renew(self, lease: str, ttl: float) -> bool:
        """See `ClaimStore`.

        **Cancellation:** it is not renewed.
        """
        await trio.lowlevel.checkpoint()
        return _rows.renew(self._database, lease, ttl, trio.current_time())

    async def release(self, lease: str) -> None:
        """See `ClaimStore`.

        **Cancellation:** it is not released.
        """
        await trio.lowlevel.checkpoint()
        _rows.release(self._database, lease)

    async def check(self, token: int, scope: str) -> bool:
        """See `ClaimStore`.

        **Cancellation:** changes nothing.
        """
        await trio.lowlevel.checkpoint()
        return _rows.is_live(self._database, token, scope, trio.current_time)

    async def write(self, token: int, scope: str, fn: Callable[[], Result]) -> Result:
        """See `ClaimStore`. Called at once, in Trio's thread.

        **Cancellation:** nothing is called.
        """
        await trio.lowlevel.checkpoint()
        if not _rows.is_live(self._database, token, scope, trio.current_time):
            raise ClaimLapsed(token, scope)
        return fn()


@asynccontextmanager
@enable_ki_protection
async def open_sqlite_store(path: Path) -> AsyncGenerator[SqliteStore, None]:
    """Open the file; it is made where there is none, for its owner only.

    Raises:
        OSError: there is no such folder, or it cannot be written.
        sqlite3.Error: it is no file of claims, a newer turnstop's, or cannot be written.

    **Cancellation:** the file is closed when the body has left.
    """
    async with _sqlite.open_database(path, _SCHEMA) as database:
        yield SqliteStore(database)
