"""What processes that are killed write down, and what it tells: for `kill_points.py`."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from turnstop import Message
from turnstop.feeds.sqlite import SqliteFeed

UNFINISHED = "SELECT 1 FROM messages WHERE ended IS NULL LIMIT 1"


def ask(path: Path, query: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=60)) as database:
        return database.execute(query, values).fetchall()


@attrs.define
class Book:
    """Lines that survive the process: what it did, written when it was done."""

    path: Path
    _file: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._file = os.open(self.path.with_suffix(".book"), os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def write(self, what: str, name: object = "", pid: int | None = None) -> None:
        os.write(self._file, f"{what} {name or '-'} {pid or os.getpid()}\n".encode())

    def begin(self, name: str) -> None:
        # The file knows better than the lines what has finished.
        if ask(self.path, "SELECT 1 FROM messages WHERE id = ? AND ended IS NOT NULL", name):
            self.write("again", name)
        self.write("begin", name)


async def note_acknowledged(
    book: Book, acknowledge: Callable[..., Any], *about: SqliteFeed | Message
) -> None:
    await acknowledge(*about)
    assert isinstance(about[-1], Message)
    book.write("acknowledged", about[-1].id)


@attrs.define
class Runs:
    """What the lines tell, in their order."""

    rooms: dict[str, str]
    acknowledged: Counter[str] = attrs.field(factory=Counter)
    begun: list[str] = attrs.field(factory=list)
    again: set[str] = attrs.field(factory=set)
    at_once: set[str] = attrs.field(factory=set)
    served_at_once: set[str] = attrs.field(factory=set)
    _live: defaultdict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    _dying: set[str] = attrs.field(factory=set)
    _serving: set[str] = attrs.field(factory=set)

    def read(self, what: str, name: str, pid: str) -> None:
        if what == "killing":
            self._dying.add(pid)
        elif what == "again" or (what == "begin" and name in self.acknowledged):
            self.again.add(name)
        if what == "begin":
            self._begin(name, pid)
        elif what == "end":
            self._live[pid].discard(name)
        elif what == "acknowledged":
            self.acknowledged[name] += 1

    def _begin(self, name: str, pid: str) -> None:
        self.begun.append(name)
        self._serving.add(pid)
        others = self._serving - self._dying - {pid}
        self.served_at_once |= others
        live = [self._live[pid], *(self._live[other] for other in others)]
        if any(self.rooms[one] == self.rooms[name] for names in live for one in names):
            self.at_once.add(name)
        self._live[pid].add(name)


def judge(path: Path) -> dict[str, Any]:
    """What the lines and the file say."""
    lines = [line.split() for line in path.with_suffix(".book").read_text().splitlines()]
    rows = ask(path, "SELECT id, room, state FROM messages ORDER BY number")
    states, rooms = {row[0]: row[2] for row in rows}, {row[0]: row[1] for row in rows}
    runs = Runs(rooms)
    for line in lines:
        runs.read(*line)
    first = list(dict.fromkeys(runs.begun))
    order = [[name for name in first if rooms[name] == room] for room in {*rooms.values()}]
    posted = {name for what, name, _ in lines if what == "posted"}
    places = {name: place for place, name in enumerate(states)}
    often = Counter(Counter(runs.begun).values())
    # What was interrupted before its handler had begun.
    often[0] = len(states.keys() - {*runs.begun})
    return {
        "messages": len(states),
        "runs": len(runs.begun),
        "run_so_often": {str(count): often[count] for count in sorted(often)},
        "lost": sorted(name for name in posted if states.get(name) != "finished"),
        "acknowledged_twice": [name for name, count in runs.acknowledged.items() if count > 1],
        "begun_after_acknowledged": sorted(runs.again),
        "twice_at_once": sorted(runs.at_once),
        "served_by_two": sorted(runs.served_at_once),
        "out_of_order": sum(names != sorted(names, key=places.__getitem__) for names in order),
    }
