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
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio
from kill_book import UNFINISHED, Book, ask, judge, note_acknowledged
from kill_server import Client, run_command

from turnstop import Control, ControlKind, Delivery, open_rooms, serve_rooms
from turnstop.adapters.local import Work, open_local
from turnstop.feeds.sqlite import FeedInUse, SqliteFeed, open_sqlite_feed

POINTS = 200
ROOMS = 5
POSTS = 12
# All of it, and fewer than the ids that a feed remembers, for 200 points.
POSTS_OF_CLIENT = 45
KINDS = (ControlKind.STOP, ControlKind.INTERRUPT, ControlKind.PLAY)
RIVALS = 0.2
REFUSED = 2
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
        user = threading.Thread(target=self.use, args=(found, POSTS_OF_CLIENT))
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
        if self.client is not None:
            self.client.compare()

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


def main() -> int:
    """Kill, and say what is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feed.db"
        client = Client(path, ROOMS, random.Random(given.seed)) if given.server else None
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
        told |= {"pressed": client.answered, "pressed_in_vain": client.forgotten}
    print(json.dumps(told))
    is_well = told["killed"] == given.points and told["rivals_refused"] == told["rivals"]
    return 0 if is_well and not any(told.get(name) for name in FAULTS) else 1


if __name__ == "__main__":
    sys.exit(main())
