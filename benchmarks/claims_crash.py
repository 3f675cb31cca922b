"""Programs that claim the same scopes, and are killed or stopped at random moments.

    python benchmarks/claims_crash.py                # 20 programs, 50 scopes, 60 s
    python benchmarks/claims_crash.py --small        # a smoke

Each claims one to three scopes, or a folder of ten, and writes at them, guarded by its claim. Some
stand still for longer than their claim lives, and write then; all write once more when they have
left. They are ended by SIGKILL and started again, or stopped by SIGSTOP and continued. All of it is
noted by themselves, and judged afterwards:

- `two_holders`: two claims that overlap were live at one moment. A claim is live from when it was
  granted to when a check was last begun which said so.
- `stale_writes`: at one place a smaller token has written after a greater one.
- `at_once`: at one place one has written while another did.
- `lapsed_wrote`: one has written which had stood still too long, or had left.
- `stuck`: what the killed ones held was not free once its time was over.

Prints JSON; status 1 where one of that is not 0.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstop.claims import Claim, ClaimLapsed, ClaimRefused, Claims, ClaimsUnavailable, open_claims

TTL = 1.0
FAULTS = ("two_holders", "stale_writes", "at_once", "lapsed_wrote", "stuck")
now = time.monotonic


@attrs.frozen
class Plan:
    programs: int
    scopes: int
    seconds: float
    pauses: tuple[float, float]

    @property
    def places(self) -> list[str]:
        return [f"s{number // 10}/f{number % 10}" for number in range(self.scopes)]


PLANS = {False: Plan(20, 50, 60.0, (0.1, 0.4)), True: Plan(4, 20, 8.0, (0.5, 1.0))}


# A program.


@attrs.define
class Diary:
    """Lines of JSON in a file, each written at once: who is killed has written what it did."""

    path: Path
    file: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, kind: str, **more: object) -> None:
        os.write(self.file, (json.dumps({"kind": kind, "at": now(), **more}) + "\n").encode())


@attrs.define
class Program:
    claims: Claims
    diary: Diary
    places: list[str]
    draw: random.Random

    async def run(self) -> None:
        while True:
            scopes = self._draw_scopes()
            begun = now()
            try:
                async with self.claims.hold(scopes, holder=f"pid {os.getpid()}", ttl=TTL) as claim:
                    took = now() - begun
                    self.diary.note("granted", token=claim.token, scopes=scopes, took=took)
                    await self._work(claim)
                await self._write_late(claim)
            except ClaimRefused:
                self.diary.note("refused")
            except ClaimsUnavailable as error:
                self.diary.note("unavailable", error=str(error))
            await trio.sleep(self.draw.uniform(0, 0.05))

    def _draw_scopes(self) -> list[str]:
        if self.draw.random() < 0.1:
            return [self.draw.choice(self.places).partition("/")[0]]
        return self.draw.sample(self.places, self.draw.randint(1, 3))

    async def _work(self, claim: Claim) -> None:
        try:
            for _ in range(self.draw.randint(1, 5)):
                await self._live(claim)
                scope = self.draw.choice(claim.scopes)
                place = scope if "/" in scope else f"{scope}/f{self.draw.randrange(10)}"
                await claim.write(place, self._write, claim.token, place)
                await trio.sleep(self.draw.expovariate(20))
            if self.draw.random() < 0.05:
                stand_still()
                await self._write_late(claim)
            await self._live(claim)
        except ClaimLapsed:
            self.diary.note("lapsed", why=claim.why_lost)

    async def _live(self, claim: Claim) -> None:
        begun = now()
        await claim.check(claim.scopes[0])
        self.diary.note("live", token=claim.token, then=begun)

    async def _write_late(self, claim: Claim) -> None:
        """As one that was started by it would, and knows no more than the token."""
        assert claim.token is not None
        try:
            await self.claims.write(claim.token, claim.scopes[0], list)
        except ClaimLapsed:
            self.diary.note("late refused")
        else:
            self.diary.note("lapsed wrote", token=claim.token)

    def _write(self, token: int, place: str) -> None:
        self.diary.note("write", token=token, place=place)
        time.sleep(self.draw.uniform(0, 0.002))
        self.diary.note("written", token=token, place=place)


def stand_still() -> None:
    """Nothing of this program runs, so nothing is renewed."""
    time.sleep(1.5 * TTL)


async def run_program(folder: Path, places: list[str], seed: int) -> None:
    # What is refused is noted, and is what it is about.
    logging.getLogger("turnstop.claims").setLevel(logging.CRITICAL)
    async with open_claims(folder / "claims.db") as claims:
        await Program(claims, Diary(folder / f"{seed}.diary"), places, random.Random(seed)).run()


# Who kills them.


def start(folder: Path, small: bool, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--program", str(folder), "--seed", str(seed)]
    return subprocess.Popen([*command, *(["--small"] if small else [])])


def torment(folder: Path, small: bool, plan: Plan, draw: random.Random) -> Counter[str]:
    done: Counter[str] = Counter()
    programs = [start(folder, small, seed) for seed in range(plan.programs)]
    stopped: list[tuple[float, subprocess.Popen[bytes]]] = []
    until = now() + plan.seconds
    try:
        while now() < until:
            time.sleep(draw.uniform(*plan.pauses))
            for one in [one for one in stopped if one[0] < now()]:
                stopped.remove(one)
                one[1].send_signal(signal.SIGCONT)
            number = draw.randrange(plan.programs)
            done["ended_by_themselves"] += programs[number].poll() is not None
            if draw.random() < 0.6:
                programs[number].kill()
                programs[number].wait()
                done["killed"] += 1
                programs[number] = start(folder, small, plan.programs + sum(done.values()))
            else:
                programs[number].send_signal(signal.SIGSTOP)
                stopped.append((now() + draw.uniform(0, 2 * TTL), programs[number]))
                done["stopped"] += 1
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return done


# The judge.


def read(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in folder.glob("*.diary") for line in path.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda one: one["at"])


def count_two_holders(notes: list[dict[str, Any]], places: list[str]) -> int:
    last = {one["token"]: one["then"] for one in notes if one["kind"] == "live"}
    holders: dict[str, list[tuple[float, float]]] = {place: [] for place in places}
    for one in notes:
        if one["kind"] == "granted" and one["token"] in last:
            for place in expand(one["scopes"], places):
                holders[place].append((one["at"], last[one["token"]]))
    pairs = (pair for spans in holders.values() for pair in pairwise(sorted(spans)))
    return sum(after[0] < before[1] for before, after in pairs)


def expand(scopes: list[str], places: list[str]) -> Iterator[str]:
    for place in places:
        if place in scopes or place.partition("/")[0] in scopes:
            yield place


def count_writes(notes: list[dict[str, Any]]) -> Counter[str]:
    found = Counter({"stale_writes": 0, "at_once": 0, "writes": 0})
    greatest: dict[str, int] = {}
    writing: dict[str, int] = {}
    for one in notes:
        place = one.get("place", "")
        if one["kind"] == "write":
            found["stale_writes"] += one["token"] < greatest.get(place, 0)
            greatest[place] = max(one["token"], greatest.get(place, 0))
            writing[place] = one["token"]
        elif one["kind"] == "written":
            # Nobody has begun to write there since.
            found["at_once"] += writing.get(place) != one["token"]
            found["writes"] += 1
    return found


async def is_all_free(folder: Path, plan: Plan) -> bool:
    await trio.sleep(TTL)
    folders = sorted({place.partition("/")[0] for place in plan.places})
    async with open_claims(folder / "claims.db") as claims:
        try:
            async with claims.hold(folders, holder="the last"):
                return True
        except ClaimRefused:
            return False


def judge(folder: Path, plan: Plan) -> dict[str, Any]:
    notes = read(folder)
    kinds = Counter(one["kind"] for one in notes)
    took = [one["took"] for one in notes if one["kind"] == "granted"]
    cuts = statistics.quantiles(took, n=100)
    return {
        "claims": kinds["granted"],
        "refused": kinds["refused"],
        "lapsed": kinds["lapsed"],
        "unavailable": kinds["unavailable"],
        "late_writes_refused": kinds["late refused"],
        "granted_ms_median": round(cuts[49] * 1e3, 2),
        "granted_ms_p99": round(cuts[98] * 1e3, 2),
        "two_holders": count_two_holders(notes, plan.places),
        "lapsed_wrote": kinds["lapsed wrote"],
        **count_writes(notes),
        "stuck": int(not trio.run(is_all_free, folder, plan)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, help="instead of the plan's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    plan = PLANS[given.small]
    if given.program:
        trio.run(run_program, given.program, plan.places, given.seed)
    if given.seconds:
        plan = attrs.evolve(plan, seconds=given.seconds)
    with tempfile.TemporaryDirectory() as name:
        done = torment(Path(name), given.small, plan, random.Random(given.seed))
        report = {**attrs.asdict(plan), "ttl": TTL, **done, **judge(Path(name), plan)}
    print(json.dumps(report, indent=2))
    return int(any(report[name] for name in FAULTS) or report["ended_by_themselves"] > 0)


if __name__ == "__main__":
    sys.exit(main())
