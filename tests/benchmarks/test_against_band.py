"""The comparison of kernels runs, with the peer and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnstop.cli.band import BandAbsent, find_band_python

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "against_band.py"


def _run(folder: Path, band_python: str) -> tuple[dict[str, Any], str]:
    paths = os.pathsep.join(filter(None, (os.fspath(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, SCRIPT, "--small", "--json", folder / "out.json"],
        env={**os.environ, "TURNSTOP_BAND_PYTHON": band_python, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out.json").read_text()), done.stderr


def test_without_the_peer_our_own_side_is_measured(tmp_path: Path) -> None:
    report, notes = _run(tmp_path, os.fspath(tmp_path / "no-such-python"))
    assert "pip install 'band-sdk[a2a,codex]==6.0.1'" in notes
    rows = {row["figure"]: row for row in report["rows"]}
    assert rows["stop() call"]["turnstop"] > 0
    assert rows["stop() call"]["band"] is None
    to_nursery = rows["one turn, nothing remote, to a nursery with one task"]
    assert to_nursery["ratio_low"] <= to_nursery["ratio"] <= to_nursery["ratio_high"]


def test_with_the_peer_both_are_measured_in_one_run(tmp_path: Path) -> None:
    try:
        python = find_band_python()
    except BandAbsent as absent:
        pytest.skip(str(absent))
    report, _ = _run(tmp_path, os.path.abspath(python))
    assert report["versions"]["band"]["band-sdk"] == "6.0.1"
    for row in report["rows"]:
        other = row.get("nursery", row["band"])
        assert row["ratio"] == pytest.approx(row["turnstop"] / other)
