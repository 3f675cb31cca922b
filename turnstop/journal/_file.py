"""The journal's file: what it has, and what is done with it, in one go each."""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from .._sqlite import Schema
from ._said import TELL, Told, read_address, read_admitted, tell
from ._session import Hold, Session, hold

__all__ = [
    "MARGIN",
    "SCHEMA",
    "SESSION",
    "Kept",
    "Note",
    "OpenTurn",
    "Unreadable",
    "compact",
    "drop",
    "enter",
    "keep_texts",
    "leave",
    "plain",
    "put_down",
    "take_over",
]

# A turn's number is its session's, moved to the left by 32, and a count. What it says is JSON:
# any text can be said so, also one that is no Unicode.
# `open` follows from the records: it tells which turns are open without reading them all.
SCHEMA: Final = Schema(
    application=b"tnjl",
    version=1,
    statements=(
        """CREATE TABLE IF NOT EXISTS sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            started INTEGER NOT NULL,
            beat REAL NOT NULL,
            ended INTEGER NOT NULL DEFAULT 0
        )""",
        """CREATE TABLE IF NOT EXISTS records (
            number INTEGER PRIMARY KEY,
            turn INTEGER NOT NULL,
            kind TEXT NOT NULL,
            at REAL NOT NULL,
            said TEXT NOT NULL
        )""",
        """CREATE TABLE IF NOT EXISTS open (
            turn INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            backend TEXT NOT NULL,
            said TEXT NOT NULL,
            address TEXT
        )""",
    ),
)


SESSION: Final = (
    "CAST(host AS TEXT), CAST(pid AS INTEGER), CAST(started AS INTEGER), CAST(beat AS REAL)"
)
"""Of a session, whatever a damaged row says."""

_TOGETHER: Final = 50
"""Records that one statement writes: what a statement costs is a sixth of what a record costs."""

MARGIN: Final = 32
"""By so many bits a session's number is moved to the left in those of its turns."""

Note: TypeAlias = tuple[int, str, float, Any]
"""A record to be written: the turn's number, the record's kind, seconds since the epoch, and what
`_said.tell` makes its text of."""


@attrs.frozen
class Kept:
    """What is kept of turns that are settled.

    Attributes:
        seconds: how old a record may be.
        records: how many there may be.
    """

    seconds: float
    records: float


@attrs.frozen
class OpenTurn:
    """A turn that has begun and is not settled, as far as the file knows."""

    turn: int
    backend: str
    room: str
    turn_id: str
    address: str | None


@attrs.frozen
class Unreadable:
    """A turn of which the file says what no journal says: it is left as it is."""

    turn: int
    backend: str


def enter(
    database: sqlite3.Connection, path: Path, session: Session, now: float
) -> tuple[int, Hold | None]:
    """Enter a session, and return its id, and what it holds while it lives."""
    new = "INSERT INTO sessions (host, pid, started, beat) VALUES (?, ?, ?, ?)"
    made = database.execute(new, (session.host, session.pid, session.started, now)).lastrowid
    assert made is not None
    # Held before anybody sees the session: one that has let go of its lock is gone.
    return made, hold(path, made)


def leave(database: sqlite3.Connection, session: int) -> None:
    """What it has left open is for others, from here on."""
    database.execute("UPDATE sessions SET ended = 1 WHERE id = ?", (session,))


def _insert(database: sqlite3.Connection, rows: Sequence[tuple[int, str, float, str]]) -> None:
    values = ", ".join(["(?, ?, ?, ?)"] * len(rows))
    new = f"INSERT INTO records (turn, kind, at, said) VALUES {values}"
    database.execute(new, tuple(itertools.chain.from_iterable(rows)))


def keep_texts(notes: Sequence[Note]) -> list[Note]:
    """The notes that wait for a disk: without what they were made of, which may be large."""
    return [
        (turn, kind, at, Told(tell(kind, said)) if kind == "settled" else said)
        for turn, kind, at, said in notes
    ]


def put_down(database: sqlite3.Connection, notes: Sequence[Note], session: int, now: float) -> None:
    """Write some notes, in their order, and that the session lives."""
    database.execute("UPDATE sessions SET beat = ? WHERE id = ?", (now, session))
    if not notes:
        return
    rows = []
    opened: dict[int, list[Any]] = {}
    settled, moved = [], []
    for turn, kind, at, said in notes:
        # Here, in the thread: it takes time, and is anybody's code.
        try:
            text = TELL[kind](said)
        except Exception:
            text = tell(kind, said)
        rows.append((turn, kind, at, text))
        if kind == "admitted":
            opened[turn] = [turn, session, plain(said[0]), text, None]
        elif kind == "address" and turn in opened:
            opened[turn][-1] = text
        elif kind == "address":
            moved.append((text, turn))
        elif kind == "settled" and opened.pop(turn, None) is None:
            settled.append((turn,))
    for first in range(0, len(rows), _TOGETHER):
        _insert(database, rows[first : first + _TOGETHER])
    # Most turns begin and end between two of these calls, and were never open.
    if opened:
        new = "INSERT OR REPLACE INTO open VALUES (?, ?, ?, ?, ?)"
        database.executemany(new, opened.values())
    if moved:
        database.executemany("UPDATE open SET address = ? WHERE turn = ?", moved)
    if settled:
        database.executemany("DELETE FROM open WHERE turn = ?", settled)


