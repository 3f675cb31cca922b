"""Play many seeds on all cores, and show the first that breaks a promise.

    python tests/schedules/run.py --seeds 10000 [--first N] [--jobs 2] [--json]
    python tests/schedules/run.py --seed N -v

Status 1: a seed failed. The same seed always gives the same run, so that a failure can be replayed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from schedules.play import Played, Stuck, play  # noqa: E402

CHUNK = 25
WALL = 60


def _too_long(*_: object) -> None:
    raise Stuck(f"busy for {WALL} s")


def play_chunk(seeds: Sequence[int]) -> tuple[Counter[str], list[Played]]:
    """In a worker: what there was, and the seeds that failed."""
    counts: Counter[str] = Counter()
    failed = []
    signal.signal(signal.SIGALRM, _too_long)
    for seed in seeds:
        # Virtual time tells when nothing moves; only a wall clock tells when nothing rests.
        signal.alarm(WALL)
        played = play(seed)
        signal.alarm(0)
        counts += played.counts
        if played.faults:
            failed.append(played)
    return counts, failed


def play_all(first: int, seeds: int, jobs: int) -> Iterator[tuple[Counter[str], list[Played]]]:
    chunks = [range(n, min(n + CHUNK, first + seeds)) for n in range(first, first + seeds, CHUNK)]
    if jobs == 1:
        yield from map(play_chunk, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(play_chunk, chunks)


def show(played: Played, verbose: bool) -> str:
    lines = [f"seed {played.seed}:", *(f"  {fault}" for fault in played.faults)]
    if verbose:
        lines.append(played.trace())
    lines.append(f"replay: python tests/schedules/run.py --seed {played.seed} -v")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10_000, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--json", action="store_true", help="print a JSON summary on stdout")
    parser.add_argument("--keep-going", action="store_true", help="play on after a failure")
    parser.add_argument("--seed", type=int, metavar="N", help="replay this one")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the whole trace")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.seed is not None:
        played = play(options.seed)
        print(show(played, options.verbose))
        return bool(played.faults)
    began, counts = time.perf_counter(), Counter[str]()
    failed: list[Played] = []
    for more, broken in play_all(options.first, options.seeds, options.jobs):
        counts += more
        failed += broken
        if broken and not options.keep_going:
            break
    took = time.perf_counter() - began
    for played in failed[:1]:
        print(show(played, True), file=sys.stderr)
    summary = {
        "seeds": options.seeds,
        "first": options.first,
        "failed": {played.seed: played.faults for played in failed},
        "seconds": round(took, 1),
        "cpu_seconds": round(sum(os.times()[:4]), 1),
        "counts": dict(sorted(counts.items())),
    }
    if options.json:
        print(json.dumps(summary))
    else:
        print(
            f"{options.seeds} seeds from {options.first}: {len(failed)} failed, {took:.1f} s, "
            f"{summary['cpu_seconds']} s of CPU"
        )
        print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return bool(failed)


if __name__ == "__main__":
    status = main()
    if status:
        # A stuck run's coroutines would be heard of at the interpreter's own exit.
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
