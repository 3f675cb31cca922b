"""The journal's file: what it has, and what is done with it, in one go each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from .._sqlite import Schema
from ._session import Session

__all__ = ["SCHEMA", "Note", "OpenTurn", "begin", "end", "put_down", "take_over"]

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


@attrs.frozen
class Note:
    """A record to be written.

    Attributes:
        kind: `admitted`, `address`, `asked` or `settled`.
        at: when it was noted: seconds since the epoch.
        said: what it says; made JSON where it is written.
    """

    turn: int
    kind: str
    at: float
    said: Any


@attrs.frozen
class OpenTurn:
    """A turn that has begun and is not settled, as far as the file knows."""

    turn: int
    room: str
    turn_id: str
    address: str | None


def begin(database: sqlite3.Connection, session: Session, now: float) -> int:
    """Enter a session, and return its id."""
    new = "INSERT INTO sessions (host, pid, started, beat) VALUES (?, ?, ?, ?)"
    made = database.execute(new, (session.host, session.pid, session.started, now)).lastrowid
    assert made is not None
    return made


def end(database: sqlite3.Connection, session: int) -> None:
    """What it has left open is for others, from here on."""
    database.execute("UPDATE sessions SET ended = 1 WHERE id = ?", (session,))


def put_down(database: sqlite3.Connection, notes: Sequence[Note], session: int, now: float) -> None:
    """Write some notes, in their order, and that the session lives."""
    database.execute("UPDATE sessions SET beat = ? WHERE id = ?", (now, session))
    if not notes:
        return
    said = [json.dumps(note.said) for note in notes]
    database.executemany(
        "INSERT INTO records (turn, kind, at, said) VALUES (?, ?, ?, ?)",
        [(note.turn, note.kind, note.at, text) for note, text in zip(notes, said, strict=True)],
    )
    opened: dict[int, list[Any]] = {}
    settled, moved = [], []
    for note, text in zip(notes, said, strict=True):
        if note.kind == "admitted":
            opened[note.turn] = [note.turn, session, note.said["backend"], text, None]
        elif note.kind == "address" and note.turn in opened:
            opened[note.turn][-1] = text
        elif note.kind == "address":
            moved.append((text, note.turn))
        elif note.kind == "settled" and opened.pop(note.turn, None) is None:
            settled.append((note.turn,))
    # Most turns begin and end between two of these calls, and were never open.
    if opened:
        new = "INSERT OR REPLACE INTO open VALUES (?, ?, ?, ?, ?)"
        database.executemany(new, opened.values())
    if moved:
        database.executemany("UPDATE open SET address = ? WHERE turn = ?", moved)
    if settled:
        database.executemany("DELETE FROM open WHERE turn = ?", settled)


def take_over(
    database: sqlite3.Connection, ours: int, here: Session, backend: str, now: float
) -> list[OpenTurn]:
    """Make ours what sessions have left open that are gone; of two who ask, one gets each."""
    rows = database.execute("SELECT id, host, pid, started, beat, ended FROM sessions").fetchall()
    dead = [
        number
        for number, host, pid, started, beat, ended in rows
        if number != ours and (ended or Session(host, pid, started).is_dead(here, now - beat))
    ]
    found = []
    for number in dead:
        found += _open_turns(database, number, backend)
        mine = "UPDATE open SET session = ? WHERE session = ? AND backend = ?"
        database.execute(mine, (ours, number, backend))
    _forget(database, dead)
    return found


def _open_turns(database: sqlite3.Connection, session: int, backend: str) -> list[OpenTurn]:
    query = "SELECT turn, said, address FROM open WHERE session = ? AND backend = ? ORDER BY turn"
    return [
        _to_turn(turn, json.loads(said), address and json.loads(address))
        for turn, said, address in database.execute(query, (session, backend)).fetchall()
    ]


def _to_turn(turn: int, said: dict[str, str], address: str | None) -> OpenTurn:
    return OpenTurn(turn, said["room"], said["turn_id"], address)


def _forget(database: sqlite3.Connection, dead: Iterable[int]) -> None:
    """Of sessions that have nothing open any more nothing is kept."""
    gone = "DELETE FROM sessions WHERE id = ? AND id NOT IN (SELECT session FROM open)"
    database.executemany(gone, [(number,) for number in dead])
