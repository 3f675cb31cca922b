"""What a journal's file says, read as it is: nothing is made, and nothing is changed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from .._identity import is_same_place
from .._sqlite import read_file
from . import _file
from ._said import read_address, read_admitted
from ._session import Session, holds, this_session

__all__ = ["ListedTurn", "ToldTurn", "list_open", "tell_turns"]


@attrs.frozen
class ListedTurn:
    """A turn that has begun and is not settled.

    Attributes:
        backend: by what name its journal knows it.
        address: where the turn is, as its adapter has it; None where that was not known yet.
        since: seconds since the epoch; None where that is not kept.
        owner: the process that began it, or has taken it over.
        taken_over: whether it has: then it ends the turn.
        silent_for: seconds since that one's last sign of life.
        alive: whether it is there, and has the file open; None: it is elsewhere, and may be.
    """

    room: str
    turn_id: str
    backend: str
    address: str | None
    since: float | None
    owner: Session
    taken_over: bool
    silent_for: float
    alive: bool | None


@attrs.frozen
class ToldTurn:
    """All that is kept of a turn.

    Attributes:
        records: kind, seconds since the epoch, and what was said, in their order.
    """

    room: str
    turn_id: str
    backend: str
    is_open: bool
    records: Sequence[tuple[str, float, Any]]


async def list_open(path: Path) -> list[ListedTurn]:
    """The turns that are open, in the order of their beginning.

    Raises:
        OSError: there is no such file.
        sqlite3.Error: it is no journal, or cannot be read.

    **Cancellation:** changes nothing.
    """
    fn = partial(_list, here=this_session(), path=path, now=time.time())
    return await read_file(path, _file.SCHEMA, fn)


_OPEN: Final = f"""
WITH begun AS (
    SELECT turn, MIN(at) AS since FROM records
    WHERE turn IN (SELECT turn FROM open) GROUP BY turn
)
SELECT turn, said, backend, address, session, {_file.SESSION}, ended, since
FROM open JOIN sessions ON sessions.id = open.session LEFT JOIN begun USING (turn) ORDER BY turn
"""


def _list(database: sqlite3.Connection, here: Session, path: Path, now: float) -> list[ListedTurn]:
    path = path.resolve()
    return [_to_listed(row, here, path, now) for row in database.execute(_OPEN).fetchall()]


def _to_listed(row: tuple[Any, ...], here: Session, path: Path, now: float) -> ListedTurn:
    turn, text, backend, address, number, host, pid, started, beat, ended, since = row
    silent_for = now - beat
    room, turn_id = read_admitted(text)
    owner = Session(host, pid, started)
    held = holds(path, number)
    is_gone = bool(ended) or owner.is_dead(here, silent_for, lambda: held)
    return ListedTurn(
        room="?" if room is None else room,
        turn_id="?" if turn_id is None else turn_id,
        backend=backend,
        address=read_address(address),
        since=since,
        owner=owner,
        taken_over=turn >> _file.MARGIN != number,
        silent_for=silent_for,
        alive=_is_alive(owner, here, is_gone=is_gone, held=held),
    )


def _is_alive(owner: Session, here: Session, *, is_gone: bool, held: bool | None) -> bool | None:
    if is_gone:
        return False
    return True if held or (is_same_place(owner.host, here.host) and here.started) else None


async def tell_turns(path: Path, turn_id: str) -> list[ToldTurn]:
    """What is kept of the turns with this id; as `list_open` otherwise.

    **Cancellation:** changes nothing.
    """
    return await read_file(path, _file.SCHEMA, partial(_tell, turn_id=turn_id))


def _tell(database: sqlite3.Connection, turn_id: str) -> list[ToldTurn]:
    # As `_said` writes it: most records need not be taken apart.
    ends = f'"turn_id": {json.dumps(turn_id)}}}'
    found = database.execute(
        "SELECT turn, said FROM open WHERE substr(said, -length(?1)) = ?1 UNION "
        "SELECT turn, said FROM records WHERE kind = 'admitted' AND substr(said, -length(?1)) = ?1"
        " ORDER BY turn",
        (ends,),
    ).fetchall()
    opened = {turn for (turn,) in database.execute("SELECT turn FROM open").fetchall()}
    query = "SELECT turn, kind, at, said FROM records WHERE turn IN ({}) ORDER BY number"
    records: dict[int, list[tuple[str, float, Any]]] = {turn: [] for turn, _ in found}
    for start in range(0, len(found), 500):
        some = [turn for turn, _ in found[start : start + 500]]
        rows = database.execute(query.format(", ".join("?" * len(some))), some).fetchall()
        for turn, kind, at, said in rows:
            records[turn].append((kind, at, json.loads(said)))
    return [_to_told(json.loads(said), turn in opened, records[turn]) for turn, said in found]


def _to_told(
    said: dict[str, str], is_open: bool, records: Sequence[tuple[str, float, Any]]
) -> ToldTurn:
    return ToldTurn(said["room"], said["turn_id"], said["backend"], is_open, records)
