"""Many turns of the real Claude Code in one session, each stopped at a random moment.

    python benchmarks/claude_many_stops.py          # 500 turns
    python benchmarks/claude_many_stops.py --small  # a smoke
    python benchmarks/claude_many_stops.py --raw    # the same turns by the bare protocol

The lab is the model. Every turn is told words of its own, and must hear no other's; no work of a
stopped turn goes on; the history that the model is given is valid each time; and neither this
process nor Claude's grows with the number of turns. What the bare protocol shows of Claude's is the
cost of the conversation itself. Prints JSON; status 1 where one of that is not so. Needs the extra
`lab`, and the program: `turnstop lab install claude`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio

import turnstop
from turnstop.adapters.claude import open_claude
from turnstop.cli.bench.raw import RawRunner
from turnstop.cli.bench.raw_claude import open_raw_claude
from turnstop.events import Text
from turnstop.lab import Behaviour, Lab, find_program, open_lab, program_env, write_prompt

TURNS, SMALL = 500, 10
PATIENCE = 30.0
MAY_SEE_LATE = 0.25
# What was said 20 ms ago was heard.
HEARD = 0.02
# Where a stop comes: with the message, soon after it, or once the model has spoken; or never.
MOMENTS = ("at once", "early", "speaking", "silent", "never")
WORD = re.compile(r"<([\w.-]+)>")
# The history of 500 turns is kept by Claude, and grows: this is what it may cost.
CLAUDE_MAY_GROW, OURS_MAY_GROW = 150.0, 30.0


@attrs.define
class Tally:
    """What was seen.

    Attributes:
        foreign: words that a turn heard and that were another's, with the turn's number.
        leaked: turns whose model requests stayed open after their settlement.
        seen_late: milliseconds, where the endpoint saw the end after the settlement.
        endings: how turns ended, by the moment of their stop.
        latencies: milliseconds from the asking to the end.
        memory: MB of this process, and of Claude's, after so many turns.
    """

    foreign: list[tuple[int, str]] = attrs.field(factory=list)
    leaked: list[int] = attrs.field(factory=list)
    seen_late: list[float] = attrs.field(factory=list)
    unlike: list[str] = attrs.field(factory=list)
    endings: Counter[str] = attrs.field(factory=Counter)
    latencies: list[float] = attrs.field(factory=list)
    memory: dict[int, tuple[float, float]] = attrs.field(factory=dict)

    def faults(self, lab: Lab) -> list[str]:
        """What is not as it should be."""
        found = [f"turn {number} heard <{word}>" for number, word in self.foreign]
        found += [f"turn {number} went on after its stop" for number in self.leaked]
        found += self.unlike + [str(fault) for fault in lab.faults]
        first, last = (self.memory[number] for number in (min(self.memory), max(self.memory)))
        for name, allowed, before, after in zip(
            ("this process", "claude"), (OURS_MAY_GROW, CLAUDE_MAY_GROW), first, last, strict=True
        ):
            if after - before > allowed:
                found.append(f"{name} grew from {before:.0f} MB to {after:.0f} MB")
        return found


@attrs.define
class Revealing:
    """Claude, and when it was sent a message."""

    claude: Any
    sent: trio.Event = attrs.field(factory=trio.Event)

    async def start(self, request: Any) -> Any:
        """Start the turn, and tell."""
        remote = await self.claude.start(request)
        self.sent.set()
        return remote


async def read_until(turn: turnstop.Turn, heard: list[str], token: str) -> None:
    """Read until the turn has heard a word of its own."""
    async for event in turn:
        if isinstance(event, Text):
            heard.append(event.delta)
            if f"<{token}>" in "".join(heard):
                return


async def take_turn(
    rooms: turnstop.Rooms[Any],
    claude: Revealing,
    lab: Lab,
    tally: Tally,
    number: int,
    chance: random.Random,
) -> None:
    """One turn."""
    moment = chance.choice(MOMENTS)
    claude.sent = trio.Event()
    token, prompt = write_prompt(Behaviour("park", 0))
    heard: list[str] = []
    async with rooms.turn("kitchen", prompt) as turn:
        await claude.sent.wait()
        if moment == "early":
            await trio.sleep(chance.uniform(0.0, 0.06))
        if moment in ("speaking", "silent", "never"):
            await lab.parked(token)
            lab.order(token, "say", f"<{token}> ")
            await read_until(turn, heard, token)
        if moment == "silent":
            await trio.sleep(HEARD)
        if moment == "never":
            lab.order(token, "end")
        else:
            turn.stop()
        async for event in turn:
            heard += [event.delta] if isinstance(event, Text) else []
    settlement = turn.settlement
    assert settlement is not None
    tally.endings[f"{moment}: {settlement.ending.value}"] += 1
    if (settlement.ending is turnstop.Ending.FINISHED) != (moment == "never"):
        tally.unlike.append(f"turn {number}, stopped {moment}: {settlement.to_json()}")
    if settlement.asked_at is not None and settlement.ended_at is not None and moment != "never":
        tally.latencies.append((settlement.ended_at - settlement.asked_at) * 1e3)
    tally.foreign += [(number, word) for word in WORD.findall("".join(heard)) if word != token]
    await see_the_end(lab, tally, number, token)


async def take_raw_turn(
    runner: RawRunner, lab: Lab, tally: Tally, number: int, chance: random.Random
) -> None:
    """The same one by the bare protocol, which tells nobody what was said."""
    moment = chance.choice(MOMENTS)
    token, prompt = write_prompt(Behaviour("park", 0))
    run = await runner.begin("kitchen", prompt)
    await run.left.wait()
    if moment == "early":
        await trio.sleep(chance.uniform(0.0, 0.06))
    if moment in ("speaking", "silent", "never"):
        await lab.parked(token)
        lab.order(token, "say", f"<{token}> ")
        await trio.sleep(HEARD)
    if moment == "never":
        lab.order(token, "end")
    else:
        await run.stop()
    outcome = await run.settled()
    tally.endings[f"{moment}: {outcome.ending.lower()}"] += 1
    if (outcome.ending == "FINISHED") != (moment == "never"):
        tally.unlike.append(f"turn {number}, stopped {moment}: {outcome}")
    if outcome.asked_at is not None and outcome.ended_at is not None:
        tally.latencies.append((outcome.ended_at - outcome.asked_at) * 1e3)
    await see_the_end(lab, tally, number, token)


async def see_the_end(lab: Lab, tally: Tally, number: int, token: str) -> None:
    """Its requests are closed when it is over, or a little later."""
    if lab.open_requests(token):
        # The endpoint may see a little later than Claude says it that a connection is closed.
        settled = trio.current_time()
        with trio.move_on_after(MAY_SEE_LATE):
            await lab.gone(token)
        tally.seen_late.append((trio.current_time() - settled) * 1e3)
        if lab.open_requests(token):
            tally.leaked.append(number)


def resident(pid: str | int) -> float:
    """MB of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


