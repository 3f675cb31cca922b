"""The file of `turnstop.feeds.sqlite`: what it has, and who may serve it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .._sqlite import Schema, open_for_us

__all__ = ["SCHEMA", "FeedInUse", "locked"]

# `ended` says in which order messages have finished: NULL where one has not.
# `after` is where in the row of messages a control was posted: it is heard in its place.
SCHEMA: Final = Schema(
    application=b"turn",
    version=1,
    statements=(
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
    ),
    secure_delete=True,
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
    with open(f"{path}.lock", "a", opener=open_for_us) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FeedInUse(
                f"another process serves {path}: end it, or take another file"
            ) from None
        yield
