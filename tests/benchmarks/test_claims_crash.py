"""The measurement of claims, small; and its judge finds what it is to find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import turnstop

ROOT = Path(turnstop.__file__).parent.parent
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "claims_crash.py"


def test_never_two_holders_whoever_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--small"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] > 0
    assert found["claims"] > 0
    assert found["writes"] > 0
    assert found["late_writes_refused"] > 0


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import claims_crash

    return claims_crash


def granted(at: float, token: int, *scopes: str) -> dict[str, Any]:
    return {"kind": "granted", "at": at, "token": token, "scopes": [*scopes], "took": 0.0}


def live(at: float, token: int) -> dict[str, Any]:
    return {"kind": "live", "at": at + 0.1, "then": at, "token": token}


@pytest.mark.parametrize(("until", "two"), [(1.5, 0), (2.5, 1)])
def test_two_holders_are_found(judge: Any, until: float, two: int) -> None:
    notes = [granted(1, 1, "s0"), granted(2, 2, "s0/f1", "s1/f1"), live(until, 1), live(3, 2)]
    assert judge.count_two_holders(notes, ["s0/f1", "s1/f1"]) == two
    assert judge.count_two_holders(notes, ["s0/f2", "s1/f1"]) == 0


def test_writes_of_stale_tokens_and_at_once_are_found(judge: Any) -> None:
    def write(kind: str, token: int, place: str = "s0/f1") -> dict[str, Any]:
        return {"kind": kind, "at": 0.0, "token": token, "place": place}

    one, other = ([write("write", n), write("written", n)] for n in (1, 2))
    assert judge.count_writes([*one, *other]) == {"stale_writes": 0, "at_once": 0, "writes": 2}
    assert judge.count_writes([*other, *one])["stale_writes"] == 1
    assert judge.count_writes([one[0], other[0], one[1], other[1]])["at_once"] == 1
