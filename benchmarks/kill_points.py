"""A program that serves rooms from a file, killed at random moments and started again.

    python benchmarks/kill_points.py               # 200 kills
    python benchmarks/kill_points.py --points 5    # a smoke

Each process posts messages and controls and handles what it finds, and is ended by SIGKILL at a
moment that is drawn. The last one finishes everything. No message whose posting had returned may be
lost, none may be acknowledged twice or run again after it was acknowledged, none may run twice at
once, and a room's messages are first run in the order in which they were posted. Prints JSON;
status 1 where one of that is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from turnstop import Control, ControlKind, Delivery, Message, open_rooms, serve_rooms
from turnstop.adapters.local import Work, open_local
from turnstop.feeds.sqlite import SqliteFeed, open_sqlite_feed

POINTS = 200
ROOMS = 5
POSTS = 12
KINDS = (ControlKind.STOP, ControlKind.INTERRUPT, ControlKind.PLAY)


class Book:
    """Lines that survive the process: what it did, written when it was done."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, (*words, os.getpid()))) + "\n").encode())


async def work_a_little(work: Work) -> None:
    await trio.sleep(random.uniform(0, 0.004))


async def handle(book: Book, delivery: Delivery) -> None:
    book.write("begin", delivery.message.id)
    try:
        async with delivery.turn() as turn:
            async for _ in turn:
                pass
    finally:
        book.write("end", delivery.message.id)


async def note_acknowledged(
    book: Book, acknowledge: Callable[[Message], Any], message: Message
) -> None:
    await acknowledge(message)
    book.write("acknowledged", message.id)


async def use(feed: SqliteFeed, book: Book, number: int, kinds: tuple[ControlKind, ...]) -> None:
    """What people do: they post, and press buttons."""
    for count in range(POSTS):
        room = f"room-{random.randrange(ROOMS)}"
        name = f"{number}-{count}"
        await feed.post(room, name, id=name)
        book.write("posted", name)
        if random.random() < 0.3:
            await feed.control(Control(random.choice(kinds), room))


async def serve(path: Path, number: int, is_last: bool) -> None:
    book = Book(path.with_suffix(".book"))
    async with (
        open_sqlite_feed(path) as feed,
        open_local(work_a_little) as local,
        open_rooms(local) as rooms,
        trio.open_nursery() as nursery,
    ):
        # Noted when it is on the disk, so that what is noted twice was said twice.
        feed.acknowledge = partial(note_acknowledged, book, feed.acknowledge)  # type: ignore[method-assign]
        await nursery.start(partial(serve_rooms, rooms, partial(handle, book), feed))
        book.write("serves")
        if not is_last:
            await use(feed, book, number, KINDS)
            await trio.sleep_forever()
        await feed.control(Control(ControlKind.PLAY))
        with trio.fail_after(300):
            while await feed.rooms():  # noqa: ASYNC110
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


def start(path: Path, number: int, is_last: bool = False) -> int:
    """A process of its own, without the time that a new Python takes."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        random.seed(number)
        trio.run(serve, path, number, is_last)
        status = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    os._exit(status)


def kill(path: Path, pid: int, draw: random.Random) -> bool:
    """True where it ran until it was killed: mostly when it serves, or on its way there."""
    book, line = path.with_suffix(".book"), f"serves {pid}\n"
    until_it_serves = draw.random() < 0.8
    delay = draw.uniform(0.0, 0.3)
    while until_it_serves and not (book.exists() and line in book.read_text()):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def judge(path: Path) -> dict[str, Any]:
    """What the lines and the file say."""
    lines = [line.split() for line in path.with_suffix(".book").read_text().splitlines()]
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT id, room, state FROM messages ORDER BY number").fetchall()
    database.close()
    states, rooms = {row[0]: row[2] for row in rows}, {row[0]: row[1] for row in rows}
    acknowledged, begun = Counter[str](), list[str]()
    again, at_once = set[str](), set[str]()
    live: defaultdict[str, set[str]] = defaultdict(set)
    for what, name, pid in (line for line in lines if len(line) == 3):
        if what == "begin":
            again |= {name} & {*acknowledged}
            at_once |= {name} if any(rooms[one] == rooms[name] for one in live[pid]) else set()
            live[pid].add(name)
            begun.append(name)
        elif what == "end":
            live[pid].discard(name)
        elif what == "acknowledged":
            acknowledged[name] += 1
    first = list(dict.fromkeys(begun))
    order = [[name for name in first if rooms[name] == room] for room in {*rooms.values()}]
    posted = [name for what, name, *_ in lines if what == "posted"]
    places = {name: place for place, name in enumerate(states)}
    return {
        "messages": len(states),
        "runs": len(begun),
        "lost": [name for name in posted if states.get(name) != "finished"],
        "acknowledged_twice": [name for name, count in acknowledged.items() if count > 1],
        "run_after_acknowledged": sorted(again),
        "twice_at_once": sorted(at_once),
        "out_of_order": sum(names != sorted(names, key=places.__getitem__) for names in order),
    }


def main() -> int:
    """Kill, and say what is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feed.db"
        killed = sum(kill(path, start(path, number), draw) for number in range(given.points))
        _, status = os.waitpid(start(path, given.points, is_last=True), 0)
        found = judge(path)
    told = {"points": given.points, "seed": given.seed, "killed": killed, **found}
    print(json.dumps({**told, "last_exit": os.waitstatus_to_exitcode(status)}))
    faults = [name for name in found if name not in ("messages", "runs") and found[name]]
    return 1 if faults or status or killed != given.points else 0


if __name__ == "__main__":
    sys.exit(main())
