"""Turns of the real Copilot that are stopped, each with a turn that waits to replace it.

    python benchmarks/copilot_replacements.py          # 50 of each
    python benchmarks/copilot_replacements.py --small  # a smoke

An abort is answered before the session is idle, as a rule, and the idle names no message. A client
that sends the next message behind the abort, and waits for an idle, may take the stopped turn's for
the new one's: the bare SDK does so in its older versions, which is shown beside. Here a replacement
has to answer, in words of its own, whenever its forerunner is stopped. Prints JSON; status 1 where
one did not. Needs the extras `copilot` and `lab`, and the program: `turnstop lab install copilot`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections import Counter
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing

import turnstop
from turnstop.adapters.copilot import open_copilot
from turnstop.events import Text
from turnstop.lab import (
    Behaviour,
    Lab,
    copilot_session,
    find_program,
    open_lab,
    program_env,
    write_prompt,
)

PAIRS, SMALL = 50, 4
PATIENCE = 60.0
BARE = Path(__file__).with_name("_copilot_bare.py")
MOMENTS = ("at once", "early", "speaking", "finishing")


@attrs.define
class Tally:
    """What was seen of the pairs.

    Attributes:
        wrong: replacements that ended without an answer of their own, by the stop's moment.
        endings: how the stopped turns ended, by the moment.
        alive: stopped turns whose model call was open when they were settled.
        ended: milliseconds from the asking to the end.
    """

    wrong: Counter[str] = attrs.field(factory=Counter)
    endings: Counter[str] = attrs.field(factory=Counter)
    alive: int = 0
    ended: list[float] = attrs.field(factory=list)


async def replace(rooms: turnstop.Rooms[Any], lab: Lab, moment: str, tally: Tally) -> None:
    """Stop a turn, with its replacement in the queue."""
    token, parked = write_prompt(Behaviour("park"))
    other, prompt = write_prompt(Behaviour("answer"))
    said: list[str] = []
    async with trio.open_nursery() as nursery:
        async with rooms.turn("kitchen", parked) as turn:
            nursery.start_soon(listen, rooms, prompt, said)
            await trio.testing.wait_all_tasks_blocked()
            if moment == "early":
                await trio.sleep(random.uniform(0, 0.03))
            elif moment != "at once":
                await lab.parked(token)
            if moment == "finishing":
                lab.release(token)
                await trio.sleep(random.uniform(0, 0.01))
            turn.stop()
            await trio.sleep_forever()
        settlement = turn.settlement
        assert settlement is not None
        tally.alive += settlement.gone and bool(lab.alive(token))
        tally.endings[f"{moment}: {settlement.ending.name}"] += 1
        if settlement.asked_at is not None and settlement.ended_at is not None:
            tally.ended.append((settlement.ended_at - settlement.asked_at) * 1000)
    tally.wrong[moment] += "".join(said) != f"answer to {other}"


async def listen(rooms: turnstop.Rooms[Any], prompt: str, said: list[str]) -> None:
    async with rooms.turn("kitchen", prompt) as turn:
        said.extend([event.delta async for event in turn if isinstance(event, Text)])


async def measure(pairs: int, small: bool) -> dict[str, Any]:
    tally = Tally()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        async with open_lab() as lab:
            env = program_env("copilot", lab.url, home)
            program, session = find_program("copilot"), copilot_session(lab.url)
            async with open_copilot(program.path, cwd=home, env=env, **session) as copilot:
                async with turnstop.open_rooms(copilot) as rooms:
                    for number in range(pairs):
                        with trio.fail_after(PATIENCE):
                            await replace(rooms, lab, MOMENTS[number % len(MOMENTS)], tally)
            bare = {"program": program.path, "cwd": home, "env": env, "session": session}
            wrong = await ask_bare(bare, pairs)
            faults = [fault.text for fault in lab.faults]
    return {
        "sdk": version("github-copilot-sdk"),
        "cli": program.pin.version,
        "replacements": pairs,
        "ended_on_the_stopped_turns_idle": tally.wrong.total(),
        "the_same_by_the_bare_sdk": wrong,
        "alive_when_called_gone": tally.alive,
        "invalid_histories": faults,
        "endings": dict(sorted(tally.endings.items())),
        "asked_to_ended_ms": statistics.median(tally.ended) if tally.ended else None,
        "small": small,
    }


async def ask_bare(given: dict[str, Any], pairs: int) -> int:
    """How many replacements the bare SDK takes the stopped turn's idle for the end of."""
    prompts = []
    for _ in range(pairs):
        token, prompt = write_prompt(Behaviour("answer"))
        prompts.append((write_prompt(Behaviour("park"))[1], prompt, f"answer to {token}"))
    done = await trio.run_process(
        [sys.executable, BARE],
        stdin=json.dumps({**given, "pairs": prompts}).encode(),
        capture_stdout=True,
        capture_stderr=True,
    )
    return int(json.loads(done.stdout)["wrong"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a smoke")
    small = parser.parse_args().small
    found = trio.run(partial(measure, SMALL if small else PAIRS, small))
    print(json.dumps(found, indent=1))
    lost = found["ended_on_the_stopped_turns_idle"], found["alive_when_called_gone"]
    return int(any(lost) or bool(found["invalid_histories"]))


if __name__ == "__main__":
    sys.exit(main())