Take: TypeAlias = Callable[[Lab, Tally, int, random.Random], Awaitable[None]]


@asynccontextmanager
async def open_turns(raw: bool, env: dict[str, str], home: str) -> AsyncGenerator[Take, None]:
    """What takes a turn of the session."""
    program = find_program("claude")
    if raw:
        async with open_raw_claude([program.path], home, env) as runner:
            yield partial(take_raw_turn, runner)
        return
    async with (
        open_claude(program.path, cwd=home, env=env, setting_sources=()) as plain,
        turnstop.open_rooms(claude := Revealing(plain)) as rooms,
    ):
        yield partial(take_turn, rooms, claude)


async def measure(turns: int, seed: int, raw: bool) -> dict[str, Any]:
    """Take them, one after the other."""
    chance, tally = random.Random(seed), Tally()
    looks = {max(turns // 10, 2), turns // 2, turns}
    with tempfile.TemporaryDirectory(prefix="many-stops-", ignore_cleanup_errors=True) as home:
        async with open_lab() as lab:
            env = program_env("claude", lab.url, home)
            async with open_turns(raw, env, home) as take:
                began = trio.current_time()
                for number in range(1, turns + 1):
                    with trio.fail_after(PATIENCE):
                        await take(lab, tally, number, chance)
                    if number in looks:
                        tally.memory[number] = resident("self"), resident(claude_pid(home))
                    # The lab keeps all that it was asked: that is no memory of ours.
                    forget(lab)
                took = trio.current_time() - began
            faults = tally.faults(lab)
    latencies = sorted(tally.latencies)
    return {
        "benchmark": "claude many stops",
        "program": f"claude {await find_program('claude').version()}",
        "by": "the bare protocol" if raw else "turnstop",
        "turns": turns,
        "seed": seed,
        "seconds": round(took, 1),
        "endings": dict(sorted(tally.endings.items())),
        "asked_to_ended_ms": {
            "n": len(latencies),
            "median": round(statistics.median(latencies), 1) if latencies else None,
            "p95": round(latencies[int(len(latencies) * 0.95)], 1) if latencies else None,
            "max": round(latencies[-1], 1) if latencies else None,
        },
        "endpoint_saw_late_ms": [round(late, 1) for late in tally.seen_late],
        "memory_mb": {
            number: {"ours": round(ours, 1), "claude": round(theirs, 1)}
            for number, (ours, theirs) in tally.memory.items()
        },
        "faults": faults,
    }


def claude_pid(home: str) -> str:
    """Claude's process, found by its home."""
    needle = f"CLAUDE_CONFIG_DIR={home}/".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (entry / "environ").read_bytes():
                return entry.name
        except OSError:
            continue
    raise SystemExit("claude has ended")


def forget(lab: Lab) -> None:
    """Let go of the bodies of requests that have been answered."""
    for exchange in lab.exchanges[:-1]:
        exchange.body = b""


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help=f"{SMALL} turns: a smoke")
    parser.add_argument("--turns", type=int, default=None, help=f"how many; {TURNS} by default")
    parser.add_argument("--raw", action="store_true", help="by the bare protocol")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    turns = given.turns or (SMALL if given.small else TURNS)
    figures = trio.run(measure, turns, given.seed, given.raw)
    print(json.dumps(figures, indent=2))
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
