"""The bridge to asyncio, beside the asyncio peer: what it costs, what it bounds, what it leaves.

    python benchmarks/bridge.py --json FILE

Three tables. **Latency**: from the asking of a stop to the first line of the cancel call, where
that is asyncio code: ours over the bridge, and band-sdk's `BackendTurns` on asyncio itself; two
processes that are told in turns to measure, and keep still while the other works. A ratio is that
of the medians over the rounds, with the 95 % interval of a bootstrap. Take a peer of the same
Python: asyncio of 3.12 is twice as quick there as that of 3.11. **Refusals**: turns whose asyncio
code swallows cancellations for ever, each in a program of its own, that has to end. **Left**: what
a thousand stopped turns leave behind.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from against_band import Side, interval, machine, open_side, ratio_of, show_progress

from turnstop.cli.band import BandAbsent, find_band_python

HERE = Path(__file__).parent
HOSTS = {"hosted": False, "thread": True}
REFUSING = ("start", "follow", "cancel", "child")
MUST_RATIO = 1.3
ENDS_WITHIN = 30.0
FULL = {"rounds": 30, "stops": 200, "batches": 10, "turns": 100, "refusals": 5}
SMALL = {"rounds": 2, "stops": 20, "batches": 2, "turns": 10, "refusals": 1}

Columns = dict[str, list[list[float]]]


def ask(side: Side, **order: Any) -> Any:
    assert side.process.stdin is not None
    side.process.stdin.write(json.dumps(order) + "\n")
    side.process.stdin.flush()
    return side._read()


def measure(ours: Side, kernel: Side, band: Side | None, rounds: int, n: int) -> Columns:
    """Alternate between everybody, in another order each round."""
    sides: dict[str, tuple[Side, dict[str, bool]]] = {
        host: (ours, {"thread": thread}) for host, thread in HOSTS.items()
    }
    sides["kernel"] = kernel, {}
    if band is not None:
        sides["band"] = band, {}
    found: Columns = {name: [] for name in sides}
    names = [*sides]
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            side, options = sides[name]
            found[name].append(ask(side, figure="stops", n=n, **options))
        show_progress(number + 1, rounds)
    return found


def latency_rows(found: Columns, n: int) -> list[dict[str, object]]:
    rows = []
    # The others' columns are: the stop() call, asked to cancel begins, asked to the next admitted.
    others = {name: [one[1] for one in found[name]] for name in ("band", "kernel") if name in found}
    for host in HOSTS:
        begins, share, left = zip(*found[host], strict=True)
        row: dict[str, object] = {"figure": "asked to cancel begins", "host": host, "unit": "us"}
        row |= {"rounds": len(begins), "n": n * len(begins)}
        row["turnstop"], row["of_it_the_bridge"] = map(statistics.median, (begins, share))
        row["asked_to_left"] = statistics.median(left)
        for name, theirs in others.items():
            pairs = [*zip(begins, theirs, strict=True)]
            row[name], row[f"to_{name}"] = statistics.median(theirs), ratio_of(pairs)
            row[f"to_{name}_low"], row[f"to_{name}_high"] = interval(pairs)
        row["must"] = MUST_RATIO if host == "hosted" and sys.version_info >= (3, 12) else None
        rows.append(row)
    return rows


def refuse(where: str, host: str) -> dict[str, Any]:
    flags = ["--thread"] if HOSTS[host] else []
    paths = [os.fspath(HERE.parent), os.environ.get("PYTHONPATH", "")]
    with subprocess.Popen(
        [sys.executable, os.fspath(HERE / "_bridge_refusing.py"), where, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    ) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        told = time.monotonic()
        try:
            status: int | None = program.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            program.kill()
            status = None
        return {**json.loads(line or "{}"), "exit": status, "ends": time.monotonic() - told}


def refusal_row(where: str, host: str, n: int) -> dict[str, object]:
    found = [refuse(where, host) for _ in range(n)]
    took = [one["took"] for one in found]
    must = 0.1 + found[0]["cancel_within"] + found[0]["kill_within"]
    return {
        "refuses": where,
        "host": host,
        "n": n,
        "settled_s": statistics.median(took),
        "settled_max_s": max(took),
        "must_s": must,
        "unconfirmed": sum(one["ending"] == "unconfirmed" for one in found),
        "named": sum(bool(one["survivors"]) for one in found),
        "survivors": found[0]["survivors"],
        "programs_that_ended": sum(one["exit"] == 0 for one in found),
        "ends_max_s": max(one["ends"] for one in found),
    }


def table(report: dict[str, Any]) -> str:
    lines = []
    for row in report["latency"]:
        text = f"{row['figure']}, {row['host']:<7}{row['turnstop']:>8.1f} us"
        text += f", of it the bridge {row['of_it_the_bridge']:.1f}"
        for name in ("band", "kernel"):
            if name in row:
                text += f"; {row[f'to_{name}']:.2f} of {name}'s {row[name]:.1f}"
        if row["must"] and "band" in row:
            held = row["to_band_high"] <= row["must"]
            text += f"; must {row['must']} {'held' if held else 'MISSED'}"
        lines.append(text)
    for row in report["refusals"]:
        held = row["settled_max_s"] <= row["must_s"] and row["programs_that_ended"] == row["n"]
        text = f"{row['refuses'] + ' refuses, ' + row['host']:<24}{row['settled_max_s']:>7.3f} s"
        lines.append(f"{text} at most of {row['n']}; must {row['must_s']:.1f} s, and end: {held}")
    for row in report["left"]:
        counts = ", ".join(f"{row[name]} {name}" for name in ("tasks", "timers", "threads"))
        grown = row["bytes_a_batch"]
        lines.append(f"after {row['turns']} turns, {row['host']}: {counts}; bytes {grown}")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The bridge to asyncio, and what it costs.")
    parser.add_argument("--json", metavar="FILE", help="write the rows there; - is stdout")
    parser.add_argument("--rounds", type=int, help="how often to alternate: 30, or 2 if small")
    parser.add_argument("--small", action="store_true", help="a smoke run: no figures to quote")
    parser.add_argument("--band-python", metavar="PATH", help="a python that has band-sdk")
    return parser.parse_args()


def find_peer(named: str | None) -> str | None:
    try:
        return find_band_python(named)
    except BandAbsent as absent:
        print(f"without the peer: {absent}", file=sys.stderr)
        return None


def run(args: argparse.Namespace) -> dict[str, Any]:
    sizes = SMALL if args.small else FULL
    rounds, python = args.rounds or sizes["rounds"], find_peer(args.band_python)
    with (
        open_side(sys.executable, "_bridge_side.py") as ours,
        open_side(sys.executable, "_turnstop_side.py") as kernel,
    ):
        versions = {"turnstop": ours.versions}
        if python is None:
            found = measure(ours, kernel, None, rounds, sizes["stops"])
        else:
            with open_side(python, "_band_side.py", "-I") as band:
                versions["band"] = band.versions
                found = measure(ours, kernel, band, rounds, sizes["stops"])
        left = [
            {"host": host, "turns": sizes["batches"] * sizes["turns"]}
            | ask(ours, figure="left", thread=thread, n=sizes["turns"], batches=sizes["batches"])
            for host, thread in HOSTS.items()
        ]
    refusals = [refusal_row(where, host, sizes["refusals"]) for host in HOSTS for where in REFUSING]
    report = {"versions": versions, "machine": machine(), "small": args.small}
    return report | {
        "latency": latency_rows(found, sizes["stops"]),
        "refusals": refusals,
        "left": left,
    }


def main() -> None:
    args = parse()
    report = run(args)
    if args.small:  # what so few rounds of so little show is that it runs
        for row in report["latency"]:
            row["must"] = None
    if args.json == "-":
        print(json.dumps(report, indent=2))
        return
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
