"""Entering a journal's file, which may be on a disk that does not answer."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

from .._sqlite import Database, name_file
from . import _file
from ._session import Hold, Session

__all__ = ["enter"]


async def enter(database: Database, path: Path, session: Session) -> tuple[int, Hold | None]:
    """Enter a session into the file, and return its id, and what it holds while it lives.

    Raises:
        sqlite3.Error: the file cannot be written.

    **Cancellation:** whenever the disk answers, the session is none, or one that is gone.
    """
    is_left, held = threading.Event(), list[Hold]()

    def attempt(connection: sqlite3.Connection) -> tuple[int, Hold | None]:
        _let_go(held)  # of a try before, which was not written
        number, hold = _file.enter(connection, path, session, time.time())
        if hold is not None:
            held.append(hold)
        if is_left.is_set():
            _let_go(held)
            raise sqlite3.OperationalError("nobody waits for it any more")
        return number, hold

    try:
        return await database.write(attempt, abandon=True)
    except sqlite3.Error as error:
        _let_go(held)
        raise name_file(path, error) from error
    except BaseException:
        # Each looks for the other after it has said its own: one of both lets go.
        is_left.set()
        _let_go(held)
        raise


def _let_go(held: list[Hold]) -> None:
    for hold in held:
        hold.let_go()
