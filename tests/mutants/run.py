"""Make mutants of the kernel, and see each of them caught by a named test.

    python tests/mutants/run.py [--module _turn] [--sample 20 --seed 1] [--details FILE]

Prints `{"total", "caught", "survived"}` as JSON on stdout and its progress on stderr. A survivor
is fine where `survivors.toml` lists it with a reason. Status 1: one is not listed, or a listed one
is caught by now or gone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Sequence
from pathlib import Path

import attrs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from mutate import Mutant, mutants_of  # noqa: E402

MODULES = (
    "_service",
    "_gate",
    "_admission",
    "_unwrap",
    "_watch",
    "_workers",
    "_house",
    "_receipt",
    "_calls",
    "_account",
    "_life",
    "_turn",
    "_rooms",
)
MEMORY = 4 << 30
LONGEST = 600
TRIES = 6
# Their own plugins are imported before pytest could rewrite their asserts.
EARLY = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
PYTEST = ("-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-W", EARLY)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@attrs.frozen
class Outcome:
    mutant: Mutant
    by: str | None
    """The test that failed, `hang`, `crash`, or None: it survived."""
    seconds: float


@attrs.define(eq=False)
class Slot:
    """A copy of the tree in which one mutant at a time is run."""

    tree: Path
    pid: int = 0
    mutant: Mutant | None = None
    since: float = 0.0

    @classmethod
    def make(cls, tree: Path) -> Slot:
        skip = shutil.ignore_patterns("__pycache__")
        for name in ("turnstop", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", tree)
        return cls(tree)

    def begin(self, mutant: Mutant | None, tests: Sequence[str]) -> None:
        self.mutant, self.since = mutant, time.monotonic()
        if mutant is not None:
            self._module(mutant).write_text(mutant.source, encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _be_pytest(self.tree, tests)

    def poll(self, limit: float) -> Outcome | None:
        """What came of it, or None: it runs yet."""
        assert self.mutant is not None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        seconds = time.monotonic() - self.since
        if pid == 0 and seconds < limit:
            return None
        if pid == 0:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        by = "hang" if pid == 0 else self.verdict(os.waitstatus_to_exitcode(status))
        original = ROOT / "turnstop" / f"{self.mutant.module}.py"
        shutil.copy(original, self._module(self.mutant))
        return Outcome(self.mutant, by, seconds)

    def verdict(self, code: int) -> str | None:
        if code == 0:
            return None
        found = FAILED.search((self.tree / "log").read_text(encoding="utf-8", errors="replace"))
        return found[1] if found else "crash"

    def _module(self, mutant: Mutant) -> Path:
        return self.tree / "turnstop" / f"{mutant.module}.py"


def _be_pytest(tree: Path, tests: Sequence[str]) -> None:
    # Forked after the imports, so that a mutant does not pay for them again. The tree goes first
    # on the path: its turnstop is the mutant, whatever is installed.
    code = 3
    try:
        os.setsid()
        os.chdir(tree)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(tree))
        code = int(pytest.main([*PYTEST, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def measure(slot: Slot, tests: Sequence[str]) -> float:
    """How long the tests take on the tree as it is; they have to pass."""
    slot.begin(None, tests)
    while (seconds := time.monotonic() - slot.since) < LONGEST:
        pid, status = os.waitpid(slot.pid, os.WNOHANG)
        if pid and status == 0:
            return seconds
        if pid:
            sys.exit(f"the tests fail without a mutant:\n{(slot.tree / 'log').read_text()}")
        time.sleep(0.01)
    os.killpg(slot.pid, signal.SIGKILL)
    os.waitpid(slot.pid, 0)
    sys.exit(f"the tests do not end within {LONGEST} s without a mutant")


def run(mutants: Sequence[Mutant], tests: Sequence[str], jobs: int) -> list[Outcome]:
    waiting, outcomes = list(reversed(mutants)), []
    listed, tries = read_reasons(), {}
    with tempfile.TemporaryDirectory(prefix="turnstop-mutants-") as directory:
        slots = [Slot.make(Path(directory) / str(n)) for n in range(jobs)]
        try:
            limit = 5 * measure(slots[0], tests) + 10
            while waiting or any(slot.mutant for slot in slots):
                for slot in slots:
                    if slot.mutant and (outcome := slot.poll(limit)):
                        key = slot.mutant.key
                        tries[key] = tries.get(key, 0) + 1
                        # Trio draws the order of a pass: some are caught in most runs, not in all.
                        if outcome.by is None and key not in listed and tries[key] < TRIES:
                            waiting.append(slot.mutant)
                        else:
                            outcomes.append(outcome)
                            _progress(outcome, len(outcomes), len(mutants))
                        slot.mutant = None
                    if slot.mutant is None and waiting:
                        slot.begin(waiting.pop(), tests)
                time.sleep(0.01)
        finally:
            for slot in slots:
                if slot.mutant:
                    os.killpg(slot.pid, signal.SIGKILL)
                    os.waitpid(slot.pid, 0)
    return outcomes


def _progress(outcome: Outcome, done: int, total: int) -> None:
    mutant, by = outcome.mutant, outcome.by or "SURVIVED"
    where = f"{mutant.module}:{mutant.line} {mutant.function}: {mutant.change}"
    print(f"[{done}/{total}] {outcome.seconds:5.1f} s  {by}  <- {where}", file=sys.stderr)


def read_reasons() -> dict[tuple[str, str, str], str]:
    with (HERE / "survivors.toml").open("rb") as file:
        listed = tomllib.load(file).get("survivor", [])
    return {(row["module"], row["function"], row["change"]): row["reason"] for row in listed}


def read_mutants(options: argparse.Namespace) -> list[Mutant]:
    found: list[Mutant] = []
    for module in options.module or MODULES:
        source = (ROOT / "turnstop" / f"{module}.py").read_text(encoding="utf-8")
        found += mutants_of(module, source)
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(found, min(options.sample, len(found)))
        return sorted(chosen, key=found.index)
    return found


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--module", action="append", choices=MODULES, help="only this one; may be repeated")
    add("--sample", type=int, metavar="N", help="only N of them, drawn by --seed")
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    add("--tests", nargs="+", default=["tests/kernel"], help="what pytest is given")
    add("--pytest", action="append", default=[], metavar="ARG", help="one more, as --pytest=-k")
    add("--details", type=Path, metavar="FILE", help="which test caught which mutant, as JSON")
    add("--list", action="store_true", help="print the mutants and run nothing")
    return parser.parse_args(arguments)


def report(outcomes: Sequence[Outcome], whole: bool) -> tuple[dict[str, object], bool]:
    """The JSON, and whether every survivor has a reason and every reason a survivor."""
    reasons = read_reasons()
    alive = [o.mutant for o in outcomes if o.by is None]
    caught = {o.mutant.key for o in outcomes if o.by is not None}
    known = caught | {mutant.key for mutant in alive}
    stale = [key for key in reasons if key in caught or (whole and key not in known)]
    survived = [
        {
            "module": mutant.module,
            "line": mutant.line,
            "function": mutant.function,
            "change": mutant.change,
            "reason": reasons.get(mutant.key),
        }
        for mutant in alive
    ]
    found: dict[str, object] = {
        "total": len(outcomes),
        "caught": len(caught),
        "survived": survived,
    }
    if stale:
        found["listed_but_caught_or_gone"] = stale
    return found, not stale and all(mutant.key in reasons for mutant in alive)


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
    options = read_options(arguments)
    mutants = read_mutants(options)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.module}:{mutant.line} {mutant.function}: {mutant.change}")
        return 0
    outcomes = run(mutants, [*options.tests, *options.pytest], options.jobs)
    if options.details:
        write_details(options.details, outcomes)
    found, good = report(outcomes, whole=not options.module and options.sample is None)
    print(json.dumps(found, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    # What every mutant imports, once.
    import hypothesis  # noqa: F401
    import pytest
    import pytest_trio  # type: ignore[import-untyped]  # noqa: F401
    import trio.testing  # noqa: F401

    sys.exit(main())
