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
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar, final

import attrs
import trio

from .._inbox import Claim, Control, ControlKind, Message

__all__ = ["FeedInUse", "SqliteFeed", "open_sqlite_feed"]

Result = TypeVar("Result")

_VERSION: Final = 1
# Where in the row of messages a control was posted: it is heard in its place.
_SCHEMA: Final = f"""
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
CREATE INDEX IF NOT EXISTS waiting ON messages (number) WHERE state = 'waiting';
CREATE TABLE IF NOT EXISTS paused (room TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS controls (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    after INTEGER NOT NULL,
    control TEXT NOT NULL
);
PRAGMA user_version = {_VERSION};
"""
_BATCH: Final = 100


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
    try:
        database = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
    except sqlite3.Error as error:
        raise type(error)(f"{path}: {error}") from error
    try:
        ((version,),) = database.execute("PRAGMA user_version").fetchall()
        if version > _VERSION:
            raise sqlite3.DatabaseError("it was made by a newer turnstop")
        # What is acknowledged to whoever posts must survive the machine, not only the program.
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
        # Also tells a file that cannot be written.
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    except sqlite3.Error as error:
        database.close()
        raise type(error)(f"{path}: {error}") from error
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
    """A `turnstop.feeds.Feed` in a file. Made by `open_sqlite_feed`.

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
        self._untold: list[tuple[Control, int]] = []
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
            sqlite3.Error: it could not be written, and is not posted.

        **Cancellation:** it is posted, or not.
        """
        name = uuid.uuid4().hex if id is None else id
        text = json.dumps(content)

        def insert(database: sqlite3.Connection) -> None:
            database.execute(
                "INSERT OR IGNORE INTO messages (room, id, content) VALUES (?, ?, ?)",
                (room, name, text),
            )

        await self._write(insert)
        self._posted.set()
        return Message(room, name, content)

    async def control(self, control: Control) -> None:
        """Post a control, and return when it is on the disk.

        A PLAY resumes its rooms at once, should nobody receive it.

        Raises:
            sqlite3.Error: it could not be written, and is not posted.

        **Cancellation:** it is posted, or not.
        """
        text = json.dumps(_to_json(control))

        def insert(database: sqlite3.Connection) -> None:
            database.execute(
                "INSERT INTO controls (after, control)"
                " SELECT COALESCE(MAX(number), 0), ? FROM messages",
                (text,),
            )
            if control.kind is ControlKind.PLAY:
                _resume(database, control.room)

        await self._write(insert)
        self._posted.set()

    # What `serve_rooms` calls.

    async def receive(self) -> Message | Control:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** loses nothing.
        """
        await trio.lowlevel.checkpoint()
        while not self._unheard:
            self._posted = trio.Event()
            await self._read(self._look)
            if not self._unheard:
                with trio.move_on_after(self._poll_every):
                    await self._posted.wait()
        return self._unheard.pop(0)

    def _look(self, database: sqlite3.Connection) -> None:
        # Controls first: of the messages before them, none is posted later.
        controls = database.execute(
            f"SELECT after, number, control FROM controls WHERE number > ?"
            f" ORDER BY number LIMIT {_BATCH}",
            (self._heard,),
        ).fetchall()
        messages = database.execute(
            f"SELECT number, room, id, content, attempt FROM messages"
            f" WHERE state = 'waiting' AND number > ? ORDER BY number LIMIT {_BATCH}",
            (self._announced,),
        ).fetchall()
        found: list[tuple[int, int, Message | Control]] = [
            (number, 0, _to_message(*rest)) for number, *rest in messages
        ]
        for after, number, text in controls:
            if len(messages) == _BATCH and after > messages[-1][0]:
                break
            control = _from_json(json.loads(text))
            found.append((after, number, control))
            self._untold.append((control, number))
            self._heard = number
        self._announced = messages[-1][0] if messages else self._announced
        self._unheard += [item for _, _, item in sorted(found, key=lambda one: one[:2])]

    async def rooms(self) -> Mapping[str, bool]:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** changes nothing.
        """
        self._claimed.clear()
        found = await self._fetch(
            "SELECT room, 0 FROM messages WHERE state = 'waiting' UNION SELECT room, 1 FROM paused"
            " ORDER BY 2"
        )
        return {room: bool(paused) for room, paused in found}

    async def next(self, room: str) -> Message | None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** changes nothing.
        """
        found = await self._fetch(
            "SELECT room, id, content, attempt FROM messages WHERE state = 'waiting' AND room = ?"
            " AND room NOT IN (SELECT room FROM paused) ORDER BY number LIMIT 1",
            room,
        )
        return _to_message(*found[0]) if found else None

    async def claim(self, message: Message) -> Claim:
        """See `turnstop.feeds.Feed`.

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
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is released.
        """
        self._claimed.discard(message.id)
        await trio.lowlevel.checkpoint()

    async def acknowledge(self, message: Message) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is acknowledged, or not.
        """
        await self._finish(message, "finished", "", message.attempt)

    async def fail(self, message: Message, reason: str) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it has failed, or not.
        """
        attempt = message.attempt + 1
        state = "failed" if attempt >= self._attempts else "waiting"
        await self._finish(message, state, reason, attempt)

    async def refuse(self, message: Message, reason: str) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is refused, or not.
        """
        if message.id not in self._claimed:
            # Nobody may claim it meanwhile.
            self._claimed.add(message.id)
            await self._finish(message, "failed", reason, message.attempt)

    async def applied(self, control: Control, rooms: Sequence[str]) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is known as applied, or not.
        """
        number = next((number for found, number in self._untold if found is control), None)

        def write(database: sqlite3.Connection) -> None:
            if control.kind is ControlKind.STOP:
                names = [(room,) for room in rooms]
                database.executemany("INSERT OR IGNORE INTO paused VALUES (?)", names)
            elif control.kind is ControlKind.PLAY:
                for room in rooms:
                    _resume(database, room)
            database.execute("DELETE FROM controls WHERE number = ?", (number,))

        await self._write(write)
        self._untold = [one for one in self._untold if one[0] is not control]

    async def _finish(self, message: Message, state: str, reason: str, attempt: int) -> None:
        update = "UPDATE messages SET state = ?, reason = ?, attempt = ? WHERE id = ?"
        values = (state, reason, attempt, message.id)
        await self._write(lambda database: database.execute(update, values))
        self._claimed.discard(message.id)

    async def _write(self, fn: Callable[[sqlite3.Connection], object]) -> None:
        def write(database: sqlite3.Connection) -> None:
            with database:
                fn(database)

        await self._read(write)

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        return await self._read(lambda database: database.execute(query, values).fetchall())

    async def _read(self, fn: Callable[[sqlite3.Connection], Result]) -> Result:
        return await trio.to_thread.run_sync(fn, self._database, limiter=self._limiter)


@asynccontextmanager
async def open_sqlite_feed(
    path: str | os.PathLike[str],
    *,
    serve: bool = True,
    attempts: int = 3,
    poll_every: float = 1.0,
) -> AsyncGenerator[SqliteFeed, None]:
    """Open a file of messages. It is made where there is none.

    Args:
        path: the file. Beside it there will be others, whose names begin with its name.
        serve: False: to post to it only, while another process serves it or none does.
        attempts: how often a message is handled before its failing is final.
        poll_every: seconds between two looks for what other processes have posted.

    Raises:
        FeedInUse: another process serves this file.
        OSError: there is no such folder, or it cannot be written.
        sqlite3.Error: the file is no such file, or cannot be written.

    **Cancellation:** the file is closed when the body has left.
    """
    where = Path(path)
    with _locked(where) if serve else nullcontext():
        with closing(await trio.to_thread.run_sync(_connect, where)) as database:
            yield SqliteFeed(database, attempts, poll_every)
