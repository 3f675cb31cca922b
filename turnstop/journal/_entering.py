"""Entering and leaving a journal's file, which may be on a disk that does not answer."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path

import trio

from .._sqlite import Database, name_file
from . import _file
from ._session import Hold, Session

__all__ = ["check_name", "enter", "leave", "resolve"]


def check_name(path: str | os.PathLike[str]) -> None:
    """See that a file can have this name.

    Raises:
        ValueError: none can.
    """
    name = os.fspath(path)
    if not name or "\0" in name:
        raise ValueError(f"a journal is a file, and none can have such a name: got {path!r}")


def resolve(path: str | os.PathLike[str]) -> Path:
    """By whatever name it is opened, it is one file."""
    return Path(os.path.realpath(path))


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
        damaged = ": it is damaged: move it away, and a new one is begun"
        more = damaged if "no such table" in str(error) else ""
        raise name_file(path, type(error)(f"{error}{more}")) from error
    except BaseException:
        # Each looks for the other after it has said its own: one of both lets go.
        is_left.set()
        _let_go(held)
        raise


async def leave(database: Database, session: int, held: Hold | None) -> None:
    """What a session has left open is for others, from here on.

    Raises:
        sqlite3.Error: it could not be written.

    **Cancellation:** it is written or not; its lock says in either case that it is gone, once that
    is let go.
    """
    await database.write(partial(_file.leave, session=session), abandon=True)
    # Not before it is on the disk: where it is not, the lock alone can tell that it is gone.
    if held is not None:
        alone = trio.CapacityLimiter(1)
        await trio.to_thread.run_sync(held.forget, abandon_on_cancel=True, limiter=alone)


def _let_go(held: list[Hold]) -> None:
    for hold in held:
        hold.let_go()
