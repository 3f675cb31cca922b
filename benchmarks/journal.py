"""What a journal costs: a turn, a stop, a file of a million records.

    python benchmarks/journal.py            # a minute or two
    python benchmarks/journal.py --small    # a smoke: no figures to quote

`turn`: a turn's four records, written by the journal, over the same rows inserted by sqlite3 alone,
with the same settings and in batches of the same size. `stop`: from before `stop()` is called to
the cancel's leaving, of turns in memory, alternately with a journal and without. `file`: opening,
and compacting to the open turns, over reading the file with sqlite3. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio
import trio.testing

from turnstop import Rooms, open_rooms
from turnstop.abc import Emit, End, How, RemoteTurn, Request
from turnstop.events import Text
from turnstop.journal import open_journal
from turnstop.journal._file import SCHEMA

TURNS, ROUNDS, STOPS, RECORDS = 20_000, 5, 1000, 1_000_000
SMALL = (200, 2, 20, 4000)
OPEN = 10
ADDRESS = "http://127.0.0.1:4096/session/ses_0123456789"


@attrs.define(eq=False)
class Turn:
    session: object = None
    address: str = ADDRESS
    sent: float = 0.0
    _over: trio.Event = attrs.field(factory=trio.Event)

    async def follow(self, emit: Emit) -> End:
        emit(Text("at work"))
        await self._over.wait()
        return End(How.CANCELLED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        self.sent = time.perf_counter()
        sent()
        self._over.set()


@attrs.define(eq=False)
class Agent:
    """A backend in memory."""

    name: ClassVar[str] = "agent"
    last: Turn = attrs.field(factory=Turn)

    async def start(self, request: Request[str]) -> RemoteTurn:
        self.last = Turn()
        return self.last


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL").fetchall()
    database.execute("PRAGMA synchronous = FULL")
    for statement in SCHEMA.statements:
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {SCHEMA.number}")
    database.execute(f"PRAGMA user_version = {SCHEMA.version}")
    return database


def insert_bare(path: Path, rows: list[Any], batch: int) -> float:
    """Seconds that it takes to insert these rows."""
    with closing(connect(path)) as database:
        new = "INSERT INTO records (turn, kind, at, said) VALUES (?, ?, ?, ?)"
        begun = time.perf_counter()
        for first in range(0, len(rows), batch):
            database.execute("BEGIN IMMEDIATE")
            for row in rows[first : first + batch]:
                database.execute(new, row)
            database.execute("COMMIT")
        return time.perf_counter() - begun


async def note_turns(path: Path, count: int, batch: int, settled: Any) -> float:
    """Seconds that it takes to note this many turns and to have them on the disk."""
    async with open_journal(path) as journal:
        begun = time.perf_counter()
        for number in range(count):
            entry = journal.admit("agent", "kitchen", f"turn-{number}")
            entry.note_address(ADDRESS)
            entry.note_asked(settled.request)
            entry.note_settled(settled)
            if number % (batch // 4) == batch // 4 - 1:
                await entry.saved()
        await entry.saved()
        return time.perf_counter() - begun


async def make_settled() -> Any:
    async with open_rooms(Agent()) as rooms, rooms.turn("kitchen", "bake") as turn:
        await trio.testing.wait_all_tasks_blocked()
        turn.stop(reason="user pressed stop")
    return turn.settlement


def measure_turns(folder: Path, turns: int, rounds: int) -> dict[str, Any]:
    settled, batch = trio.run(make_settled), 1000
    ours, bare = [], []
    for number in range(rounds):
        path = folder / f"ours-{number}.db"
        ours.append(trio.run(note_turns, path, turns, batch, settled))
        with closing(sqlite3.connect(path)) as database:
            query = "SELECT turn, kind, at, said FROM records ORDER BY number"
            rows = database.execute(query).fetchall()
        assert len(rows) == turns * 4
        bare.append(insert_bare(folder / f"bare-{number}.db", rows, batch))
    best = statistics.median(one / two for one, two in zip(ours, bare, strict=True))
    return {
        "turns": turns,
        "rounds": rounds,
        "batch": batch,
        "us_a_turn": round(statistics.median(ours) / turns * 1e6, 2),
        "us_a_turn_bare": round(statistics.median(bare) / turns * 1e6, 2),
        "over_bare": round(best, 3),
    }


async def stop_one(rooms: Rooms[str], agent: Agent) -> float:
    async with rooms.turn("kitchen", "bake") as turn:
        await anext(turn)
        # What the journal has to write of its beginning is written.
        await trio.sleep(0.01)
        asked = time.perf_counter()
        turn.stop(reason="user pressed stop")
    return agent.last.sent - asked


async def stop_many(path: Path, stops: int) -> tuple[list[float], list[float]]:
    on, off = [], []
    agent = Agent()
    async with (
        open_journal(path) as journal,
        open_rooms(agent, journal=journal) as noted,
        open_rooms(agent) as plain,
    ):
        pairs = [(on, noted), (off, plain)]
        for _ in range(stops):
            for into, rooms in pairs:
                into.append(await stop_one(rooms, agent))
            pairs.reverse()
    return on, off


def measure_stops(folder: Path, stops: int) -> dict[str, Any]:
    on, off = trio.run(stop_many, folder / "stops.db", stops)
    return {
        "stops": stops,
        "us_on": round(statistics.median(on) * 1e6, 2),
        "us_off": round(statistics.median(off) * 1e6, 2),
        "on_over_off": round(statistics.median(on) / statistics.median(off), 3),
        "p99_us_on": round(sorted(on)[int(len(on) * 0.99)] * 1e6, 2),
        "p99_us_off": round(sorted(off)[int(len(off) * 0.99)] * 1e6, 2),
    }


def fill(path: Path, records: int) -> None:
    with closing(connect(path)) as database:
        said = json.dumps({"backend": "agent", "room": "kitchen", "turn_id": "turn"})
        kinds = ("admitted", "address", "asked", "settled")
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO records (turn, kind, at, said) VALUES (?, ?, ?, ?)",
            ((number // 4, kinds[number % 4], 0.0, said) for number in range(records)),
        )
        database.executemany(
            "INSERT INTO open VALUES (?, 1, 'other', ?, NULL)",
            ((records // 4 - 1 - number, said) for number in range(OPEN)),
        )
        database.execute("COMMIT")


async def open_and_compact(path: Path) -> tuple[float, float]:
    begun = time.perf_counter()
    async with open_journal(path) as journal:
        opened = time.perf_counter()
        await journal.compact()
        return opened - begun, time.perf_counter() - opened


def measure_file(folder: Path, records: int) -> dict[str, Any]:
    path = folder / "large.db"
    fill(path, records)
    with closing(sqlite3.connect(path)) as database:
        begun = time.perf_counter()
        assert len(database.execute("SELECT * FROM records").fetchall()) == records
        read = time.perf_counter() - begun
    size = path.stat().st_size
    opened, compacted = trio.run(open_and_compact, path)
    with closing(sqlite3.connect(path)) as database:
        ((left,),) = database.execute("SELECT COUNT(*) FROM records").fetchall()
    return {
        "records": records,
        "left": left,
        "read_s": round(read, 3),
        "open_s": round(opened, 3),
        "compact_s": round(compacted, 3),
        "compact_over_read": round(compacted / read, 2),
        "mib_before": round(size / 2**20, 1),
        "mib_after": round(path.stat().st_size / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="a smoke run: no figures to quote")
    small = parser.parse_args().small
    turns, rounds, stops, records = SMALL if small else (TURNS, ROUNDS, STOPS, RECORDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = {
            "small": small,
            "turn": measure_turns(folder, turns, rounds),
            "stop": measure_stops(folder, stops),
            "file": measure_file(folder, records),
        }
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
