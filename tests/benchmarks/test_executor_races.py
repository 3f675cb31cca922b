"""The races of successes against cancels, small; and its judge finds what it is to find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import turnstop
from turnstop.executor import Outcome, TaskState

ROOT = Path(turnstop.__file__).parent.parent
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "executor_races.py"


def test_no_task_has_two_ends() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--small"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["completed"] + found["canceled"] == found["races"] == 200


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import executor_races

    return executor_races


def outcome(state: str, result: object = None) -> Outcome:
    return Outcome("one", "room", TaskState(state), result)


COMPLETED, CANCELED = outcome("completed", "success"), outcome("canceled")


@pytest.mark.parametrize(
    ("heard", "answered", "end", "fault"),
    [
        ([COMPLETED], False, COMPLETED, None),
        ([CANCELED], True, CANCELED, None),
        ([CANCELED, COMPLETED], True, CANCELED, "double"),
        ([CANCELED, "more"], True, CANCELED, "double"),
        ([], True, CANCELED, "double"),
        ([COMPLETED], True, COMPLETED, "false"),
        ([CANCELED], False, CANCELED, "false"),
        ([outcome("completed")], False, outcome("completed"), "false"),
        ([outcome("canceled", "success")], True, outcome("canceled", "success"), "leaked"),
    ],
)
def test_its_judge(
    races: Any, heard: list[object], answered: bool, end: Outcome, fault: str | None
) -> None:
    race = races.Race()
    # What was told is the very outcome.
    race.heard = [end if one == end else one for one in heard]
    race.answered = answered
    found: Counter[str] = Counter()
    races.judge(race, end, found)
    assert [name for name in ("double", "false", "leaked") if found[name]] == [fault] * bool(fault)
