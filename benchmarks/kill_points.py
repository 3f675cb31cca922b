"""A program that serves rooms from a file, killed at random moments and started again.

    python benchmarks/kill_points.py                # 200 kills
    python benchmarks/kill_points.py --server       # 200 kills of `turnstop serve`
    python benchmarks/kill_points.py --points 5     # a smoke

Each process handles what it finds, and is ended by SIGKILL at a moment that is drawn; messages and
controls are posted to it meanwhile: by itself, or with `--server` over HTTP, by one who posts again
what was not answered. The last process finishes everything. No message whose posting was answered
may be lost, none may be acknowledged twice or begun after it was acknowledged, no two of a room may
run at once, in one process or in two, and a room's messages are first run in the order in which
they were posted. Now and then a second process is started while the first one serves: it has to
refuse. Prints JSON, with how many messages were run how often; status 1 where one of that is not
so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstop import Control, ControlKind, Delivery, Message, open_rooms, serve_rooms
from turnstop.adapters.local import Work, open_local
from turnstop.feeds.sqlite import FeedInUse, SqliteFeed, open_sqlite_feed

POINTS = 200
ROOMS = 5
POSTS = 12
KINDS = (ControlKind.STOP, ControlKind.INTERRUPT, ControlKind.PLAY)
RIVALS = 0.2
REFUSED = 2
TOKEN = "only-for-this-run"
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


# A process that serves by itself, and posts to itself.


async def work_a_little(work: Work) -> None:
    await trio.sleep(random.uniform(0, 0.004))


async def handle(book: Book, delivery: Delivery) -> None:
    book.begin(delivery.message.id)
    try:
        async with delivery.turn() as turn:
            async for _ in turn:
                pass
    finally:
        book.write("end", delivery.message.id)


async def use(feed: SqliteFeed, book: Book, number: int) -> None:
    """What people do: they post, and press buttons."""
    for count in range(POSTS):
        room = f"room-{random.randrange(ROOMS)}"
        name = f"{number}-{count}"
        await feed.post(room, name, id=name)
        book.write("posted", name)
        if random.random() < 0.3:
            await feed.control(Control(random.choice(KINDS), room))


async def serve(path: Path, number: int, is_last: bool) -> None:
    book = Book(path)
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
        print("{}", flush=True)
        if not is_last:
            await use(feed, book, number)
            await trio.sleep_forever()
        await feed.control(Control(ControlKind.PLAY))
        with trio.fail_after(300):
            while ask(path, UNFINISHED):  # noqa: ASYNC110
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


def run_alone(path: Path, number: int, is_last: bool) -> int:
    try:
        trio.run(serve, path, number, is_last)
    except FeedInUse:
        return REFUSED
    return 0


# `turnstop serve`, and one who uses it.


def run_command(path: Path, number: int, is_last: bool) -> int:
    from turnstop.cli.main import main as command

    book = Book(path)
    acknowledge = SqliteFeed.acknowledge

    async def noted(feed: SqliteFeed, message: Message) -> None:
        await note_acknowledged(book, acknowledge, feed, message)

    async def work(work: Work) -> None:
        name = str(work.content)
        book.begin(name)
        try:
            await work_a_little(work)
        finally:
            book.write("end", name)

    SqliteFeed.acknowledge = noted  # type: ignore[assignment, method-assign]
    globals()["open_agent"] = lambda: open_local(work)
    sys.modules["kill_points"] = sys.modules[__name__]
    os.environ["TURNSTOP_TOKEN"] = TOKEN
    args = ["serve", "kill_points:open_agent", "--port", "0", "--json", "--file", str(path)]
    try:
        command(args)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return 0


@attrs.define(eq=False)
class Client:
    """Posts to a server, presses buttons, and posts again what was not answered."""

    book: Book
    draw: random.Random
    unanswered: list[tuple[str, str]] = attrs.field(factory=list)
    posts: int = 0
    repeated: int = 0
    wrong: list[str] = attrs.field(factory=list)

    def request(self, address: str, path: str, body: dict[str, str]) -> None:
        """Post it.

        Raises:
            OSError, HTTPException: it was not answered.
        """
        with closing(HTTPConnection(address, timeout=30)) as connection:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            found = answer.read()
            # There are buttons for a room only when there is a room.
            is_button = answer.status == 404 and "/messages" not in path
            if answer.status != 202 and not is_button:
                self.wrong.append(f"{path}: {answer.status} {found[:200]!r}")

    def post(self, address: str) -> None:
        self.repeated += len(self.unanswered) > 0
        if not self.unanswered:
            self.posts += 1
            room = f"room-{self.draw.randrange(ROOMS)}"
            self.unanswered.append((room, f"m{self.posts}"))
        room, name = self.unanswered[0]
        self.request(address, f"/rooms/{room}/messages", {"content": name, "id": name})
        self.unanswered.clear()
        self.book.write("posted", name)

    def use(self, address: str, posts: int) -> None:
        try:
            for _ in range(posts):
                self.post(address)
                if self.draw.random() < 0.3:
                    kind = self.draw.choice(KINDS).value
                    self.request(address, f"/rooms/room-{self.draw.randrange(ROOMS)}/{kind}", {})
        except (OSError, HTTPException):
            return


# Whoever starts and kills.


@attrs.define(eq=False)
class Life:
    """A process of its own, without the time that a new Python takes."""

    pid: int
    _said: int

    @classmethod
    def begin(cls, run: Callable[[Path, int, bool], int], *given: Any) -> Life:
        said, says = os.pipe()
        if pid := os.fork():
            os.close(says)
            return cls(pid, said)
        status = 1
        try:
            os.dup2(says, 1)
            random.seed(given[1])
            status = run(*given)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        os._exit(status)

    def serves(self, within: float) -> Any:
        """What it says when it serves; None where it has ended instead, or does not so soon."""
        if not select.select([self._said], [], [], within)[0]:
            return None
        line = os.read(self._said, 4096)
        return json.loads(line) if line else None

    def end(self) -> int:
        os.close(self._said)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@attrs.define(eq=False)
class Killing:
    """One run of it all."""

    path: Path
    run: Callable[[Path, int, bool], int]
    draw: random.Random
    client: Client | None
    book: Book = attrs.field(init=False)
    killed: int = 0
    rivals: Counter[int] = attrs.field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        self.book = Book(self.path)

    def kill_one(self, number: int) -> None:
        life = Life.begin(self.run, self.path, number, False)
        # Mostly when it serves, else on its way there.
        found = life.serves(60) if self.draw.random() < 0.8 else None
        delay = self.draw.uniform(0.0, 0.3)
        rival = found is not None and self.draw.random() < RIVALS
        # Before there is a thread, which would not be in the new process.
        second = Life.begin(self.run, self.path, -1, False) if rival else None
        user = threading.Thread(target=self.use, args=(found, POSTS))
        user.start()
        if second is None:
            time.sleep(delay)
        else:
            if second.serves(60) is not None:
                os.kill(second.pid, signal.SIGKILL)
            self.rivals[second.end()] += 1
        self.book.write("killing", pid=life.pid)
        os.kill(life.pid, signal.SIGKILL)
        self.killed += life.end() == -signal.SIGKILL
        user.join()

    def use(self, found: Any, posts: int) -> None:
        if self.client is not None and found is not None:
            self.client.use(found["url"].removeprefix("http://"), posts)

    def finish(self, number: int) -> int:
        life = Life.begin(self.run, self.path, number, True)
        found = life.serves(60)
        if self.client is not None:
            self.use(found, 1)
            self.client.request(found["url"].removeprefix("http://"), "/play", {})
            until = time.monotonic() + 300
            while ask(self.path, UNFINISHED) and time.monotonic() < until:
                time.sleep(0.05)
            os.kill(life.pid, signal.SIGTERM)
        return life.end()


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


FAULTS = (
    "lost",
    "acknowledged_twice",
    "begun_after_acknowledged",
    "twice_at_once",
    "served_by_two",
    "out_of_order",
    "wrong_answers",
    "last_exit",
)


def main() -> int:
    """Kill, and say what is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    draw = random.Random(given.seed)
    if given.server:
        # Once, and not in each process.
        import_module("turnstop.cli.serve.running")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feed.db"
        client = Client(Book(path), random.Random(given.seed)) if given.server else None
        killing = Killing(path, run_command if given.server else run_alone, draw, client)
        for number in range(given.points):
            killing.kill_one(number)
        status = killing.finish(given.points)
        found = judge(path)
    told = {
        "points": given.points,
        "seed": given.seed,
        "server": given.server,
        "seconds": round(time.monotonic() - began, 1),
        "killed": killing.killed,
        "rivals_refused": killing.rivals[REFUSED],
        "rivals": killing.rivals.total(),
        **found,
        "last_exit": status,
    }
    if client is not None:
        told |= {"posted_again": client.repeated, "wrong_answers": client.wrong}
    print(json.dumps(told))
    is_well = told["killed"] == given.points and told["rivals_refused"] == told["rivals"]
    return 0 if is_well and not any(told.get(name) for name in FAULTS) else 1


if __name__ == "__main__":
    sys.exit(main())
