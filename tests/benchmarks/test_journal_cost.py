"""The benchmarks of the journal run, and where they count faults they find none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *options: str) -> Any:
    command = [sys.executable, str(FOLDER / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def test_what_a_journal_costs() -> None:
    report = run("journal.py", "--small")
    assert report["turn"]["us_a_turn"] > 0
    assert report["file"]["left"] < report["file"]["records"]
