"""A program that is killed loses no message: a few of the benchmark's kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import turnstop

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill_points.py"


def test_nothing_is_lost_and_nothing_is_acknowledged_twice() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--points", "6"],
        env={**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == 6
    assert found["messages"] > 0
