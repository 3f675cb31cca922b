"""Play seeded schedules on a probe.

    python -m turnstop.testing.schedules codex --seeds 500
    python -m turnstop.testing.schedules my_package.probes:MyProbe --seed 17 -v
    python -m turnstop.testing.schedules my_package:open_mine --seeds 20

What makes no probe is taken for a factory of a backend, as `bare_probe` takes it.

Exit status 1: a promise was broken. 2: there is no such probe, or it cannot be played.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import Callable

import attrs

from .._loading import Missing, load
from .._probe import Probe
from .._run import MakeProbe
from ..bare import bare_probe
from ..inventory import load_probes
from ._crash import told
from ._many import broken, target_of
from ._play import Played, play


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m turnstop.testing.schedules", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "probe", help="an adapter's name: its probes in virtual time; or MODULE:NAME"
    )
    parser.add_argument("--seeds", type=int, default=500, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--seed", type=int, metavar="N", help="play this one only")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is played")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = parse(arguments)
    try:
        probes = _find(options.probe)
    except (Missing, LookupError, ImportError, AttributeError, TypeError) as error:
        print(error.args[0] if error.args else error, file=sys.stderr)
        return 2
    found = [_play_all(make_probe, options) for make_probe in probes]
    if options.json:
        print(json.dumps(found, indent=2))
    return int(any(one["failed"] for one in found))


def _find(name: str) -> list[MakeProbe]:
    """What makes the probes: of an adapter by its name, those that need no real time."""
    if ":" not in name:
        return [make_probe for make_probe in load_probes(name) if make_probe().clock == "virtual"]
    found = load(name)
    if not callable(found):
        raise TypeError(f"{name} makes nothing: it is {found!r}")
    if inspect.iscoroutinefunction(found) or not isinstance(_make(name, found), Probe):
        return [functools.partial(bare_probe, found)]
    return [found]


def _make(name: str, found: Callable[[], object]) -> object:
    try:
        return found()
    except Exception as error:
        raise TypeError(f"{name} makes nothing: it raises {told(error)}") from error


def _play_all(make_probe: MakeProbe, options: argparse.Namespace) -> dict[str, object]:
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    began, endings, number = time.perf_counter(), Counter[str](), 0
    failed: Played | None = None
    for seed in seeds:
        played, number = play(make_probe, seed), number + 1
        endings.update(played.endings)
        if options.verbose:
            print(f"{played.schedule!r}\n{played.trace}", file=sys.stderr)
        if played.faults:
            failed = played
            break
    seconds = time.perf_counter() - began
    summary: dict[str, object] = {
        "probe": make_probe().name or target_of(make_probe),
        "seeds": number,
        "first": seeds.start,
        "turns": endings.total(),
        "endings": dict(sorted(endings.items())),
        "seconds": round(seconds, 2),
        "failed": None if failed is None else _tell(make_probe, failed),
    }
    if not options.json:
        verdict = "all promises kept" if failed is None else f"seed {failed.schedule.seed} failed"
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(endings.items()))
        print(f"{summary['probe']}: {number} seeds, {seconds:.1f} s: {verdict} ({kinds})")
    return summary


def _tell(make_probe: MakeProbe, failed: Played) -> dict[str, object]:
    """Shrink what failed, and say all of it; to people on the standard error."""
    error = broken(make_probe, failed)
    print(error, file=sys.stderr)
    small = error.shrunk or failed
    return {
        "seed": failed.schedule.seed,
        "faults": [attrs.asdict(fault) for fault in failed.faults],
        "shrunk": repr(small.schedule),
        "shrunk_faults": [attrs.asdict(fault) for fault in small.faults],
    }


if __name__ == "__main__":
    sys.exit(main())
