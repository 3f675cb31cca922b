"""The kernel beside the asyncio peer's, both with backends that do nothing.

    python benchmarks/against_band.py --json FILE

Two processes, ours on Trio and band-sdk's `BackendTurns` on asyncio, are told in turns to measure
the same thing; each keeps still while the other works. A stop is `rooms.stop(room)` here and
`cancel(room)` with `owner.cancel()` there. What is long and waits for nothing (many rooms, whole
turns) is measured in processor time: on an idle machine that is the same as time, and a busy one
does not blur it. The ratio is that of the medians over the rounds, with the 95 % interval of a
bootstrap over rounds; a goal is met when the interval's upper end meets it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnstop.cli.band import BandAbsent, find_band_python

HERE = Path(__file__).parent
RESAMPLES = 2000

# What is asked of a side, and the figures that it answers: name, unit, must, aim.
ORDERS = {
    "stops": [
        ("stop() call", "us", 4.0, 2.0),
        ("asked to cancel begins", "us", 2.5, 1.2),
        ("asked to next turn admitted", "us", 4.0, 1.5),
    ],
    "many": [("stop {n:,} rooms, no-op cancel", "ms", 1.5, 0.8)],
    "many_acknowledged": [("stop {n:,} rooms, acknowledged cancel", "ms", 1.5, 0.8)],
    "turn": [("one turn, nothing remote", "us", None, None)],
    "live": [("a live turn with its task", "bytes", None, None)],
}
TO_NURSERY = ("one turn, nothing remote, to a nursery with one task", "us", 2.5, 1.8)
LIVE_MUST, LIVE_AIM = 12 * 1024, 8 * 1024
SIZES = {"stops": 200, "many": 10_000, "many_acknowledged": 10_000, "turn": 2000, "live": 1000}
SMALL = {"stops": 20, "many": 200, "many_acknowledged": 200, "turn": 100, "live": 100}
SELDOM = {"many": 4, "many_acknowledged": 4, "live": 10}  # the slow ones: in every so many rounds


class Side:
    """A process that measures when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.versions = self._read()

    def measure(self, figure: str, n: int) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"figure": figure, "n": n}) + "\n")
        self.process.stdin.flush()
        found = self._read()
        return found if isinstance(found, list) else [found]

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args!r} ended: see above")
        return json.loads(line)


