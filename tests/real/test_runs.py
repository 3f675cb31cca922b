"""What a killed run of the tests has left is ended by the next one, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import runs
import trio

import turnstop

from . import real_program

# It does not end when its stdin is closed.
real_program("zed-codex-acp")

TESTS = Path(__file__).parents[1]
STARTS = """\
import pathlib, subprocess, sys, time
from turnstop.lab import find_program, program_env

def start(*command):
    env = program_env("zed-codex-acp", "http://127.0.0.1:9", pathlib.Path(__file__).parent)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=env, start_new_session=True, **pipes)
"""
KILLED = """
def test_is_killed():
    agent = start(*find_program("zed-codex-acp").command)
    start("/bin/sh", "-c", "trap '' TERM; env -i /bin/sleep 297; exit")
    time.sleep(0.3)
    assert agent.poll() is None
    pathlib.Path(__file__).with_name("ready").touch()
    time.sleep(300)
"""
FORGETS = """
def test_forgets(recwarn):
    start(sys.executable, "-c", "import time; time.sleep(299)")
"""
PASSES = "def test_passes(): pass\n"


@contextmanager
def run_of(folder: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(text)
    path = os.pathsep.join([str(TESTS), str(Path(turnstop.__file__).parent.parent)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "runs", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [*command, "-p", "no:anyio", "--rootdir", folder, folder],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            runs.sweep()


async def begun(folder: Path, process: subprocess.Popen[str]) -> str:
    """The mark of the run, once its program runs."""
    with trio.fail_after(60):
        while not (folder / "ready").exists():
            assert process.poll() is None, process.stdout.read()
            await trio.sleep(0.02)
    mark = runs.name_run(process.pid)
    assert mark
    return mark


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_next_run_ends_what_a_killed_one_left(tmp_path: Path) -> None:
    killed, living, after = tmp_path / "killed", tmp_path / "living", tmp_path / "after"
    with (
        run_of(living, STARTS + KILLED) as lives,
        run_of(killed, STARTS + KILLED) as dies,
    ):
        theirs, mark = await begun(living, lives), await begun(killed, dies)
        os.kill(dies.pid, signal.SIGKILL)
        dies.wait()
        left, others = runs.find_run(mark), runs.find_run(theirs)
        assert any("codex-acp" in str(process) for process in left)
        # It heeds no SIGTERM, and carries no mark.
        assert any(str(process).endswith("/bin/sleep 297") for process in left)
        with run_of(after, PASSES) as next_one:
            assert next_one.wait(60) == 0, next_one.stdout.read()
            assert runs.find_run(mark) == []
            assert [process for process in left if runs.look(process.pid) is not None] == []
            assert {*runs.find_run(theirs)} == {*others} != set()
    assert runs.find_run(theirs) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_that_leaves_something_fails_and_names_it(tmp_path: Path) -> None:
    with run_of(tmp_path, STARTS + FORGETS) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert "1 passed" in said
    assert "time.sleep(299)" in said


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_mark_is_the_labs() -> None:
    from turnstop.lab.environments import RUN_VARIABLE

    assert runs.VARIABLE == RUN_VARIABLE
    assert os.environ[RUN_VARIABLE] == runs.name_run()
