"""Messages in a file: they survive the program, and are handled once more after a crash.

One process serves a file at a time; a lock that the system takes away from a process which has died
sees to that. So a message that was being handled when a process died is not being handled by
anybody, and the next one takes it up. Others may post to the file meanwhile.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import trio

from .._inbox import Claim, Control, ControlKind, Message, Standing
from .._sqlite import Database, open_database
from ._file import SCHEMA, FeedInUse, locked
from ._keeping import REMEMBERED, IdTaken, foresee, to_plain
from ._rows import can_be_kept, look, to_message, to_text, unheard

__all__ = ["FeedInUse", "SqliteFeed", "open_sqlite_feed"]


@final
class SqliteFeed:
    """A `turnstop.feeds.Feed` in a file. Made by `open_sqlite_feed`.

    What is posted is JSON: a str, a number, a list, a dict. A message that was posted has been
    written to the disk. What it said is taken out of the file when it has finished, and out of the
    log beside it when nobody has posted for `poll_every` seconds, or the file is closed; the ids of
    the 10,000 that have finished last are kept, over all rooms.
    """

    def __init__(self, file: Database, attempts: int, poll_every: float) -> None:
        self._file = file
        self._attempts = attempts
        self._poll_every = poll_every
        self._claimed: set[tuple[str, str]] = set()
        self._announced = 0
        self._heard = 0
        self._unheard: list[Message | Control] = []
        self._untold: list[tuple[Control, int]] = []
        self._posted = trio.Event()
        self._is_in_log = False

    # What people do.

    async def post(self, room: str, content: Any, *, id: str | None = None) -> Message | None:
        """Post a message, and return when it is on the disk.

        Args:
            content: JSON.
            id: of two with one id in one room, the second is not posted. None: a new one.

        Returns:
            The message, which may have been there before; None where it has finished already.

        Raises:
            IdTaken: one with this id is there, and has another content.
            TypeError: the content is no JSON.
            ValueError: the room or the id is no text that a file can have.
            sqlite3.Error: it could not be written, and is not posted.

        **Cancellation:** it is posted, or not.
        """
        name = uuid.uuid4().hex if id is None else id
        text = json.dumps(content)

        def insert(database: sqlite3.Connection) -> Message | None:
            values = (room, name)
            new = "INSERT OR IGNORE INTO messages (room, id, content) VALUES (?, ?, ?)"
            if database.execute(new, (*values, text)).rowcount:
                return Message(room, name, content)
            old = "SELECT content, attempt, ended FROM messages WHERE room = ? AND id = ?"
            ((kept, attempt, ended),) = database.execute(old, values).fetchall()
            if ended is not None:
                return None
            if json.loads(kept) != json.loads(text):
                raise IdTaken(room, name)
            return to_message(room, name, kept, attempt)

        message = await self._file.write(insert)
        self._posted.set()
        return message

    async def control(self, control: Control) -> None:
        """Post a control, and return when it is on the disk.

        A PLAY resumes its rooms at once, should nobody receive it.

        Raises:
            sqlite3.Error: it could not be written, and is not posted.

        **Cancellation:** it is posted, or not.
        """
        text = to_text(control)

        def insert(database: sqlite3.Connection) -> None:
            database.execute(
                "INSERT INTO controls (after, control)"
                " SELECT COALESCE(MAX(number), 0), ? FROM messages",
                (text,),
            )
            if control.kind is ControlKind.PLAY:
                resume = "DELETE FROM paused WHERE ? IS NULL OR room = ?"
                database.execute(resume, (control.room, control.room))

        await self._file.write(insert)
        self._posted.set()

    # What `serve_rooms` calls.

    async def receive(self) -> Message | Control:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** loses nothing.
        """
        await trio.lowlevel.checkpoint()
        while not self._unheard:
            self._posted = trio.Event()
            await self._look()
            if not self._unheard:
                with trio.move_on_after(self._poll_every) as scope:
                    await self._posted.wait()
                if scope.cancelled_caught and self._is_in_log:
                    # Nobody has posted for a while: what is finished leaves the log too.
                    self._is_in_log = not await self._file.write_back()
        return self._unheard.pop(0)

    async def _look(self) -> None:
        fn = partial(look, announced=self._announced, heard=self._heard)
        # All of it or nothing: where it raises, the same is looked for once more.
        for place, number, item in await self._file.read(fn):
            if number:
                self._heard = number
            else:
                self._announced = place
            if isinstance(item, Control):
                self._untold.append((item, number))
            if item is not None:
                self._unheard.append(item)

    async def rooms(self) -> Mapping[str, Standing]:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** changes nothing.
        """
        self._claimed.clear()
        found = await self._fetch(
            "SELECT room, MAX(paused), MAX(waiting) FROM ("
            "SELECT room, 0 AS paused, 1 AS waiting FROM messages WHERE ended IS NULL"
            " UNION SELECT room, 1, 0 FROM paused) GROUP BY room"
        )
        rooms = {room: Standing(bool(paused), bool(waiting)) for room, paused, waiting in found}
        return foresee(rooms, await self._file.read(partial(unheard, heard=self._heard)))

    async def next(self, room: str) -> Message | Literal[Claim.PAUSED] | None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** changes nothing.
        """
        if not can_be_kept(room):
            await trio.lowlevel.checkpoint()
            return None
        found = await self._fetch(
            "SELECT room IN (SELECT room FROM paused), room, id, content, attempt FROM messages"
            " WHERE ended IS NULL AND room = ? ORDER BY number LIMIT 1",
            room,
        )
        if not found:
            return None
        is_paused, *row = found[0]
        return Claim.PAUSED if is_paused else to_message(*row)

    async def claim(self, message: Message) -> Claim:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** nothing is claimed.
        """
        key = (message.room, message.id)
        is_free = key not in self._claimed
        # Before the file is asked: whoever would refuse it meanwhile finds it claimed.
        self._claimed.add(key)
        claim = None
        try:
            claim = await self._ask(key)
        finally:
            if is_free and claim is not Claim.MINE:
                self._claimed.discard(key)
        return Claim.BUSY if claim is Claim.MINE and not is_free else claim

    async def _ask(self, key: tuple[str, str]) -> Claim:
        query = (
            "SELECT ended IS NULL, room IN (SELECT room FROM paused) FROM messages"
            " WHERE room = ? AND id = ?"
        )
        ((is_waiting, is_paused),) = await self._fetch(query, *key) or [(False, False)]
        if not is_waiting:
            return Claim.FINISHED
        return Claim.PAUSED if is_paused else Claim.MINE

    async def release(self, message: Message) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is released.
        """
        self._claimed.discard((message.room, message.id))
        await trio.lowlevel.checkpoint()

    async def acknowledge(self, message: Message) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is acknowledged, or not.
        """
        await self._finish(message, "finished")

    async def fail(self, message: Message, reason: str) -> bool:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it has failed, or not.
        """
        attempt = message.attempt + 1
        if attempt >= self._attempts:
            await self._finish(message, "failed", reason, attempt)
            return False
        update = (
            "UPDATE messages SET attempt = ?, reason = ?"
            " WHERE room = ? AND id = ? AND ended IS NULL"
        )
        values = (attempt, to_plain(reason), message.room, message.id)
        found = await self._file.write(lambda database: database.execute(update, values).rowcount)
        self._claimed.discard((message.room, message.id))
        return found > 0

    async def refuse(self, message: Message, reason: str) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is refused, or not.
        """
        key = (message.room, message.id)
        if key in self._claimed:
            await trio.lowlevel.checkpoint()
            return
        # Nobody may claim it meanwhile; but whoever tries once more finds it free.
        self._claimed.add(key)
        try:
            await self._finish(message, "failed", reason)
        finally:
            self._claimed.discard(key)

    async def applied(self, control: Control, rooms: Sequence[str]) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is known as applied, or not.
        """
        number = next((number for found, number in self._untold if found is control), None)
        names = [(room,) for room in rooms if can_be_kept(room)]

        def write(database: sqlite3.Connection) -> None:
            if control.kind is ControlKind.STOP:
                database.executemany("INSERT OR IGNORE INTO paused VALUES (?)", names)
            elif control.kind is ControlKind.PLAY:
                database.executemany("DELETE FROM paused WHERE room = ?", names)
            database.execute("DELETE FROM controls WHERE number = ?", (number,))

        await self._file.write(write)
        self._untold = [one for one in self._untold if one[0] is not control]

    async def _finish(
        self, message: Message, state: str, reason: str = "", attempt: int | None = None
    ) -> None:
        key = (message.room, message.id)
        attempts = message.attempt if attempt is None else attempt

        def write(database: sqlite3.Connection) -> None:
            latest = "SELECT COALESCE(MAX(ended), 0) + 1 FROM messages"
            ((number,),) = database.execute(latest).fetchall()
            database.execute(
                "UPDATE messages SET ended = ?, state = ?, reason = ?, attempt = ?, content = ''"
                " WHERE room = ? AND id = ? AND ended IS NULL",
                (number, state, to_plain(reason), attempts, *key),
            )
            database.execute("DELETE FROM messages WHERE ended <= ?", (number - REMEMBERED,))

        await self._file.write(write)
        self._is_in_log = True
        self._claimed.discard(key)

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        return await self._file.read(lambda database: database.execute(query, values).fetchall())


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
    where = _resolve(path)
    with locked(where) if serve else nullcontext():
        async with open_database(where, SCHEMA) as file:
            yield SqliteFeed(file, attempts, poll_every)


def _resolve(path: str | os.PathLike[str]) -> Path:
    # By whatever name it is opened, it is one file, with one lock.
    return Path(path).resolve()
