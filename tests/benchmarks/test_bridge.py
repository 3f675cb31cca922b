"""The measurements of the bridge run, and what they count is nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "bridge.py"


@pytest.mark.skipif(
    sys.version_info >= (3, 14) or importlib.util.find_spec("trio_asyncio") is None,
    reason="pip install 'turnstop[aio]', on Python 3.13 or older",
)
def test_a_small_run_leaves_nothing_and_ends_its_programs(tmp_path: Path) -> None:
    paths = os.pathsep.join(filter(None, (os.fspath(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, SCRIPT, "--small", "--json", tmp_path / "out.json"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    for row in report["latency"]:
        assert 0 < row["of_it_the_bridge"] < row["turnstop"] < row["asked_to_left"]
        assert row["to_kernel"] == pytest.approx(row["turnstop"] / row["kernel"])
    assert len(report["refusals"]) == 8
    for row in report["refusals"]:
        counts = (row["unconfirmed"], row["named"], row["programs_that_ended"])
        assert counts == (row["n"],) * 3, row
        # With a second of room: it shares its machine.
        assert row["settled_max_s"] < row["must_s"] + 1
    for row in report["left"]:
        assert not any(row[name] for name in ("tasks", "timers", "threads", "live", "stragglers"))
