"""The tap hands everything on, keeps what went by, and ends as its program does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TAP = [sys.executable, "-m", "turnstop.lab.tap"]


def tap(file: Path, script: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [*TAP, str(file), "--", "/bin/sh", "-c", script]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


def test_both_directions_go_on_and_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "wire"
    done = tap(file, "read line; echo '{\"got\": 1}'; echo 'no json'; exit 3", '{"a": 1}\n')
    assert (done.returncode, done.stdout) == (3, '{"got": 1}\nno json\n')
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [{"->": {"a": 1}}, {"<-": {"got": 1}}, {"<-": "no json"}]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_by_the_signal_that_ended_the_program(tmp_path: Path, number: int) -> None:
    assert tap(tmp_path / "wire", f"kill -{int(number)} $$").returncode == -number


def test_the_end_of_stdin_and_a_signal_reach_the_program(tmp_path: Path) -> None:
    assert tap(tmp_path / "wire", "while read line; do :; done; exit 4").returncode == 4
    script = "trap 'exit 5' TERM; echo up; while :; do read line || sleep 0.01; done"
    command = [*TAP, str(tmp_path / "wire"), "--", "/bin/sh", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.terminate()
        assert process.wait(60) == 5


def test_a_program_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    command = [*TAP, str(tmp_path / "wire"), "--", "/no/such/program"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 127
    assert done.stderr == "cannot run /no/such/program: No such file or directory\n"
    assert subprocess.run(TAP, capture_output=True, timeout=60).returncode == 2
