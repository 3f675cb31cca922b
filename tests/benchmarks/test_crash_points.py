"""Owners of turns are killed, a few times; and the judge finds what it is to find."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import turnstop

ROOT = Path(turnstop.__file__).parent.parent
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "crash_points.py"


@pytest.mark.parametrize(
    ("backend", "needs"), [("local", "attrs"), ("a2a", "uvicorn"), ("letta", "letta_client")]
)
def test_a_program_that_is_killed_leaves_nothing(backend: str, needs: str) -> None:
    pytest.importorskip(needs)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--small", "--backend", backend, "--points", "3"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)
    assert sum(found["kills_in_phase"].values()) == 3
    assert found["turns"] > 3


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import _crash_judge

    return _crash_judge


class Far:
    """A far end that has seen this, and is idle."""

    exact, tolerance = True, 0.1

    def __init__(self, judge: Any, *works: tuple[str, float, float | None]) -> None:
        self._judge = judge
        self._works = [judge.Work(*work) for work in works]

    def works(self) -> list[Any]:
        return self._works

    def early(self) -> list[str]:
        return self._judge.overlapping(self._works)


def said(turn: str, asked: float, settled: float, gone: bool = True) -> dict[str, Any]:
    ending = "stopped" if gone else "unconfirmed"
    told = {"turn": turn, "asked": asked, "settled": settled, "gone": gone, "ending": ending}
    return {**told, "taken_up": True, "errors": [] if gone else ["BackendLost('task 12-ab-34')"]}


@pytest.fixture
def report(judge: Any, tmp_path: Path) -> Any:
    """Makes the report of what a far end saw and programs said."""
    path = tmp_path / "turns.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE open (turn)")

    def make(works: list[tuple[str, float, float | None]], *notes: dict[str, Any]) -> Any:
        account = judge.Account()
        for note in notes:
            account.note(note)
        found = judge.judge(account, Far(judge, *works), path)
        faults = [name for name in judge.FAULTS if found.get(name)]
        return found, faults

    return make


def test_what_is_well_is_no_fault(report: Any) -> None:
    works = [("a.0.0", 1.0, 2.0), ("a.0.1", 2.1, 3.0), ("b.0.0", 1.5, 2.5)]
    found, faults = report(
        works, said("a.0.0", 1.8, 2.05), said("a.0.1", 2.9, 3.0), said("b.0.0", 2.0, 2.45)
    )
    assert faults == []
    assert found["endings"] == {"stopped": 3}
    assert found["settled_s"] == {"n": 3, "median": 0.25, "max": 0.45}
    assert found["work_ended_s"] == {"n": 3, "median": 0.2, "max": 0.5}


@pytest.mark.parametrize("ended", [None, 2.2])
def test_a_turn_that_was_let_too_early_is_found(report: Any, ended: float | None) -> None:
    works = [("a.0.0", 1.0, ended), ("a.0.1", 2.1, 3.0), ("a.0.2", 2.4, 3.0), ("b.0.0", 1.0, 4.0)]
    notes = [said("a.0.0", 1, 2, gone=False), said("a.0.1", 3, 3), said("a.0.2", 3, 3)]
    found, faults = report(works, *notes, said("b.0.0", 4, 4))
    assert "let_too_early" in faults
    assert found["let_too_early"][0] == "a.0.1"


@pytest.mark.parametrize("ended", [None, 2.2])
def test_a_lie_is_found(report: Any, ended: float | None) -> None:
    assert report([("a.0.0", 1.0, ended)], said("a.0.0", 1.8, 2.0))[1] == ["said_gone_and_at_work"]
    assert report([("a.0.0", 1.0, 2.05)], said("a.0.0", 1.8, 2.0))[1] == []


def test_a_turn_that_nobody_settled_is_found(report: Any) -> None:
    assert report([("a.0.0", 1.0, 2.0)])[1] == ["never_settled"]


def test_a_settlement_that_was_late_is_found(report: Any) -> None:
    assert report([("a.0.0", 1.0, 2.0)], said("a.0.0", 1.0, 11.0))[1] == ["late"]


@pytest.mark.parametrize(
    ("works", "at_work"),
    [([], False), ([("a.0.0", 1.0, 2.5)], False), ([("a.0.0", 1.0, 3.5)], True)],
)
def test_a_doubt_is_a_fault_where_there_was_work(report: Any, works: Any, at_work: bool) -> None:
    found, faults = report(works, said("a.0.0", 2.0, 2.1, gone=False))
    assert faults == (["unsure_and_at_work"] if at_work else [])
    assert found["unsure_since"] == ({} if at_work else {"BackendLost('task *')": 1})


def test_what_the_journal_still_has_is_found(judge: Any, tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE open (turn)")
        database.execute("INSERT INTO open VALUES (1)")
        database.commit()
    assert judge.judge(judge.Account(), Far(judge), path)["open_in_the_journal"] == 1
