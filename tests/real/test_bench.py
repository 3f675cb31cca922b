"""The bench on the real programs: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import REQUIRED, real_program

real_program("codex")
try:
    import rich  # noqa: F401
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)

COMMAND = [sys.executable, "-c", "from turnstop.cli.main import main; main()", "bench"]
PATIENCE = 100.0


def processes_of(folder: Path) -> Iterator[int]:
    """What lives with the folder as its temporary one: the bench, and all that it started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{folder}".encode() in (entry / "environ").read_bytes():
                yield int(entry.name)
        except OSError:
            pass


@contextmanager
def bench(folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, *args],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    left = list(processes_of(tmp_path))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_it_measures_the_real_programs_and_loses_nothing(folder: Path) -> None:
    with bench(folder, "codex", "a2a", "-n2", "--json") as process:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    rows = json.loads(stdout)["rows"]
    assert [row["moment"] for row in rows if row["backend"] == "codex"] == [
        "starting",
        "running",
        "tool",
        "permission",
        "finishing",
    ]
    assert {row["backend"] for row in rows} == {"codex", "a2a"}
    assert [row["lost"] for row in rows] == [0] * len(rows)
    for row in rows:
        if row["moment"] in ("running", "tool", "permission"):
            assert row["endings"] == {"STOPPED": 2}
        if row["moment"] in ("running", "tool"):
            assert row["asked_to_gone_ms"]["median"] > 0
            assert row["asked_to_sent_ms"]["max"] <= row["asked_to_ended_ms"]["max"]


def test_it_sees_what_the_bare_protocol_loses(folder: Path) -> None:
    args = ("codex", "--moment", "tool", "--against", "raw", "-n1", "--json")
    with bench(folder, *args) as process:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    found = json.loads(stdout)
    assert {row["runner"]: row["lost"] for row in found["rows"]} == {"turnstop": 0, "raw": 1}
    assert "sleep 60" in found["losses"][0]


@pytest.mark.parametrize(
    ("backend", "program", "moment"),
    [
        ("claude", "claude", "permission"),
        ("acp-gemini", "gemini", "running"),
        ("opencode", "opencode", "running"),
        ("copilot", "copilot", "running"),
    ],
)
def test_a_bare_client_of_each_protocol_stops_the_same_program(
    backend: str, program: str, moment: str, folder: Path
) -> None:
    real_program(program)
    args = (backend, "--moment", moment, "--against", "raw", "-n1", "--json")
    with bench(folder, *args) as process:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    rows = {row["runner"]: row for row in json.loads(stdout)["rows"]}
    for runner in ("turnstop", "raw"):
        assert rows[runner]["endings"] == {"STOPPED": 1}
        assert rows[runner]["asked_to_ended_ms"]["max"] > 0
    assert rows["turnstop"]["lost"] == 0


def test_it_sees_a_model_that_is_still_read_and_a_history_that_is_not_valid(folder: Path) -> None:
    real_program("zed-codex-acp")
    real_program("gemini")
    moments = ("--moment", "running", "--moment", "permission")
    args = ("acp-codex-zed", "acp-gemini", *moments, "--against", "raw", "-n1", "--json")
    with bench(folder, *args) as process:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    found = json.loads(stdout)
    rows = {(row["backend"], row["moment"], row["runner"]): row for row in found["rows"]}
    assert rows["acp-codex-zed", "running", "raw"]["lies"] == 1
    assert rows["acp-gemini", "permission", "raw"]["histories"] == 1
    for (_, _, runner), row in rows.items():
        assert row["lost"] == 0 or runner == "raw"


@pytest.mark.parametrize(
    ("backend", "program", "number"),
    [
        ("codex", "codex", signal.SIGINT),
        ("claude", "claude", signal.SIGINT),
        ("acp-qwen", "qwen", signal.SIGTERM),
    ],
)
def test_an_interrupted_bench_leaves_no_program_behind(
    backend: str, program: str, number: signal.Signals, folder: Path
) -> None:
    real_program(program)
    with bench(folder, backend, "-n", "1000", "--against", "raw") as process:
        deadline = time.monotonic() + PATIENCE
        # The bench and a program, and then another one.
        while len(list(processes_of(folder))) < 2 and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1] == "interrupted"
    assert "Traceback" not in stderr
