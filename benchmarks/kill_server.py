"""`turnstop serve`, and one who uses it: for `kill_points.py --server`."""

from __future__ import annotations

import json
import os
import random
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import attrs
import trio
from kill_book import Book, ask, note_acknowledged

from turnstop import Message
from turnstop.adapters.local import Work, open_local
from turnstop.cli.main import main
from turnstop.cli.serve import running as running
from turnstop.feeds.sqlite import SqliteFeed

TOKEN = "only-for-this-run"
BUTTONS = ("stop", "interrupt", "play")


def run_command(path: Path, number: int, is_last: bool) -> int:
    """In a process of its own, which has imported all that it needs."""
    book = Book(path)
    acknowledge = SqliteFeed.acknowledge

    async def noted(feed: SqliteFeed, message: Message) -> None:
        await note_acknowledged(book, acknowledge, feed, message)

    async def work(work: Work) -> None:
        name = str(work.content)
        book.begin(name)
        try:
            await trio.sleep(random.uniform(0, 0.004))
        finally:
            book.write("end", name)

    SqliteFeed.acknowledge = noted  # type: ignore[assignment, method-assign]
    globals()["open_agent"] = lambda: open_local(work)
    os.environ["TURNSTOP_TOKEN"] = TOKEN
    args = ["serve", "kill_server:open_agent", "--port", "0", "--json", "--file", str(path)]
    try:
        main(args)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return 0


@attrs.define(eq=False)
class Client:
    """Posts to a server, presses buttons, and posts again what was not answered.

    Attributes:
        pressed: what a room's last STOP or PLAY was, where that was answered.
        forgotten: how many of these the file did not have when the server was killed.
        wrong: answers that should not have come.
    """

    path: Path
    rooms: int
    draw: random.Random
    book: Book = attrs.field(init=False)
    unanswered: list[tuple[str, str]] = attrs.field(factory=list)
    pressed: dict[str, str] = attrs.field(factory=dict)
    posts: int = 0
    repeated: int = 0
    forgotten: int = 0
    answered: int = 0
    wrong: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.book = Book(self.path)

    def request(self, address: str, path: str, body: dict[str, str]) -> Any:
        """Post it; return the answer, None where there is no such room.

        Raises:
            OSError, HTTPException: it was not answered.
        """
        with closing(HTTPConnection(address, timeout=30)) as connection:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            found = answer.read()
        # There are buttons for a room only where there is one.
        if answer.status == 404 and "/messages" not in path:
            return None
        if answer.status != 202:
            self.wrong.append(f"{path}: {answer.status} {found[:200]!r}")
            return None
        return json.loads(found)

    def post(self, address: str) -> None:
        self.repeated += len(self.unanswered)
        if not self.unanswered:
            self.posts += 1
            self.unanswered.append((self.some_room(), f"m{self.posts}"))
        room, name = self.unanswered[0]
        self.request(address, f"/rooms/{room}/messages", {"content": name, "id": name})
        self.unanswered.clear()
        self.book.write("posted", name)

    def press(self, address: str) -> None:
        room, button = self.some_room(), self.draw.choice(BUTTONS)
        before = self.pressed.pop(room, "")
        found = self.request(address, f"/rooms/{room}/{button}", {})
        is_new = found is not None and found["rooms"] and button != "interrupt"
        if latest := button if is_new else before:
            self.pressed[room] = latest

    def some_room(self) -> str:
        return f"room-{self.draw.randrange(self.rooms)}"

    def use(self, address: str, posts: int) -> None:
        try:
            for _ in range(posts):
                self.post(address)
                if self.draw.random() < 0.3:
                    self.press(address)
        except (OSError, HTTPException):
            return

    def compare(self) -> None:
        """What the file says of the rooms, now that the server was killed."""
        paused = {room for (room,) in ask(self.path, "SELECT room FROM paused")}
        wanted = {room: button == "stop" for room, button in self.pressed.items()}
        self.answered += len(wanted)
        self.forgotten += sum(stopped != (room in paused) for room, stopped in wanted.items())
        self.pressed.clear()
