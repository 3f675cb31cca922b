"""The benchmarks of the inbox, small: what is killed loses nothing, and a stop reaches all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import turnstop

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def run(name: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, SCRIPTS / name, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("how", [(), ("--server",)], ids=["alone", "server"])
def test_nothing_is_lost_and_nothing_is_acknowledged_twice(how: tuple[str, ...]) -> None:
    found = run("kill_points.py", "--points", "6", "--seed", "7", *how)
    assert found["killed"] == 6
    assert found["rivals_refused"] > 0
    assert found["messages"] > 0


def test_a_stop_of_all_rooms_reaches_all() -> None:
    assert run("stop_all_rooms.py", "--small")["rooms"] == 50
