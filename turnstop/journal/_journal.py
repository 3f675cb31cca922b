"""Notes of turns, written by a task and a thread that nobody waits for."""

from __future__ import annotations

import itertools
import math
import os
import sqlite3
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from .._house import Orphan
from .._records import OnlyMadeByUs, Settlement, StopRequest
from .._service import open_service, see_through
from .._sqlite import Database, open_database
from . import _file
from ._entering import check_name, enter, leave, resolve
from ._file import MARGIN, Kept, Note, OpenTurn
from ._session import this_session
from ._taking import Taking, warn

__all__ = ["Journal", "JournalStatistics", "open_journal"]

_MOST: Final = 10_000
"""Notes that are kept while they cannot be written."""
_BATCH: Final = 5_000
_GATHERS: Final = 0.002
"""Seconds that pass before notes are written which nobody waits for: a stop is told first."""
_BEATS: Final = 5.0
_AGAIN_AFTER: Final = 1.0
_SLOW: Final = 0.5
_HANGS_AFTER: Final = 11.0
"""Seconds without an answer of the disk; a file that another program keeps is given up before."""
_CLOSES_WITHIN: Final = 2.0
_WEEK: Final = 7 * 86400.0
_RECORDS: Final = 400_000
_DROPS: Final = 10_000
"""Records that go in one step, and twice as many as have been written since the last one."""


@attrs.frozen
class JournalStatistics:
    """A snapshot of a journal.

    Attributes:
        written: notes that are on the disk, since it was opened.
        waiting: notes that are not, yet.
        lost: notes that will never be: too many waited.
        failing: what has become of the last attempt to write, or that the disk has not answered it
            for some ten seconds; None where it went well.
    """

    written: int
    waiting: int
    lost: int
    failing: str | None


@final
@attrs.define(eq=False, slots=True)
class _Entry:
    journal: Journal
    turn: int
    address: str | None = None

    def note_address(self, address: str) -> None:
        if address != self.address:
            self.address = address
            self.journal._note(self.turn, "address", address)

    def note_asked(self, request: StopRequest) -> None:
        self.journal._note(self.turn, "asked", request)

    def note_settled(self, settlement: Settlement) -> None:
        self.journal._note(self.turn, "settled", settlement)

    def note_left(self) -> None:
        self.journal._taking.turns.discard(self.turn)

    async def saved(self) -> None:
        await self.journal._saved()


