"""Starts programs, kills them, and hears what they have said: for `crash_points.py`.

The next one stands by, with all that it needs imported, and is let go on when the one before is
gone: so it looks after what was left when that may just be beginning.
"""

from __future__ import annotations

import importlib
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import attrs
import trio
from _crash_judge import Account, FarEnd
from _crash_owner import OWN, ROOMS, TAKEN_UP, Plan

SCRIPT = Path(__file__).with_name("crash_points.py")
LOG = "owners.log"
AT_ONCE = 0.2
ANYWHEN = 0.25
LIVES = 2.0
PATIENCE = 60.0
MEETINGS = 6
# The first guesses how long the phases last; then it is measured.
GUESS = 0.02
OPENING, BETWEEN = "opening", "between turns"


@attrs.define
class Life:
    """One program, as it was heard."""

    plan: Plan
    process: trio.Process
    phases: dict[str, str] = attrs.field(factory=dict)
    since: dict[str, float] = attrs.field(factory=dict)
    opened: bool = False
    ending: int | None = None

    def room_phase(self, room: str) -> str:
        """In which phase the room's turn was; of two the one that has the room."""
        found = [phase for token, phase in self.phases.items() if token.startswith(f"{room}.")]
        return next((one for one in found if one in TAKEN_UP), found[-1] if found else BETWEEN)

    def phase(self) -> str:
        """In which phase it was killed: its aim's, or that of some room."""
        if not self.opened:
            return OPENING
        phases = [self.room_phase(room) for room in ROOMS]
        aim = self.plan.aim
        if aim is not None and aim[0] in phases:
            return aim[0]
        return phases[self.plan.number % len(phases)]


@attrs.define(eq=False)
class Killing:
    """A run of it all."""

    backend: str
    points: int
    folder: Path
    far: FarEnd
    draw: random.Random
    account: Account = attrs.field(factory=Account)
    kills: Counter[str] = attrs.field(factory=Counter)
    rooms: Counter[str] = attrs.field(factory=Counter)
    with_survivors: int = 0
    by_themselves: list[int] = attrs.field(factory=list)
    lasted: defaultdict[str, list[float]] = attrs.field(factory=lambda: defaultdict(list))
    _standby: Life | None = None

    async def _begin(self, number: int) -> Life:
        module = importlib.import_module(f"_crash_{self.backend}")
        goes_on = number < self.points
        seed, aim = self.draw.randrange(2**32), self._aim() if goes_on else None
        told = (str(self.folder), self.far.options, module.WORDS, module.LONGEST, number, seed)
        plan = Plan(self.backend, *told, aim, goes_on)
        command = [sys.executable, str(SCRIPT), "--own", json.dumps(attrs.asdict(plan))]
        pipe = subprocess.PIPE
        async with await trio.open_file(self.folder / LOG, "ab") as log:
            process = await trio.lowlevel.open_process(
                command, stdin=pipe, stdout=pipe, stderr=log.fileno()
            )
        return Life(plan, process)

    def _aim(self) -> tuple[str, int, float] | None:
        if self.draw.random() < ANYWHEN:
            return None
        phase = self.draw.choice([*OWN, *TAKEN_UP])
        lasts = statistics.median(self.lasted.get(phase, [GUESS]))
        delay = 0.0 if self.draw.random() < AT_ONCE else self.draw.uniform(0, 1.3 * lasts)
        which = self.draw.randint(1, len(ROOMS) if phase in TAKEN_UP else MEETINGS)
        return phase, which, delay

    async def kill(self) -> list[str]:
        """Kill them all, and leave the last one alone; the rooms in which it had no answer."""
        began = time.monotonic()
        try:
            for number in range(self.points):
                await self._kill_one(number)
                tell_progress(number + 1, self.points, began)
            return await self._finish(self.points)
        finally:
            if self._standby is not None:
                self._standby.process.kill()

    async def _kill_one(self, number: int) -> None:
        life = await self._next(number)
        lives = LIVES if life.plan.aim is None else 4 * LIVES
        await self._run(life, self.draw.uniform(0, lives) if life.plan.aim is None else lives)
        if life.ending != -signal.SIGKILL:
            self.by_themselves.append(number)
        self.kills[life.phase()] += 1
        self.rooms.update(life.room_phase(room) for room in ROOMS if life.opened)
        for token, phase in life.phases.items():
            self.account.left.setdefault(token, phase)
        survivors = await self.far.at_work()
        self.account.survivors.update(survivors)
        self.with_survivors += bool(survivors)

    async def _finish(self, number: int) -> list[str]:
        life = await self._next(number)
        await self._run(life, None)
        if life.ending != 0:
            self.by_themselves.append(number)
        last = [self.account.settled.get(f"{room}.{number}.0") for room in ROOMS]
        return [
            room
            for room, said in zip(ROOMS, last, strict=True)
            if said is None or said["ending"] != "finished"
        ]

    async def _next(self, number: int) -> Life:
        """The one that has stood by, and another in its place: it looks as soon as it is let."""
        life = self._standby or await self._begin(number)
        self._standby = await self._begin(number + 1) if number < self.points else None
        assert life.process.stdin is not None
        await life.process.stdin.send_all(b"\n")
        return life

    async def _run(self, life: Life, lives: float | None) -> None:
        try:
            async with trio.open_nursery() as nursery:
                opened = trio.Event()
                nursery.start_soon(self._end, life.process, opened, lives)
                await self._hear(life, opened)
                life.ending = await life.process.wait()
                nursery.cancel_scope.cancel()
        finally:
            life.process.kill()

    async def _end(self, process: trio.Process, opened: trio.Event, lives: float | None) -> None:
        with trio.move_on_after(PATIENCE):
            await opened.wait()
            await trio.sleep(PATIENCE if lives is None else lives)
        process.kill()

    async def _hear(self, life: Life, opened: trio.Event) -> None:
        assert life.process.stdout is not None
        buffer = b""
        async for chunk in life.process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                await self._note(life, json.loads(line))
                if life.opened:
                    opened.set()

    async def _note(self, life: Life, said: dict[str, Any]) -> None:
        life.opened |= "open" in said
        if "failed" in said:
            self.account.failures.append(f"{said['failed']}: {said['error']}")
        if (token := said.get("turn")) is None:
            return
        if (before := life.phases.get(token)) is not None:
            self.lasted[before].append(said["at"] - life.since[token])
        life.phases[token], life.since[token] = said["phase"], said["at"]
        if said["phase"] == "settled":
            del life.phases[token]
            self.account.note(said)
            if said["gone"]:
                await self.far.settled(token)

    def to_json(self) -> dict[str, Any]:
        phases = [OPENING, BETWEEN, *OWN, *TAKEN_UP]
        return {
            "kills_in_phase": {phase: self.kills[phase] for phase in phases},
            "rooms_in_phase": {phase: self.rooms[phase] for phase in phases},
            "kills_that_left_work": self.with_survivors,
            "ended_by_themselves": self.by_themselves,
        }


def tell_progress(number: int, points: int, since: float) -> None:
    if number % 10 == 0 or number == points:
        took = time.monotonic() - since
        print(f"{number} of {points} kills, {took:.0f} s", file=sys.stderr, flush=True)
