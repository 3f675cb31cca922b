"""A backend that goes on without the process that began its turns: folders on the disk.

A turn is a folder. Work goes on in it while it has no file `ended`; a stop writes `stop`, and
whoever plays the far end, a task or nobody, answers with `ended`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from turnstop import BackendLost, BackendRefused
from turnstop.abc import Emit, End, How, Proof, Request

_HOW = {"cancelled": How.CANCELLED, "completed": How.COMPLETED}


@attrs.define(eq=False)
class FolderTurn:
    place: Path
    session: object | None = None

    @property
    def address(self) -> str:
        return str(self.place)

    async def follow(self, emit: Emit) -> End:
        while not (self.place / "ended").exists():  # noqa: ASYNC110 - another program's
            await trio.sleep(0.005)
        return End(_HOW[(self.place / "ended").read_text()], Proof.EVENT)

    async def cancel(self, sent: Callable[[], None]) -> None:
        _append(self.place / "stop", "stop\n")
        sent()


@attrs.define(eq=False)
class Folders:
    """The backend.

    Attributes:
        root: where the folders are.
        announces: whether a turn is announced before it begins.
    """

    name: ClassVar[str] = "folders"
    root: Path
    announces: bool = True
    log: list[str] = attrs.field(factory=list)

    async def start(self, request: Request[str]) -> FolderTurn:
        place = self.root / request.turn_id
        if self.announces:
            await request.announce(str(place))
        self.log.append(f"start {request.turn_id}")
        place.mkdir(parents=True)
        (place / "content").write_text(request.content)
        return FolderTurn(place)

    async def attach(self, address: str) -> FolderTurn:
        self.log.append(f"attach {Path(address).name}")
        if self.root not in Path(address).parents:
            raise BackendLost(f"{address} is another's")
        if not _is_there(address):
            raise BackendRefused("nothing was begun there")
        return FolderTurn(Path(address))


async def obey(root: Path) -> None:
    """The far end: what is told to stop ends."""
    while True:
        _end_what_was_told(root)
        await trio.sleep(0.005)


def _end_what_was_told(root: Path) -> None:
    for place in root.iterdir() if root.exists() else ():
        if (place / "stop").exists() and not (place / "ended").exists():
            (place / "ended.new").write_text("cancelled")
            (place / "ended.new").rename(place / "ended")


def _append(path: Path, text: str) -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write(text)


def _is_there(address: str) -> bool:
    return Path(address).exists()


def stand_still(pid: int, path: Path) -> None:
    """Stop a process, but not while it writes at this file: nobody else could, until it goes on."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        os.kill(pid, signal.SIGSTOP)
        while not all(map(_stands_still, Path(f"/proc/{pid}/task").iterdir())):
            time.sleep(0.001)
        database.execute("ROLLBACK")


def _stands_still(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