@final
@attrs.define(eq=False, repr=False)
class Journal(metaclass=OnlyMadeByUs):
    """For `turnstop.open_rooms`, of as many backends as there are. Made by `open_journal`."""

    _path: Path
    _database: Database
    _session: int
    _kept: Kept
    _taking: Taking
    _dropped_at: float = attrs.field(default=-math.inf, init=False)
    _dropped_to: int = attrs.field(default=0, init=False)
    _count: itertools.count[int] = attrs.field(factory=itertools.count, init=False)
    _notes: deque[Note] = attrs.field(factory=deque, init=False)
    _noted: int = attrs.field(default=0, init=False)
    _done: int = attrs.field(default=0, init=False)
    _lost: int = attrs.field(default=0, init=False)
    _failing: str | None = attrs.field(default=None, init=False)
    _writing_since: float | None = attrs.field(default=None, init=False)
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _urgent: trio.Event = attrs.field(factory=trio.Event, init=False)
    _turned: trio.Event = attrs.field(factory=trio.Event, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<Journal {self._path}: {self.statistics()}>"

    def statistics(self) -> JournalStatistics:
        """A snapshot of this journal."""
        self._see_whether_it_hangs()
        return JournalStatistics(
            self._done - self._lost, self._noted - self._done, self._lost, self._failing
        )

    async def compact(self) -> int:
        """Keep only what the open turns have said; return how many records are gone.

        Raises:
            sqlite3.Error: it could not be done, and nothing is gone.

        **Cancellation:** it is done, or not; or later, by a thread that nobody waits for.
        """
        gone = await self._database.write(_file.compact, abandon=True)
        # Gives the room back to the disk; where somebody reads meanwhile, the next one does.
        with suppress(sqlite3.OperationalError):
            await self._database.maintain("VACUUM", abandon=True)
        await self._database.write_back(abandon=True)
        return gone

    # What the kernel calls.

    def admit(self, backend: str, room: str, turn_id: str) -> _Entry:
        """See `turnstop.open_rooms`: a turn is about to begin."""
        entry = _Entry(self, self._session << MARGIN | next(self._count))
        self._note(entry.turn, "admitted", (backend, room, turn_id))
        return entry

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        """See `turnstop.open_rooms`: the turns that nobody else will end.

        Args:
            again: only of processes that have been gone for a while: one that is started anew
                takes up its own.

        Raises:
            RuntimeError: the journal was closed.

        **Cancellation:** they are taken over, or not; those which are will be found by whoever
        looks next, here or in another process.
        """
        if self._closed and again:
            # What is noted is told to be lost; the rooms go on.
            return ()
        if self._closed:
            raise RuntimeError(f"{self!r} was closed: open it around backends and rooms")
        found = await self._taking.look(backend, again=again)
        return list(map(self._to_orphan, found))

    async def take_over_where(
        self, wanted: Callable[[OpenTurn], bool], silent_for: float = 0.0
    ) -> Sequence[Orphan]:
        """The turns of any backend that nobody else will end.

        Args:
            wanted: which of them; called in a thread.
            silent_for: seconds, for which their processes have given no sign of life.

        Raises:
            sqlite3.Error: it cannot be seen, and none is taken over.

        **Cancellation:** as `take_over`.
        """
        found, _ = await self._taking.take(wanted, silent_for)
        return list(map(self._to_orphan, found))

    def _to_orphan(self, one: OpenTurn) -> Orphan:
        return Orphan(one.room, one.turn_id, one.address, _Entry(self, one.turn, one.address))

    def _note(self, turn: int, kind: str, said: object) -> None:
        if self._closed and self._failing is None:
            self._failing = "it was closed: open it around backends and rooms"
            warn("%s: %s", self._path, self._failing)
        self._notes.append((turn, kind, time.time(), said))
        self._noted += 1
        self._see_whether_it_hangs()
        if self._noted - self._done > _MOST:
            self._notes.popleft()
            self._done += 1
            self._lost += 1
        # Of a stop the end is noted soon: until then nothing is begun that could delay it.
        if kind != "asked" and not self._wanted.is_set():
            self._wanted.set()

    async def _saved(self) -> None:
        until = self._noted
        self._urgent.set()
        self._wanted.set()
        while self._done < until and not self._is_stuck():
            await self._turned.wait()

    def _is_stuck(self) -> bool:
        return self._failing is not None or self._has_written_for(_SLOW)

    def _has_written_for(self, seconds: float) -> bool:
        # Not by Trio's clock, which jumps in tests while a thread works.
        since = self._writing_since
        return since is not None and time.monotonic() - since > seconds

    def _see_whether_it_hangs(self) -> None:
        # Whoever writes is in there, and would not tell.
        if self._failing is None and self._has_written_for(_HANGS_AFTER):
            self._break("the disk does not answer")

    # The task.

    @enable_ki_protection
    async def run(self) -> None:
        """Write what is noted.

        **Cancellation:** what is not written yet is lost.
        """
        while True:
            with trio.move_on_after(_BEATS):
                await self._wanted.wait()
            self._wanted = trio.Event()
            with trio.move_on_after(_AGAIN_AFTER if self._failing else _GATHERS):
                await self._urgent.wait()
            self._urgent = trio.Event()
            await self._write()
            await self._drop()
            if self._notes:
                self._wanted.set()

    def _break(self, why: str) -> None:
        if self._failing is None:
            text = "%s cannot be written, and turns go on without: %s. Free the disk, or look at it"
            warn(text, self._path, why)
        self._failing = why

    def _wake(self) -> None:
        turned, self._turned = self._turned, trio.Event()
        turned.set()

    async def _write(self) -> None:
        most = _BATCH if self._failing is None else _MOST
        batch = [self._notes.popleft() for _ in range(min(len(self._notes), most))]
        put = partial(_file.put_down, notes=batch, session=self._session, now=time.time())

        def fn(database: sqlite3.Connection) -> None:
            # Else it would go into a file that nobody finds.
            self._database.check_place()
            put(database)

        self._writing_since = time.monotonic()
        try:
            await self._database.write(fn, abandon=True)
        except (sqlite3.Error, OSError, RuntimeError, MemoryError) as error:
            # A RuntimeError: there is no thread to be had.
            await self._fail(batch, error)
        except Exception as error:
            # What somebody handed in cannot be told; tried again it would hold up all the rest.
            warn("%d notes cannot be told, and are lost: %r", len(batch), error)
            self._done += len(batch)
            self._lost += len(batch)
        else:
            self._done += len(batch)
            if self._failing is not None:
                warn("%s is written again; lost: %d notes", self._path, self._lost)
            self._failing = None
        finally:
            self._writing_since = None
            self._wake()

    async def _drop(self) -> None:
        if self._failing is not None or trio.current_time() < self._dropped_at + _BEATS:
            return
        most = _DROPS + 2 * (self._done - self._dropped_to)
        self._dropped_at, self._dropped_to = trio.current_time(), self._done
        fn = partial(_file.drop, kept=self._kept, most=most, now=time.time())
        # Once, and at once: what is noted meanwhile waits. Whatever fails it fails what is written
        # next, and is told then.
        with suppress(Exception):
            await self._database.write(fn, abandon=True, patience=0.0)

    async def _fail(self, batch: Sequence[Note], error: Exception) -> None:
        self._break(f"{type(error).__name__}: {error}")
        # Where there is no thread they are kept as they are.
        with suppress(Exception):
            # In a thread, which waits for nobody else's: it is anybody's code.
            batch = await trio.to_thread.run_sync(
                _file.keep_texts, batch, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        self._notes.extendleft(reversed(batch))

    async def _finish(self) -> None:
        until, failed = self._noted, 0
        # The first to fail may have begun before.
        while self._done < until and failed < 2:
            self._urgent.set()
            self._wanted.set()
            await self._turned.wait()
            failed += self._failing is not None


@asynccontextmanager
@enable_ki_protection
async def open_journal(
    path: str | os.PathLike[str], *, keep_for: float = _WEEK, keep_records: float = _RECORDS
) -> AsyncGenerator[Journal, None]:
    """Open a journal. Its file is made where there is none; open it around backends and rooms.

    What an open turn has said is always kept. Of settled ones the journal drops the oldest records
    while it is open, so that the file stops growing; of several processes, the one that keeps
    least decides.

    Args:
        path: the file. Beside it there will be others, whose names begin with its name. Several
            processes may have it open, on one machine.
        keep_for: seconds after which a record of a settled turn is dropped: a week. inf: never.
        keep_records: how many are kept at most; most turns have four. inf: any number.

    Raises:
        ValueError: one of the bounds is negative, or no number; or no file can have such a name.
        OSError: there is no such folder, or it cannot be written.
        sqlite3.Error: the file is another program's, of a newer turnstop, damaged, locked, or
            cannot be written. Nothing of it was changed.

    **Cancellation:** what was noted is written when the body has left, within two seconds. While
    the file is opened: leaves it within four, whatever the disk does.
    """
    if not (keep_for >= 0 and keep_records >= 0):
        raise ValueError(f"0 or more is kept: got keep_for={keep_for}, keep_records={keep_records}")
    alone = trio.CapacityLimiter(1)
    check_name(path)
    where = await trio.to_thread.run_sync(resolve, path, abandon_on_cancel=True, limiter=alone)
    here, kept = this_session(), Kept(keep_for, keep_records)
    async with open_database(where, _file.SCHEMA) as database:
        session, held = await enter(database, where, here)
        taking = Taking(where, database, here, session)
        journal: Journal = Journal._create(where, database, session, kept, taking)
        try:
            async with open_service() as service:
                service.start_soon(journal.run, name="turnstop journal")
                try:
                    yield journal
                finally:
                    # Ctrl-C may be on its way: the ends that it has caused are written first.
                    await see_through(_CLOSES_WITHIN, journal._finish)
        finally:
            journal._closed = True
            try:
                with suppress(Exception):
                    await see_through(_CLOSES_WITHIN, partial(leave, database, session, held))
            finally:
                if held is not None:
                    # Where the file could not say that it has ended.
                    held.let_go()
