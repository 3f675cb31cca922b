"""Make mutants of kernel, transports and executor, and see each of them caught by a named test.

    python tests/mutants/run.py [--group transports] [--module _turn] [--sample 20 --seed 1]

Prints `{"total", "caught", "survived", "groups"}` as JSON on stdout and its progress on stderr. A
survivor is fine where its group's file in `survivors/` lists it with a reason. Status 1: one is not
listed, a listed one is caught by now or gone, or a whole group was run and fewer were caught than
`counts.toml` says.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from groups import (
    GROUP_OF,
    MODULES,
    Key,
    make_mutants,
    read_all_reasons,
    read_counts,
    tests_of,
)
from mutate import Mutant
from slots import Outcome, Slot, Stages

TRIES = 6
# What the tests import, once for all mutants.
IMPORTED = ("hypothesis", "pytest_trio", "trio.testing")


def run(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Outcome]:
    waiting, outcomes = list(reversed(mutants)), []
    listed, tries = read_all_reasons(), Counter[Key]()
    tests = {
        module: [[*stage, *options.pytest] for stage in options.tests or tests_of(module)]
        for module in GROUP_OF
    }
    with tempfile.TemporaryDirectory(prefix="turnstop-mutants-") as directory:
        slots = [Slot.make(Path(directory) / str(n)) for n in range(options.jobs)]
        try:
            patience = _measure(slots[0], mutants, tests)
            while waiting or any(slot.mutant for slot in slots):
                for slot in slots:
                    if slot.mutant and (outcome := slot.poll()):
                        key = outcome.mutant.key
                        tries[key] += 1
                        # Trio draws the order of a pass: some are caught in most runs, not in all.
                        if outcome.by is None and key not in listed and tries[key] < options.tries:
                            waiting.append(outcome.mutant)
                        else:
                            outcomes.append(outcome)
                            _progress(outcome, len(outcomes), len(mutants))
                    if slot.mutant is None and waiting:
                        mutant = waiting.pop()
                        slot.begin(mutant, tests[mutant.module], patience)
                time.sleep(0.01)
        finally:
            for slot in slots:
                slot.end()
    return outcomes


def _measure(slot: Slot, mutants: Sequence[Mutant], tests: Mapping[str, Stages]) -> float:
    """How long a test may take: some times what the slowest of them takes without a mutant."""
    of_group = {GROUP_OF[mutant.module]: tests[mutant.module] for mutant in mutants}
    return 5 + 5 * max((slot.measure(stages) for stages in of_group.values()), default=0)


def _progress(outcome: Outcome, done: int, total: int) -> None:
    mutant, by = outcome.mutant, outcome.by or "SURVIVED"
    where = f"{mutant.module}:{mutant.line} {mutant.function}: {mutant.change}"
    print(f"[{done}/{total}] {outcome.seconds:5.1f} s  {by}  <- {where}", file=sys.stderr)


def read_modules(options: argparse.Namespace) -> list[str]:
    if options.module:
        return list(options.module)
    return [module for group in options.group or MODULES for module in MODULES[group]]


def read_mutants(options: argparse.Namespace) -> list[Mutant]:
    found = make_mutants(read_modules(options))
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(found, min(options.sample, len(found)))
        return sorted(chosen, key=found.index)
    return found


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--group", action="append", choices=MODULES, help="only this one; may be repeated")
    add("--module", action="append", choices=GROUP_OF, help="only this one; may be repeated")
    add("--sample", type=int, metavar="N", help="only N of them, drawn by --seed")
    add("--seed", type=int, default=0)
    add("--tries", type=int, default=TRIES, help="how often one is run that no test catches")
    add("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    add(
        "--tests",
        nargs="+",
        action="append",
        help="what pytest is given; by default the tests of the group",
    )
    add("--pytest", action="append", default=[], metavar="ARG", help="one more, as --pytest=-k")
    add("--details", type=Path, metavar="FILE", help="which test caught which mutant, as JSON")
    add("--list", action="store_true", help="print the mutants and run nothing")
    return parser.parse_args(arguments)


def report(outcomes: Sequence[Outcome], modules: Sequence[str], whole: bool) -> dict[str, object]:
    """The JSON; with `problems` in it, where there are any."""
    reasons = read_all_reasons()
    alive = [outcome.mutant for outcome in outcomes if outcome.by is None]
    caught = {outcome.mutant.key for outcome in outcomes if outcome.by is not None}
    known = caught | {mutant.key for mutant in alive}
    problems = [f"survived, and is not listed: {m.key}" for m in alive if m.key not in reasons]
    problems += [f"listed, and caught: {key}" for key in reasons if key in caught]
    if whole:
        gone = (key for key in reasons if key[0] in modules and key not in known)
        problems += [f"listed, and gone: {key}" for key in gone]
    groups: dict[str, dict[str, int]] = {}
    for group, recorded in read_counts().items():
        total = sum(GROUP_OF[outcome.mutant.module] == group for outcome in outcomes)
        found = sum(GROUP_OF[key[0]] == group for key in caught)
        if total:
            groups[group] = {"total": total, "caught": found}
        if whole and {*MODULES[group]} <= {*modules}:
            groups[group]["recorded"] = recorded.caught
            if found < recorded.caught:
                problems.append(f"{group}: {found} caught, where {recorded.caught} were")
    survived = [_as_row(mutant, reasons.get(mutant.key)) for mutant in alive]
    told = {"total": len(outcomes), "caught": len(caught), "groups": groups, "survived": survived}
    return {**told, "problems": problems} if problems else told


def _as_row(mutant: Mutant, reason: str | None) -> dict[str, object]:
    return {
        "module": mutant.module,
        "line": mutant.line,
        "function": mutant.function,
        "change": mutant.change,
        "reason": reason,
    }


def write_details(path: Path, outcomes: Sequence[Outcome]) -> None:
    rows = [
        {
            "module": o.mutant.module,
            "function": o.mutant.function,
            "change": o.mutant.change,
            "by": o.by,
        }
        for o in outcomes
    ]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    # So that it takes its copies and its processes along, whoever ends it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = read_options(arguments)
    mutants = read_mutants(options)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.module}:{mutant.line} {mutant.function}: {mutant.change}")
        return 0
    for name in IMPORTED:
        importlib.import_module(name)
    outcomes = run(mutants, options)
    if options.details:
        write_details(options.details, outcomes)
    found = report(outcomes, read_modules(options), whole=options.sample is None)
    print(json.dumps(found, indent=1))
    return 1 if "problems" in found else 0


if __name__ == "__main__":
    sys.exit(main())
