"""Messages in a file: they survive the program, and are handled once more after a crash.

One process serves a file at a time; a lock that the system takes away from a process which has died
sees to that. So a message that was being handled when a process died is not being handled by
anybody, and the next one takes it up. Others may post to the file meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, final

import attrs
import trio

from .._inbox import Claim, Control, ControlKind, Message

__all__ = ["FeedInUse", "SqliteFeed", "open_sqlite_feed"]

Result = TypeVar("Result")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    room TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    content TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting',
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS unfinished ON messages (room, number) WHERE state = 'waiting';
CREATE TABLE IF NOT EXISTS paused (room TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS controls (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    control TEXT NOT NULL
);
"""


class FeedInUse(RuntimeError):
    """Another process serves this file."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(f"{path}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FeedInUse(
                f"another process serves {path}: end it, or take another file"
            ) from None
        yield


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
    # What is acknowledged to whoever posts must survive the machine, not only the program.
    database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {_SCHEMA}")
    return database


def _resume(database: sqlite3.Connection, room: str | None) -> None:
    database.execute("DELETE FROM paused WHERE ? IS NULL OR room = ?", (room, room))


def _to_message(room: str, id: str, content: str, attempt: int) -> Message:
    return Message(room, id, json.loads(content), attempt)


def _to_json(control: Control) -> dict[str, Any]:
    return {**attrs.asdict(control), "kind": control.kind.value}


def _from_json(found: dict[str, Any]) -> Control:
    return Control(**{**found, "kind": ControlKind(found["kind"])})


@final
class SqliteFeed:
    """A `turnstop.Feed` in a file. Made by `open_sqlite_feed`.

    What is posted is JSON: a str, a number, a list, a dict. A message that was posted has been
    written to the disk.
    """

    def __init__(self, database: sqlite3.Connection, attempts: int, poll_every: float) -> None:
        self._database = database
        self._attempts = attempts
        self._poll_every = poll_every
        self._claimed: set[str] = set()
        self._announced = 0
        self._heard = 0
        self._unheard: list[Message | Control] = []
        self._numbers: dict[Control, list[int]] = {}
        self._posted = trio.Event()
        # One connection, so one at a time; and its own, so that nobody else's threads delay it.
        self._limiter = trio.CapacityLimiter(1)

    # What people do.

    async def post(self, room: str, content: Any, *, id: str | None = None) -> Message:
        """Post a message, and return when it is on the disk.

        Args:
            content: JSON.
            id: one that was posted before is not posted again, finished or not.

        Raises:
            TypeError: the content is no JSON.

        **Cancellation:** it is posted, or not.
        """
        name = uuid.uuid4().hex if id is None else id
        text = json.dumps(content)

        def insert() -> None:
            with self._database as database:
                database.execute(
                    "INSERT OR IGNORE INTO messages (room, id, content) VALUES (?, ?, ?)",
                    (room, name, text),
                )

        await self._call(insert)
        self._posted.set()
        return Message(room, name, content)

    async def control(self, control: Control) -> None:
        """Post a control, and return when it is on the disk.

        **Cancellation:** it is posted, or not.
        """
        text = json.dumps(_to_json(control))

        def insert() -> None:
            with self._database as database:
                database.execute("INSERT INTO controls (control) VALUES (?)", (text,))
                if control.kind is ControlKind.PLAY:
                    _resume(database, control.room)

        await self._call(insert)
        self._posted.set()

    # What `serve_rooms` calls.

    async def receive(self) -> Message | Control:
        """See `turnstop.Feed`.

        **Cancellation:** loses nothing.
        """
        while True:
            self._posted = trio.Event()
            await self._call(self._look)
            if self._unheard:
                return self._unheard.pop(0)
            with trio.move_on_after(self._poll_every):
                await self._posted.wait()

    def _look(self) -> None:
        if self._unheard:
            return
        controls = "SELECT number, control FROM controls WHERE number > ? ORDER BY number LIMIT 100"
        for number, text in self._database.execute(controls, (self._heard,)):
            self._heard = number
            control = _from_json(json.loads(text))
            self._numbers.setdefault(control, []).append(number)
            self._unheard.append(control)
        messages = (
            "SELECT number, room, id, content, attempt FROM messages"
            " WHERE state = 'waiting' AND number > ? ORDER BY number LIMIT 100"
        )
        for number, *found in self._database.execute(messages, (self._announced,)):
            self._announced = number
            self._unheard.append(_to_message(*found))

    async def rooms(self) -> Sequence[str]:
        """See `turnstop.Feed`.

        **Cancellation:** changes nothing.
        """
        query = "SELECT room FROM messages WHERE state = 'waiting' UNION SELECT room FROM paused"
        return [room for (room,) in await self._fetch(query)]

    async def next(self, room: str) -> Message | None:
        """See `turnstop.Feed`.

        **Cancellation:** changes nothing.
        """
        found = await self._fetch(
            "SELECT room, id, content, attempt FROM messages WHERE state = 'waiting' AND room = ?"
            " AND room NOT IN (SELECT room FROM paused) ORDER BY number LIMIT 1",
            room,
        )
        return _to_message(*found[0]) if found else None

    async def claim(self, message: Message) -> Claim:
        """See `turnstop.Feed`.

        **Cancellation:** it may be claimed.
        """
        query = "SELECT state, room IN (SELECT room FROM paused) FROM messages WHERE id = ?"
        ((state, is_paused),) = await self._fetch(query, message.id) or [("gone", False)]
        if state != "waiting":
            return Claim.FINISHED
        if is_paused:
            return Claim.PAUSED
        if message.id in self._claimed:
            return Claim.BUSY
        self._claimed.add(message.id)
        return Claim.MINE

    async def release(self, message: Message) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** it is released.
        """
        self._claimed.discard(message.id)
        await trio.lowlevel.checkpoint()

    async def acknowledge(self, message: Message) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** it is acknowledged, or not.
        """
        await self._finish("UPDATE messages SET state = 'finished' WHERE id = ?", message)

    async def fail(self, message: Message, reason: str) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** it has failed, or not.
        """
        state = "failed" if message.attempt + 1 >= self._attempts else "waiting"
        update = "UPDATE messages SET state = ?, reason = ?, attempt = attempt + 1 WHERE id = ?"
        await self._finish(update, message, state, reason)

    async def applied(self, control: Control, rooms: Sequence[str]) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** it is known as applied, or not.
        """
        numbers = self._numbers.get(control, [])
        number = numbers.pop(0) if numbers else None

        def write() -> None:
            with self._database as database:
                if control.kind is ControlKind.STOP:
                    database.executemany(
                        "INSERT OR IGNORE INTO paused VALUES (?)", [(room,) for room in rooms]
                    )
                elif control.kind is ControlKind.PLAY:
                    for room in rooms:
                        _resume(database, room)
                database.execute("DELETE FROM controls WHERE number = ?", (number,))

        await self._call(write)
        if not numbers:
            self._numbers.pop(control, None)

    async def _finish(self, update: str, message: Message, *values: Any) -> None:
        def write() -> None:
            with self._database as database:
                database.execute(update, (*values, message.id))

        await self._call(write)
        self._claimed.discard(message.id)

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        return await self._call(lambda: self._database.execute(query, values).fetchall())

    async def _call(self, fn: Callable[[], Result]) -> Result:
        return await trio.to_thread.run_sync(fn, limiter=self._limiter)


@asynccontextmanager
async def open_sqlite_feed(
    path: str | os.PathLike[str], *, attempts: int = 3, poll_every: float = 1.0
) -> AsyncGenerator[SqliteFeed, None]:
    """Open a file of messages to be served. It is made where there is none.

    Args:
        path: the file. Beside it there will be others, whose names begin with its name.
        attempts: how often a message is handled before its failing is final.
        poll_every: seconds between two looks for what other processes have posted.

    Raises:
        FeedInUse: another process serves this file.
        sqlite3.DatabaseError: it is no such file, or cannot be written.

    **Cancellation:** the file is closed when the body has left.
    """
    with _locked(Path(path)), closing(_connect(Path(path))) as database:
        yield SqliteFeed(database, attempts, poll_every)
