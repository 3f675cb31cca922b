"""A mutant that hangs is given up, and what its tests had started is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Its sleeper has no parent, no environment, and a session of its own.
HANGS = """
import os, subprocess, time

def test_that_passes():
    pass

def test_that_hangs():
    subprocess.run("(env -i setsid sh -c 'echo $$ > pid; exec sleep 300' &)", shell=True)
    while not os.path.exists("pid") or not open("pid").read():
        time.sleep(0.01)
    time.sleep(300)
"""
RUNS = """
import time
from pathlib import Path
from mutate import Mutant
from slots import Slot

slot = Slot(Path.cwd())
patience = 1 + 3 * slot.measure([["test_hangs.py::test_that_passes"]])
slot.begin(Mutant("abc", "f", "drop", 1, ""), [["test_hangs.py"]], patience)
while not (outcome := slot.poll()):
    time.sleep(0.01)
print(outcome.by)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_nothing_is_left_of_one_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "turnstop").mkdir()
    (tmp_path / "turnstop" / "abc.py").write_text("as it was")
    (tmp_path / "test_hangs.py").write_text(HANGS)
    done = subprocess.run(
        [sys.executable, "-c", RUNS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "hang in test_hangs.py::test_that_hangs\n"
    assert (tmp_path / "turnstop" / "abc.py").read_text() == "as it was"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
