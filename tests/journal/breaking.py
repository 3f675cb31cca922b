"""A process that has a journal, and breaks its disk while a turn is under way.

    python -m tests.journal.breaking PATH HOW

Prints one line of JSON: how the stop of that turn, and of one begun later, went, and what the
journal says of itself meanwhile and once the disk is mended.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from turnstop import Rooms, open_rooms
from turnstop.journal import Journal, _journal, open_journal

from .test_journal import Agent


@contextmanager
def small_files(path: Path) -> Iterator[None]:
    """No file may grow any more."""
    # The limit of what is there: the log has its largest size before.
    size = os.stat(f"{path}-wal").st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Nothing is left of the file system."""
    ballast = path.with_name("ballast")
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            pass
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def removed(path: Path) -> Iterator[None]:
    """Somebody has taken the file away, and puts it back."""
    names = [Path(f"{path}{more}") for more in ("", "-wal", "-shm")]
    for name in names:
        name.rename(f"{name}.away")
    try:
        yield
    finally:
        for name in names:
            Path(f"{name}.away").rename(name)


HOW: dict[str, Callable[[Path], Any]] = {"small": small_files, "full": full, "removed": removed}


class Warnings(logging.Handler):
    """How often it was warned, and of what."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


async def take(rooms: Rooms[str], turn_id: str, break_it: Callable[[], object]) -> dict[str, Any]:
    async with rooms.turn("kitchen", "bake", turn_id=turn_id) as turn:
        await trio.sleep(0.05)
        break_it()
        asked = trio.current_time()
        turn.stop(reason="x" * 4000)
    settlement = turn.settlement
    assert settlement is not None
    return {"ending": settlement.ending.value, "took": trio.current_time() - asked}


async def until_failing(journal: Journal) -> None:
    with trio.move_on_after(5):
        while journal.statistics().failing is None:  # noqa: ASYNC110 - it is a disk's clock
            await trio.sleep(0.01)


async def main(path: Path, how: str) -> None:
    _journal._AGAIN_AFTER = 0.05  # type: ignore[misc]
    told, found = Warnings(), dict[str, Any]()
    logging.getLogger("turnstop.journal").addHandler(told)
    breaking = HOW[how](path)
    async with open_journal(path) as journal:
        async with open_rooms(Agent(announces=True), journal=journal) as rooms:
            found["first"] = await take(rooms, "1", breaking.__enter__)
            await until_failing(journal)
            found["failing"], found["waiting"] = (
                journal.statistics().failing,
                journal.statistics().waiting,
            )
            found["later"] = await take(rooms, "2", lambda: None)
            found["warnings"] = list(told.texts)
            breaking.__exit__(None, None, None)
            with trio.move_on_after(5):
                while journal.statistics().waiting:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            found["mended"] = journal.statistics().failing
            found["lost"] = journal.statistics().lost
    print(json.dumps(found))


if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    trio.run(main, Path(sys.argv[1]), sys.argv[2])
