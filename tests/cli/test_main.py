"""The command, as a module of the Python that has it."""

from __future__ import annotations

import subprocess
import sys


def test_a_python_runs_the_command_of_its_own_turnstop() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "turnstop", "probe", "nonesuch"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: there is no adapter nonesuch")
    helped = subprocess.run(
        [sys.executable, "-m", "turnstop", "--help"], capture_output=True, text=True
    )
    assert helped.stdout.startswith("Usage: python -m turnstop [OPTIONS] COMMAND")
