"""A success and a cancel at the same moment: how often does a task get two ends, or a false one?

    python benchmarks/executor_races.py [--races 10000] [--small]

A function in a thread waits for a flag, and returns; at the same moment its task is cancelled from
Trio. Each race is one task. What is counted, of what was heard of it, of its state, and of what the
cancel had answered:

`double`      more than one end was told, or something after the end
`false`       CANCELED though the cancel had answered that it was too late, or the reverse
`leaked`      CANCELED, and a result all the same
`overlaps`    another task was granted the claim while the function ran

It prints JSON, and ends with status 1 where one of these is not 0.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import trio

from turnstop.claims import MemoryStore, open_claims
from turnstop.executor import Outcome, TaskState, ThreadJob, open_executor

ABREAST = 8


class Race:
    """One task: its function returns when it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        self.heard: list[object] = []
        self.answered: bool | None = None
        # Where the race is about equal depends on the machine: so it is tried all around.
        self.late = random.expovariate(1 / 60e-6)
        self.wait = random.choice((0.0, 1.0)) * random.expovariate(1 / 60e-6)

    def run(self, working: Counter[str], scope: str) -> str:
        working[scope] += 1
        most[scope] = max(most[scope], working[scope])
        self.reached.set()
        self.go.wait(60)
        spin(self.late)
        working[scope] -= 1
        return "success"


most: Counter[str] = Counter()


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def judge(race: Race, outcome: Outcome, found: Counter[str]) -> None:
    ends = [one for one in race.heard if isinstance(one, Outcome)]
    found[outcome.state.value] += 1
    found["double"] += ends != [outcome] or race.heard[-1:] != [outcome]
    found["false"] += (outcome.state is TaskState.CANCELED) is not race.answered
    found["leaked"] += outcome.state is TaskState.CANCELED and outcome.result is not None
    found["false"] += outcome.state is TaskState.COMPLETED and outcome.result != "success"


async def lane(number: int, races: int, executor: Any, found: Counter[str]) -> None:
    for _ in range(races):
        race = Race()
        task = executor.submit(f"room {number}", (race, f"scope/{number}"), hear=race.heard.append)
        await trio.to_thread.run_sync(race.reached.wait, 60)
        race.go.set()
        if race.wait:
            # Of this thread too: it lets go of the interpreter, so that the other may run.
            time.sleep(race.wait)  # noqa: ASYNC251
        race.answered = task.cancel()
        judge(race, await task.wait(), found)


async def run(races: int) -> Counter[str]:
    found: Counter[str] = Counter(double=0, false=0, leaked=0)
    working: Counter[str] = Counter()

    def work(job: ThreadJob) -> str:
        race, scope = job.content
        return race.run(working, scope)

    async with open_claims(MemoryStore()) as claims:

        def claim(job: ThreadJob) -> Any:
            return claims.hold([job.content[1]], holder=job.task_id)

        async with open_executor(work, claim=claim) as executor:
            async with trio.open_nursery() as nursery:
                for number in range(ABREAST):
                    share = races // ABREAST + (number < races % ABREAST)
                    nursery.start_soon(partial(lane, number, share, executor, found))
    found["overlaps"] = sum(count > 1 for count in most.values())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--races", type=int, default=10_000)
    parser.add_argument("--small", action="store_true", help="200 races")
    options = parser.parse_args()
    races = 200 if options.small else options.races
    began = time.perf_counter()
    found = trio.run(run, races)
    seconds = round(time.perf_counter() - began, 2)
    print(json.dumps({"races": races, **found, "seconds": seconds}))
    return int(any(found[bad] for bad in ("double", "false", "leaked", "failed", "overlaps")))


if __name__ == "__main__":
    sys.exit(main())