def take_over(
    database: sqlite3.Connection,
    ours: int,
    here: Session,
    taken: Container[int],
    holds: Callable[[int], bool | None],
    wanted: Callable[[OpenTurn], bool],
    silent_for: float,
    now: float,
) -> tuple[list[OpenTurn], list[int], list[Unreadable]]:
    """Make ours what sessions have left open that are gone; of two who ask, one gets each.

    Args:
        taken: what is ours already and is being ended.
        holds: whether a session, by its number, holds its lock.
        wanted: what of it.
        silent_for: seconds without a sign of life, of those that are gone.

    Returns:
        the turns; the sessions of which nothing is left; and of those that are gone, what nobody
        can take up.
    """
    rows = database.execute(f"SELECT id, {SESSION}, ended FROM sessions").fetchall()
    dead = [
        number
        for number, host, pid, started, beat, ended in rows
        if number != ours
        # A clock may have been set back: then a last sign of life is one of the future.
        and abs(now - beat) >= silent_for
        and (ended or Session(host, pid, started).is_dead(here, now - beat, partial(holds, number)))
    ]
    found = [one for number in dead for one in _open_turns(database, number) if wanted(one)]
    mine = "UPDATE open SET session = ? WHERE turn = ?"
    database.executemany(mine, [(ours, one.turn) for one in found])
    # Who took it over was cancelled, or closed, before it was ended.
    found += [
        one
        for one in _open_turns(database, ours)
        if one.turn >> MARGIN != ours and one.turn not in taken and one not in found and wanted(one)
    ]
    return found, _forget(database, dead), _unreadable(database, dead)


def _unreadable(database: sqlite3.Connection, dead: Iterable[int]) -> list[Unreadable]:
    rows = [row for one in dead for row in _open_rows(database, one)]
    return [Unreadable(row[0], row[1]) for row in rows if _to_turn(*row) is None]


def _open_rows(database: sqlite3.Connection, session: int) -> list[tuple[Any, ...]]:
    query = "SELECT turn, backend, said, address FROM open WHERE session = ? ORDER BY turn"
    return database.execute(query, (session,)).fetchall()


def _open_turns(database: sqlite3.Connection, session: int) -> list[OpenTurn]:
    rows = _open_rows(database, session)
    return [one for row in rows if (one := _to_turn(*row)) is not None]


def plain(name: str) -> str:
    """A name as text that any file takes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _to_turn(turn: int, backend: str, said: str, address: str | None) -> OpenTurn | None:
    """The turn of a row; None where it says what no journal says, and is left as it is."""
    room, turn_id = read_admitted(said)
    if room is None or turn_id is None:
        return None
    return OpenTurn(turn, backend, room, turn_id, read_address(address))


def _forget(database: sqlite3.Connection, dead: Iterable[int]) -> list[int]:
    """Of sessions that have nothing open any more nothing is kept; return which they are."""
    busy = {number for (number,) in database.execute("SELECT session FROM open").fetchall()}
    gone = [number for number in dead if number not in busy]
    database.executemany("DELETE FROM sessions WHERE id = ?", [(number,) for number in gone])
    return gone


def compact(database: sqlite3.Connection) -> int:
    """Keep what the open turns have said, and no more; return how many records are gone."""
    ((before,),) = database.execute("SELECT COUNT(*) FROM records").fetchall()
    database.execute(
        "CREATE TEMP TABLE kept AS SELECT * FROM records WHERE turn IN (SELECT turn FROM open)"
    )
    # Without a condition SQLite lets go of all pages at once, and looks into none.
    database.execute("DELETE FROM records")
    database.execute("INSERT INTO records SELECT * FROM kept ORDER BY number")
    ((after,),) = database.execute("SELECT COUNT(*) FROM records").fetchall()
    database.execute("DROP TABLE kept")
    return int(before - after)


def drop(database: sqlite3.Connection, kept: Kept, most: int, now: float) -> None:
    """Drop what need not be kept: the oldest first, and no more than so many records at once."""
    before, last = now - kept.seconds, 0
    if not math.isinf(kept.records):
        ((newest,),) = database.execute("SELECT COALESCE(MAX(number), 0) FROM records").fetchall()
        last = newest - int(min(kept.records, newest))
    oldest = (
        "SELECT number, at FROM records"
        " WHERE turn NOT IN (SELECT turn FROM open) ORDER BY number LIMIT ?"
    )
    # They are in their order: one look tells that there is nothing to drop, as most times.
    for number, at in database.execute(oldest, (1,)).fetchall():
        if at < before or number <= last:
            due = f"SELECT number FROM ({oldest}) WHERE at < ? OR number <= ?"
            gone = f"DELETE FROM records WHERE number IN ({due})"
            database.execute(gone, (most, before, last))
