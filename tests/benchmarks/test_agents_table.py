"""The page on the agents is made of what the bench wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "agents_table.py"
COUNTS = ("lost", "lies", "unanswered", "histories", "killed", "unconfirmed", "survivors")


def row(backend: str, moment: str, runner: str = "turnstop", **given: Any) -> dict[str, Any]:
    spread = {"median": 1.25, "p95": 12.5, "max": 125.0}
    times = {f"asked_to_{name}_ms": spread for name in ("gone", "ended", "admitted")}
    names = {"backend": backend, "moment": moment, "runner": runner}
    return {**names, **dict.fromkeys(COUNTS, 0), "n": 30, **times, **given}


def report(*rows: dict[str, Any], absent: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    ratio = {"backend": "claude", "moment": "tool", "runner": "raw"}
    return {
        "rows": rows,
        "ratios": [{**ratio, "ratio": 1.014, "low": 0.97, "high": 1.0649}],
        "absent": [{"backend": name, "moment": moment} for name, moment in absent],
        "versions": {"claude": "2.1.332"},
        "machine": {"system": "Linux 6", "cpus": 2, "python": "3.11.7"},
    }


FIRST = report(
    row("claude", "running", lost=1, lies=1, unanswered=1),
    row("claude", "tool", killed=2),
    row("claude", "tool", "raw", lost=30, n=31),
    row("a2a", "running"),
    absent=(("a2a", "tool"),),
)


def run(folder: Path, *reports: dict[str, Any], into: Path | None = None) -> str:
    files = []
    for number, one in enumerate(reports):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps(one))
    options = [] if into is None else ["--into", str(into)]
    done = subprocess.run(
        [sys.executable, SCRIPT, *files, *options], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_line_a_backend_and_a_line_a_moment(tmp_path: Path) -> None:
    lines = run(tmp_path, FIRST).splitlines()
    assert "| claude | 60 | 1 | 1 | 59 | 60 | 2 | 0 | 30 of 31 |" in lines
    assert "| a2a | 30 | 0 | 0 | 30 | 30 | 0 | 0 |  |" in lines
    spread = "1.2 / 12 / 125"
    times = f"| claude, tool | {spread} | {spread} | {spread} | 1.01, 0.97 to 1.06 | 30 of 31 |"
    assert times in lines
    assert "| a2a, tool | n/a |  |  |  |  |" in lines
    assert lines[-1].startswith("Measured on Linux 6, 2 processors, Python 3.11.7: claude 2.1.332")
    assert len({line.count("|") for line in lines[:4]}) == 1


def test_a_moment_that_was_measured_again_counts_once(tmp_path: Path) -> None:
    lines = run(tmp_path, FIRST, report(row("claude", "running"))).splitlines()
    assert "| claude | 60 | 0 | 0 | 60 | 60 | 2 | 0 | 30 of 31 |" in lines


def test_it_goes_between_the_marks_of_a_page_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of the figures -->\nafter\n")
    for _ in range(2):
        run(tmp_path, FIRST, into=page)
    text = page.read_text()
    assert text.startswith("before\n<!-- figures -->\n\n| agent ")
    assert text.endswith("\n\n<!-- end of the figures -->\nafter\n")
    assert "old" not in text
    assert text.count("| claude | 60 ") == 1


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(subprocess.CalledProcessError):
        run(tmp_path, FIRST, into=page)
    assert page.read_text() == "nothing"
