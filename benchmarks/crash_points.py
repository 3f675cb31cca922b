"""A program that owns turns, killed at random points of their lives and started again.

    python benchmarks/crash_points.py                       # 200 kills, turns that are processes
    python benchmarks/crash_points.py --backend opencode    # on a real server, which lives on
    python benchmarks/crash_points.py --backend a2a --points 20 --json a2a.json
    python benchmarks/crash_points.py --small               # a smoke of each that is installed

Each program takes up what the one before has left, and at once goes on with turns in the same
rooms, until SIGKILL ends it: most in a phase of a turn's life that is drawn, and so far into it,
some at any moment; those that take up are killed as well. The last one is left alone, and has each
room answer. What is judged is what the far end itself has seen: the processes, the a2a server's
executor, the model that opencode asks, what Letta works on.

Prints JSON, progress on stderr. Status 1 where a turn was let into its room while the one before
was at work there, or was said to be gone and was not, or was never settled, or late, or could not
be told to be gone while it was at work; where anything is at work in the end, or a room does not
answer.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio
from _crash_judge import is_kept, judge, load
from _crash_owner import Plan, own
from _crash_run import LOG, Killing

BACKENDS = ("local", "a2a", "letta", "opencode")
POINTS, FEW = 200, 3
ENDS_WITHIN = 5.0
SHOWN = 4000


async def measure(backend: str, points: int, seed: int) -> dict[str, Any]:
    """Kill, and say what came of it."""
    began, before = time.monotonic(), load()
    module = importlib.import_module(f"_crash_{backend}")
    with tempfile.TemporaryDirectory(prefix="turnstop-crash-") as name:
        folder = Path(name)
        async with module.open_far(folder) as far:
            killing = Killing(backend, points, folder, far, random.Random(seed))
            unanswered = await killing.kill()
            left = await at_work_in_the_end(far)
            report = {
                "backend": backend,
                "points": points,
                "seed": seed,
                "seconds": round(time.monotonic() - began, 1),
                "load": [before, load()],
                **killing.to_json(),
                **judge(killing.account, far, folder / "turns.db"),
                "left_at_the_end": left,
                "unanswered_at_the_end": unanswered,
            }
        if not is_kept(report):
            said = (folder / LOG).read_text(errors="replace")
            print(said[-SHOWN:], file=sys.stderr)
    return report


async def at_work_in_the_end(far: Any) -> list[str]:
    """What does not end by itself either, once the last program has gone."""
    found: list[str] = []
    with trio.move_on_after(ENDS_WITHIN):
        while found := await far.at_work():  # noqa: ASYNC110 - it gives no event
            await trio.sleep(0.1)
    return found


def measure_few(backends: list[str], points: int, seed: int) -> list[dict[str, Any]]:
    """Each of them that is installed."""
    reports = []
    for backend in backends:
        try:
            reports.append(trio.run(measure, backend, points, seed))
        except BaseException as error:
            if not is_missing(error):
                raise
            print(f"{backend} is left out: {error}", file=sys.stderr)
    return reports


def is_missing(error: BaseException) -> bool:
    """Whether it says that a program or a package is not installed."""
    if isinstance(error, BaseExceptionGroup):
        return len(error.exceptions) == 1 and is_missing(error.exceptions[0])
    return isinstance(error, ImportError) or type(error).__name__ == "MissingProgram"


def stand_by(plan: Plan) -> None:
    """Wait for a line, with all that is needed imported; without one there is nothing to do."""
    importlib.import_module(f"_crash_{plan.backend}")
    with contextlib.suppress(KeyboardInterrupt):
        if sys.stdin.readline():
            trio.run(own, plan)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=BACKENDS)
    parser.add_argument("--points", type=int)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--small", action="store_true", help="few kills, of every backend here")
    parser.add_argument("--json", type=argparse.FileType("w"), default=sys.stdout, metavar="FILE")
    parser.add_argument("--own", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    given = parse()
    if given.own:
        stand_by(Plan(**json.loads(given.own)))
        return 0
    points = given.points or (FEW if given.small else POINTS)
    if given.small:
        reports = measure_few([given.backend] if given.backend else [*BACKENDS], points, given.seed)
    else:
        reports = [trio.run(measure, given.backend or "local", points, given.seed)]
    json.dump(reports if given.small else reports[0], given.json, indent=2)
    given.json.write("\n")
    return 0 if reports and all(map(is_kept, reports)) else 1


if __name__ == "__main__":
    sys.exit(main())