@contextmanager
def open_side(python: str, script: str, *flags: str) -> Iterator[Side]:
    command = [python, *flags, os.fspath(HERE / script)]
    environ = dict(os.environ)
    if not flags:
        paths = [os.fspath(HERE.parent), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        yield Side(process)
        assert process.stdin is not None
        process.stdin.close()


Pairs = list[tuple[float, float]]


def measure(ours: Side, band: Side | None, rounds: int, sizes: dict[str, int]) -> dict[str, Pairs]:
    """Alternate, and let the one go first that went second before."""
    found: dict[str, Pairs] = {}
    for number in range(rounds):
        for order, figures in ORDERS.items():
            if number % SELDOM.get(order, 1):
                continue
            sides = [ours, band] if number % 2 else [band, ours]
            values = {side: side.measure(order, sizes[order]) for side in sides if side}
            for place, (name, *_) in enumerate(figures):
                other = values[band][place] if band else float("nan")
                found.setdefault(name, []).append((values[ours][place], other))
            if order == "turn":
                found.setdefault(TO_NURSERY[0], []).append(tuple(values[ours]))
        show_progress(number + 1, rounds)
    return found


def show_progress(done: int, rounds: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rround {done}/{rounds}" + ("\n" if done == rounds else ""))
        sys.stderr.flush()


def ratio_of(pairs: Pairs) -> float:
    ours, theirs = zip(*pairs, strict=True)
    return statistics.median(ours) / statistics.median(theirs)


def interval(pairs: Pairs) -> tuple[float, float]:
    seed = random.Random(0)
    drawn = sorted(ratio_of(seed.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return drawn[int(RESAMPLES * 0.025)], drawn[int(RESAMPLES * 0.975)]


def row(figure: str, unit: str, goals: tuple[float | None, float | None], pairs: Pairs) -> dict:
    to = "nursery" if figure == TO_NURSERY[0] else "band"
    made: dict[str, object] = {"figure": figure, "unit": unit, "rounds": len(pairs)}
    made["turnstop"] = statistics.median(ours for ours, _ in pairs)
    made["band"] = made["ratio"] = None
    if pairs[0][1] == pairs[0][1]:  # no figure of the other side is a NaN
        made[to] = statistics.median(other for _, other in pairs)
        made["ratio"], (made["ratio_low"], made["ratio_high"]) = ratio_of(pairs), interval(pairs)
    made["must"], made["aim"] = goals
    return made


def rows_of(found: dict[str, Pairs], sizes: dict[str, int]) -> list[dict]:
    names = [figure for figures in ORDERS.values() for figure in figures]
    rows = [row(name, unit, goals, found[name]) for name, unit, *goals in [*names, TO_NURSERY]]
    for made in rows:
        made["figure"] = made["figure"].format(n=sizes["many"])
        if made["unit"] == "bytes":
            made["must_bytes"], made["aim_bytes"] = LIVE_MUST, LIVE_AIM
    return rows


def table(rows: list[dict]) -> str:
    lines = [f"{'figure':<54}{'turnstop':>10}{'other':>10}{'ratio':>7}  {'95 %':<13}goal"]
    for made in rows:
        other = made.get("nursery", made["band"])
        text = f"{made['figure'] + ', ' + made['unit']:<56}{made['turnstop']:>10.1f}"
        text += f"{'-':>10}" if other is None else f"{other:>10.1f}"
        if made["ratio"] is not None:
            text += f"{made['ratio']:>7.2f}  {made['ratio_low']:.2f}-{made['ratio_high']:.2f}"
        lines.append(text if not made["must"] else f"{text:<96}{verdict(made)}")
    return "\n".join(lines)


def markdown(rows: list[dict]) -> str:
    lines = ["| figure | turnstop | band | ratio | 95 % | goal |", "|---|---|---|---|---|---|"]
    for made in rows:
        other = made.get("nursery", made["band"])
        cells = [f"{made['figure']}, {made['unit']}", f"{made['turnstop']:.1f}"]
        cells.append("" if other is None else f"{other:.1f}")
        cells.append("" if made["ratio"] is None else f"{made['ratio']:.2f}")
        between = "{ratio_low:.2f} to {ratio_high:.2f}"
        cells.append("" if made["ratio"] is None else between.format(**made))
        cells.append(verdict(made) if made["must"] else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(made: dict) -> str:
    if made["ratio"] is None:
        return ""
    for name in ("aim", "must"):
        if made["ratio_high"] <= made[name]:
            return f"{name} {made[name]} held"
    return f"must {made['must']} MISSED"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The kernel beside the asyncio peer's.")
    parser.add_argument("--json", metavar="FILE", help="write the rows there; - is stdout")
    parser.add_argument("--rounds", type=int, help="how often to alternate: 40, or 2 if small")
    parser.add_argument("--small", action="store_true", help="a smoke run: no figures to quote")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--band-python", metavar="PATH", help="a python that has band-sdk")
    return parser.parse_args()


def main() -> None:
    args = parse()
    rounds, sizes = (args.rounds or 2, SMALL) if args.small else (args.rounds or 40, SIZES)
    try:
        python = find_band_python(args.band_python)
    except BandAbsent as absent:
        print(f"without the peer: {absent}", file=sys.stderr)
        python = None
    with open_side(sys.executable, "_turnstop_side.py") as ours:
        if python is None:
            found, versions = measure(ours, None, rounds, sizes), {"turnstop": ours.versions}
        else:
            with open_side(python, "_band_side.py", "-I") as band:
                found = measure(ours, band, rounds, sizes)
            versions = {"turnstop": ours.versions, "band": band.versions}
    report = {"versions": versions, "machine": machine(), "small": args.small}
    report["rows"] = rows_of(found, sizes)
    if args.small:  # what so few rounds of so little show is that it runs
        for made in report["rows"]:
            made["must"] = made["aim"] = None
    if args.json == "-":
        print(json.dumps(report, indent=2))
        return
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=2) + "\n")
    print((markdown if args.markdown else table)(report["rows"]))


def machine() -> dict[str, object]:
    return {"system": platform.platform(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}


if __name__ == "__main__":
    main()
