"""The script that makes Parlant's environment says what it does, and harms nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("parlant_env.py")


def run(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env or None)


def test_it_says_where_it_goes(tmp_path: Path) -> None:
    done = run("--help", TURNSTOP_PARLANT_ENV=str(tmp_path / "here"))
    assert done.returncode == 0
    assert str(tmp_path / "here") in done.stdout.replace("\n", "")
    done = run("--help", TURNSTOP_LAB_HOME=str(tmp_path / "lab"))
    assert str(tmp_path / "lab" / "parlant-environment") in done.stdout.replace("\n", "")


def test_what_it_does_not_know_is_an_error() -> None:
    done = run("-k", "stop")
    assert done.returncode == 2
    assert "what is pytest's comes after --" in done.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="is refused there at once")
def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    done = run("--install", "--folder", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no environment: name another --folder" in done.stderr
    assert (tmp_path / "letter").read_text() == "dear"
