"""A program whose turns are process groups, killed at random moments and started again.

    python benchmarks/crash_points.py               # 200 kills
    python benchmarks/crash_points.py --points 5    # a smoke

A turn is a shell that ignores SIGTERM, with a child that does so too, one that was begun with
nohup and one that has left for a session of its own. All of them hold the lock of the turn's room
for as long as they live: a turn that begins while any process of the room's last one is alive finds
it taken, and says so. Each program recovers what the one before has left and goes on with turns in
the same rooms at once, until SIGKILL ends it at a moment that is drawn; the last one only recovers.
Prints JSON; status 1 where a process was left, a room was let too early, or what was taken up
did not settle as ended, in its budget.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstop import Settlement, StopBudget, open_rooms
from turnstop.abc import Emit, End, RemoteTurn, Request
from turnstop.journal import open_journal
from turnstop.transports.orphans import OrphanedTurn, ProcessAddress, attach_process, new_mark
from turnstop.transports.proctable import find_marked

POINTS = 200
ROOMS = ("a", "b", "c")
LONGEST = 0.2
KILLED_WITHIN = 2.0
BUDGET = StopBudget(cancel_within=5.0, kill_within=2.0)
RUN = "TURNSTOP_CRASH_POINTS"
SCRIPT = """trap '' TERM
exec 9>>"$1.lock"; flock -n 9 || echo "$2" >>"$1.early"
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
        await self.process.wait()
        return await self.orphan.follow(emit)

    async def cancel(self, sent: Callable[[], None]) -> None:
        await self.orphan.cancel(sent)

    async def kill(self) -> None:
        await self.orphan.kill()


@attrs.define(eq=False)
class Groups:
    """The backend."""

    folder: Path
    name: str = "groups"
    announces: bool = True

    async def start(self, request: Request[str]) -> RemoteTurn:
        mark = new_mark()
        await request.announce(str(ProcessAddress.ahead(mark)))
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", SCRIPT, "turn", str(self.folder / request.room), request.turn_id],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **dict([mark])},
            start_new_session=True,
        )
        assert process.stdout is not None
        await process.stdout.receive_some()
        return GroupTurn(process, attach_process(str(ProcessAddress.of(process.pid, mark))))

    async def attach(self, address: str) -> RemoteTurn:
        return attach_process(address)


def tell(settlement: Settlement) -> None:
    if settlement.request is not None and settlement.request.kind == "recovery":
        assert settlement.asked_at is not None
        took = settlement.settled_at - settlement.asked_at
        say(ending=settlement.ending.value, gone=settlement.gone, took=took)


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def own(folder: Path, goes_on: bool) -> None:
    backend = Groups(folder)
    async with (
        open_journal(folder / "turns.db") as journal,
        open_rooms(backend, journal=journal, budget=BUDGET, observers=[tell]) as rooms,
    ):
        say(open=True)

        async def work(room: str) -> None:
            while goes_on:
                with trio.move_on_after(random.uniform(0, LONGEST)):
                    async with rooms.turn(room, "work") as turn:
                        async for _ in turn:
                            pass
            async with rooms.turn(room, "the last"):
                pass

        async with trio.open_nursery() as nursery:
            for room in ROOMS:
                nursery.start_soon(work, room)


def run_one(folder: Path, kill_after: float | None) -> list[dict[str, Any]]:
    """Run a program, kill it if that is wanted, and return what it said."""
    how = "on" if kill_after is not None else "end"
    command = [sys.executable, __file__, "--own", str(folder), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [json.loads(process.stdout.readline())]
        if kill_after is not None:
            time.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
        said += [json.loads(line) for line in process.stdout if line.endswith("\n")]
    return [one for one in said if "took" in one]


async def left(run: str) -> int:
    return len(await find_marked({RUN: run}))


def measure(points: int, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    run = os.environ[RUN] = f"{os.getpid()}-{time.time()}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        taken_up: list[dict[str, Any]] = []
        orphaned = 0
        for _ in range(points):
            taken_up += run_one(folder, draw.uniform(0, KILLED_WITHIN))
            orphaned += trio.run(left, run) > 0
        taken_up += run_one(folder, None)
        early = [path.read_text().split() for path in folder.glob("*.early")]
        del os.environ[RUN]
        times = sorted(one["took"] for one in taken_up)
        return {
            "points": points,
            "seed": seed,
            "points_that_left_processes": orphaned,
            "taken_up": len(taken_up),
            "endings": {
                ending: sum(one["ending"] == ending for one in taken_up)
                for ending in sorted({one["ending"] for one in taken_up})
            },
            "not_gone": sum(not one["gone"] for one in taken_up),
            "let_too_early": sum(map(len, early)),
            "left_at_the_end": trio.run(left, run),
            "settled_s_median": round(statistics.median(times), 3) if times else None,
            "settled_s_max": round(times[-1], 3) if times else None,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--own", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.own:
        trio.run(own, Path(given.own[0]), given.own[1] == "on")
        return
    report = measure(given.points, given.seed)
    json.dump(report, sys.stdout, indent=2)
    print()
    if report["not_gone"] or report["let_too_early"] or report["left_at_the_end"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
