"""Turns that sessions have left which are gone: whose they are from now on."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, final

import attrs
import trio

from .._sqlite import Database
from .._unwrap import open_private_nursery
from . import _file
from ._file import OpenTurn, Unreadable
from ._session import LAPSES_AFTER, Session, forget_hold, holds

__all__ = ["Taking", "warn"]

logger = logging.getLogger("turnstop.journal")

_LOOKS_WITHIN: Final = 11.0
"""Seconds that a first look may take, on a disk that does not answer: one that another program
keeps has been given up before."""


@asynccontextmanager
async def _in_time() -> AsyncGenerator[None, None]:
    """Raise `TooSlowError` where the disk does not answer within `_LOOKS_WITHIN` seconds.

    By the clock of a thread: Trio's jumps in tests, while a thread works.
    """
    answered = threading.Event()

    async def give_up() -> None:
        wait = partial(answered.wait, _LOOKS_WITHIN)
        alone = trio.CapacityLimiter(1)
        if not await trio.to_thread.run_sync(wait, abandon_on_cancel=True, limiter=alone):
            raise trio.TooSlowError

    async with open_private_nursery() as nursery:
        nursery.start_soon(give_up)
        try:
            yield
        finally:
            answered.set()


def warn(text: str, *args: object) -> None:
    """Say it in the log."""
    # A handler of the log is anybody's code: what it raises ends neither a stop nor the writing.
    with suppress(Exception):
        logger.warning(text, *args)


@final
@attrs.define(eq=False)
class Taking:
    """What one session takes over.

    Attributes:
        turns: those that are ours, and are being ended.
    """

    _path: Path
    _database: Database
    _here: Session
    _session: int
    turns: set[int] = attrs.field(factory=set, init=False)
    _alone: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _unseen: set[str] = attrs.field(factory=set, init=False)
    _told: set[int] = attrs.field(factory=set, init=False)

    async def look(self, backend: str, *, again: bool) -> Sequence[OpenTurn]:
        """What was left of a backend; nothing where that cannot be seen now.

        **Cancellation:** as `take`.
        """
        name = _file.plain(backend)
        # Who could not look at first has nothing yet that one in its place could wait for.
        is_first = not again or name in self._unseen
        try:
            silent_for = 0.0 if is_first else LAPSES_AFTER
            async with _in_time():
                found, unreadable = await self.take(lambda one: one.backend == name, silent_for)
        except Exception as error:
            # Of what breaks later the writing warns, once.
            if not again:
                self._unseen.add(name)
                why = "the disk does not answer" if isinstance(error, trio.TooSlowError) else error
                warn(
                    "%s: it cannot be seen which turns were left: %r. Rooms of %s are open all the "
                    "same, and may let turns in beside these; it is looked again until they are "
                    "found",
                    self._path,
                    why,
                    name,
                )
            return ()
        self._unseen.discard(name)
        self._tell(name, unreadable)
        return found

    async def take(
        self, wanted: Callable[[OpenTurn], bool], silent_for: float
    ) -> tuple[Sequence[OpenTurn], Sequence[Unreadable]]:
        """Make ours what nobody else will end; see `Journal.take_over_where`."""
        # One at a time: what one has taken is not offered to the next.
        async with self._alone:
            ask = partial(
                _file.take_over,
                ours=self._session,
                here=self._here,
                taken=frozenset(self.turns),
                holds=partial(holds, self._path),
                wanted=wanted,
                silent_for=silent_for,
                now=time.time(),
            )

            def fn(database: sqlite3.Connection) -> tuple[list[OpenTurn], list[Unreadable]]:
                found, gone, unreadable = ask(database)
                for number in gone:
                    forget_hold(self._path, number)
                return found, unreadable

            found, unreadable = await self._database.write(fn, abandon=True)
            self.turns.update(one.turn for one in found)
        return found, unreadable

    def _tell(self, name: str, unreadable: Sequence[Unreadable]) -> None:
        for one in unreadable:
            if one.backend == name and one.turn not in self._told:
                self._told.add(one.turn)
                warn(
                    "%s: a turn of %s (row %d of `open`) cannot be read, so that nobody takes it "
                    "up: see whether it is at work, and end it yourself",
                    self._path,
                    name,
                    one.turn,
                )
