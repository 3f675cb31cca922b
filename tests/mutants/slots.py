"""Where one mutant at a time is run: a copy of the tree, and a process that ends all it started.

Tests of a broken transport leave programs behind, in sessions and groups of their own. So each run
has a keeper, which is told to be the parent of whatever loses its own: it outlives pytest, and
ends what is left by killing its children until it has none. A child that it has not reaped keeps
its pid, so that nobody else is ever hit.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import attrs
import pytest
from groups import ROOT, path_of
from mutate import Mutant

MEMORY = 4 << 30
# What pytest is given, one after the other until something fails.
Stages = Sequence[Sequence[str]]
HANG, CRASH = 98, 99
FINE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
# Their own plugins are imported before pytest could rewrite their asserts.
EARLY = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
PYTEST = ("-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-W", EARLY)


@attrs.frozen
class Outcome:
    mutant: Mutant
    by: str | None
    """The test that failed, the one that hung, `crash`, or None: it survived."""
    seconds: float


@attrs.define(eq=False)
class Slot:
    """A copy of the tree in which one mutant at a time is run."""

    tree: Path
    pid: int = 0
    mutant: Mutant | None = None
    original: str = ""
    since: float = 0.0

    @classmethod
    def make(cls, tree: Path) -> Slot:
        skip = shutil.ignore_patterns("__pycache__")
        for name in ("turnstop", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", tree)
        return cls(tree)

    def begin(self, mutant: Mutant | None, tests: Stages, patience: float) -> None:
        self.mutant, self.since = mutant, time.monotonic()
        if mutant is not None:
            path = self.tree / path_of(mutant.module)
            self.original = path.read_text(encoding="utf-8")
            path.write_text(mutant.source, encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _keep(self.tree, tests, patience)

    def poll(self) -> Outcome | None:
        """What came of it, or None: it runs yet."""
        assert self.mutant is not None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        by = self._verdict(os.waitstatus_to_exitcode(status))
        (self.tree / path_of(self.mutant.module)).write_text(self.original, encoding="utf-8")
        outcome = Outcome(self.mutant, by, time.monotonic() - self.since)
        self.pid, self.mutant = 0, None
        return outcome

    def measure(self, tests: Stages) -> float:
        """How long the slowest test, or their import, takes on the tree as it is; all must pass."""
        self.begin(None, tests, patience=60)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if os.waitstatus_to_exitcode(status) not in FINE:
            sys.exit(f"the tests fail without a mutant:\n{(self.tree / 'log').read_text()}")
        return float((self.tree / "longest").read_text())

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)

    def _verdict(self, code: int) -> str | None:
        if code in FINE:
            return None
        failed = _read(self.tree / "failed")
        if failed or code != HANG:
            return failed or "crash"
        return f"hang in {_read(self.tree / 'now') or 'an import'}"


@attrs.define(eq=False)
class Watcher:
    """A plugin that writes down which test runs, which failed, and the longest silence so far."""

    tree: Path
    since: float = attrs.field(factory=time.monotonic)
    longest: float = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        (self.tree / "now").write_text(nodeid, encoding="utf-8")
        now = time.monotonic()
        self.longest, self.since = max(self.longest, now - self.since), now

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            (self.tree / "failed").write_text(report.nodeid, encoding="utf-8")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            (self.tree / "failed").write_text(report.nodeid, encoding="utf-8")

    def pytest_sessionfinish(self) -> None:
        path = self.tree / "longest"
        longest = max(self.longest, time.monotonic() - self.since, float(_read(path) or 0))
        path.write_text(str(longest), encoding="utf-8")


def _keep(tree: Path, tests: Stages, patience: float) -> NoReturn:
    code = CRASH
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if sys.platform == "linux":
            libc = ctypes.CDLL(None)
            libc.prctl(SET_CHILD_SUBREAPER, 1)
            libc.prctl(SET_PDEATHSIG, signal.SIGTERM)
        for name in ("now", "failed", "longest"):
            (tree / name).unlink(missing_ok=True)
        pytest_pid = os.fork()
        if pytest_pid == 0:
            _be_pytest(tree, tests)
        try:
            code = _wait(pytest_pid, tree / "now", patience)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _end_children()
    finally:
        os._exit(code)


def _wait(pytest_pid: int, now: Path, patience: float) -> int:
    seen, since = "", time.monotonic()
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == pytest_pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else CRASH
        if pid == 0:
            if (test := _read(now)) != seen:
                seen, since = test, time.monotonic()
            if time.monotonic() - since > patience:
                return HANG
            time.sleep(0.01)


def _end_children() -> None:
    with suppress(ChildProcessError):
        while True:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.005)


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _read(stat).rpartition(")")[2].split()
        if fields and int(fields[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _be_pytest(tree: Path, tests: Stages) -> NoReturn:
    # Forked after the imports, so that a mutant does not pay for them again. The tree goes first
    # on the path: its turnstop is the mutant, whatever is installed.
    code = CRASH
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.chdir(tree)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(tree))
        for stage in tests:
            code = int(pytest.main([*PYTEST, *stage], plugins=[Watcher(tree)]))
            if code not in FINE:
                break
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
