"""Turns that are process groups: for `crash_points.py`.

A turn is a shell that ignores SIGTERM, with a child that does so too, one that was begun with
nohup and one that has left for a session of its own. All of them hold the lock of the turn's room
for as long as they live: a turn that begins while any process of the room's last one is alive finds
it taken, and says so.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from _crash_judge import Work

from turnstop.abc import Emit, End, How, Proof, RemoteTurn, Request
from turnstop.transports.orphans import OrphanedTurn, ProcessAddress, attach_process, new_mark
from turnstop.transports.proctable import end_processes, find_marked

RUN = "TURNSTOP_CRASH_POINTS"
TURN = "TURNSTOP_CRASH_TURN"
WORDS = ["work", "work", "work", "answer"]
LONGEST = 0.3
SCRIPT = """trap '' TERM
exec 9>>"$1.lock"; flock -n 9 || echo "$2" >>"$1.early"
echo "$2" >>"$1.begun"
[ "$3" = answer ] && { echo up; exit; }
(trap '' TERM; while :; do sleep 0.05; done) &
nohup sleep 300 >/dev/null 2>&1 &
setsid sh -c "trap '' TERM; while :; do sleep 0.05; done" &
echo up; while :; do sleep 0.05; done"""


@attrs.define(eq=False)
class GroupTurn:
    """A shell and what it has started."""

    process: trio.Process
    orphan: OrphanedTurn
    session: object | None = None

    @property
    def address(self) -> str:
        return self.orphan.address

    async def follow(self, emit: Emit) -> End:
        if await self.process.wait() == 0:
            return End(How.COMPLETED, Proof.PROCESS)
        return await self.orphan.follow(emit)

    async def cancel(self, sent: Callable[[], None]) -> None:
        await self.orphan.cancel(sent)

    async def kill(self) -> None:
        await self.orphan.kill()

    async def leftovers(self) -> Sequence[object]:
        return await self.orphan.leftovers()

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[object]:
        return await self.orphan.sweep(leftovers)


@attrs.define(eq=False)
class Groups:
    """The backend."""

    folder: Path
    run: str
    name: str = "groups"
    announces: bool = True

    async def start(self, request: Request[str]) -> RemoteTurn:
        mark = new_mark()
        await request.announce(str(ProcessAddress.ahead(mark)))
        room, turn = str(self.folder / request.room), request.turn_id
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", SCRIPT, "turn", room, turn, request.content],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, mark[0]: mark[1], RUN: self.run, TURN: f"{self.run} {turn}"},
            start_new_session=True,
        )
        assert process.stdout is not None
        await process.stdout.receive_some()
        return GroupTurn(process, attach_process(str(ProcessAddress.of(process.pid, mark))))

    async def attach(self, address: str) -> RemoteTurn:
        return attach_process(address)


@asynccontextmanager
async def open_backend(folder: str, run: str) -> AsyncGenerator[tuple[Any, Any], None]:
    yield Groups(Path(folder), run), lambda token, word: word


@attrs.define(eq=False)
class Far:
    """The processes, as the process table has them."""

    folder: Path
    run: str
    exact: bool = False
    # Its end is seen when somebody looks.
    tolerance: float = math.inf
    _ended: dict[str, float] = attrs.field(factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "run": self.run}

    def works(self) -> list[Work]:
        tokens = [line for file in self.folder.glob("*.begun") for line in file.read_text().split()]
        return [Work(token, 0.0, self._ended.get(token)) for token in tokens]

    def early(self) -> list[str]:
        """Turns that found the lock of their room taken."""
        return [line for file in self.folder.glob("*.early") for line in file.read_text().split()]

    async def at_work(self) -> list[str]:
        found = [one.environment.get(TURN, "") for one in await find_marked({RUN: self.run})]
        return sorted({one.partition(" ")[2] for one in found})

    async def settled(self, token: str) -> None:
        """A settlement has just been said: nothing that is found now may be its turn's."""
        at = time.monotonic()
        if not await find_marked({TURN: f"{self.run} {token}"}):
            self._ended.setdefault(token, at)


@asynccontextmanager
async def open_far(folder: Path) -> AsyncGenerator[Far, None]:
    far = Far(folder, f"{os.getpid()}-{time.time()}")
    try:
        yield far
    finally:
        # Whatever a fault has left.
        with trio.CancelScope(shield=True):
            await end_processes(lambda: _all(far.run), grace=0.0)


async def _all(run: str) -> list[Any]:
    return [one.process for one in await find_marked({RUN: run})]
