"""How `turnstop serve` ends, whoever listens to it, and to whom it gives its token."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from programs import COMMAND, TOKEN, Program, environment, is_text, serve

from turnstop.cli.main import main

TELLING = """
import subprocess, trio
from turnstop.events import Text

async def telling(work):
    found = await trio.run_process(["sh", "-c", "env"], capture_stdout=True)
    work.emit(Text(f"the token is {'TURNSTOP_TOKEN' in found.stdout.decode()}"))

async def talking(work):
    while True:
        work.emit(Text("x" * 50_000))
        await trio.sleep(0.01)

async def slow(work):
    work.emit(Text("no "))
    with trio.CancelScope(shield=True):
        await trio.sleep(3)

async def refusing(work):
    work.emit(Text("no "))
    with trio.CancelScope(shield=True):
        await trio.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "telling.py").write_text(TELLING)
    return tmp_path


@contextmanager
def silent_client(program: Program, head: str) -> Iterator[None]:
    """One that asks again and again, and does not read."""
    host, port = program.url.removeprefix("http://").split(":")
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((host, int(port)))
        one.settimeout(0.2)
        try:
            for _ in range(40):
                one.sendall(f"{head}\r\nHost: localhost\r\n\r\n".encode() * 20)
        except TimeoutError:
            pass
        yield


@pytest.mark.parametrize(
    "head",
    ["GET /app.js HTTP/1.1", f"GET /events HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"],
    ids=["stranger", "listener"],
)
def test_a_signal_ends_it_though_a_client_does_not_read(head: str, folder: Path) -> None:
    with serve("local", "telling:talking", cwd=folder) as program:
        program.told("send", "kitchen", "x")
        program.wait_for(is_text)
        with silent_client(program, head):
            assert program.end() == (0, "ending: 1 turn is stopped; once more kills\n")


def test_it_ends_as_it_should_where_nobody_reads_what_it_says(folder: Path) -> None:
    with serve("-v", "--file", "kept.db", cwd=folder) as program:
        program.told("send", "kitchen", "count to 5000")
        program.wait_for(is_text)
        for stream in (program.process.stdout, program.process.stderr):
            assert stream is not None
            stream.close()
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(30) == 0
    with serve("--file", "kept.db", cwd=folder) as program:
        program.wait_for(is_text)


def test_a_second_signal_is_heard_where_nobody_reads_what_it_says(folder: Path) -> None:
    budget = ("--cancel-within", "60", "--kill-within", "60")
    with serve(*budget, "local", "telling:refusing", cwd=folder) as program:
        program.told("send", "kitchen", "x")
        program.wait_for(is_text)
        assert program.process.stderr is not None
        program.process.stderr.close()
        program.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(1)
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(30) == 128 + signal.SIGTERM


@pytest.fixture
def full() -> Iterator[int]:
    """A pipe that takes nothing, and is read by nobody, as that to a pager that is left alone."""
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    with suppress(BlockingIOError):
        while True:
            os.write(ours, b"x" * 4096)
    os.set_blocking(ours, True)
    yield ours
    os.close(ours)
    os.close(theirs)


def test_it_serves_and_ends_as_it_should_where_a_pipe_is_full(folder: Path, full: int) -> None:
    with serve("-v", "--file", "kept.db", cwd=folder, stderr=full) as program:
        program.told("send", "kitchen", "count to 5000")
        program.wait_for(is_text)
        assert program.told("stop", "kitchen", "--wait")["settlements"]
        assert program.end()[0] == 0
    with serve("--file", "kept.db", cwd=folder) as program:
        assert program.told("play", "kitchen")["rooms"] == ["kitchen"]
        program.wait_for(is_text)


def test_a_second_signal_is_heard_where_a_pipe_is_full(folder: Path, full: int) -> None:
    budget = ("--cancel-within", "60", "--kill-within", "60")
    with serve(*budget, "local", "telling:refusing", cwd=folder, stderr=full) as program:
        program.told("send", "kitchen", "x")
        program.wait_for(is_text)
        program.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(1)
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(30) == 128 + signal.SIGTERM


def test_it_says_so_where_it_waits_for_an_agent_that_does_not_end(folder: Path) -> None:
    budget = ("--cancel-within", "0.2", "--kill-within", "0.2")
    with serve(*budget, "local", "telling:refusing", cwd=folder) as program:
        program.told("send", "kitchen", "x")
        program.wait_for(is_text)
        program.process.send_signal(signal.SIGINT)
        assert program.process.stderr is not None
        lines = [program.process.stderr.readline()]
        while "does not end" not in lines[-1]:
            lines.append(program.process.stderr.readline())
            assert lines[-1]
        assert lines[0] == "ending: 1 turn is stopped; once more kills\n"
        assert lines[-1].startswith("ending: the agent does not end, and is waited for")
        assert program.end()[0] == 128 + signal.SIGTERM


def test_a_closed_terminal_ends_it_and_kills_nothing_however_often_it_is_told(
    folder: Path,
) -> None:
    with serve("--file", "kept.db", "local", "telling:slow", cwd=folder) as program:
        program.told("send", "kitchen", "x")
        program.wait_for(is_text)
        program.process.send_signal(signal.SIGHUP)
        assert program.process.stderr is not None
        assert program.process.stderr.readline().startswith("ending: 1 turn is")
        assert program.end(signal.SIGHUP) == (0, "")
    with serve("--file", "kept.db", "local", "telling:slow", cwd=folder) as program:
        program.wait_for(is_text)


def test_a_closed_terminal_is_nothing_to_what_was_started_with_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serve() as program:
            program.process.send_signal(signal.SIGHUP)
            assert program.run("stop", "--all").exit_code == 0
            assert program.end() == (0, "ending: 0 turns are stopped; once more kills\n")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_agent_and_what_it_starts_are_not_given_the_token(folder: Path) -> None:
    with serve("local", "telling:telling", cwd=folder) as program:
        program.told("send", "kitchen", "x")
        assert program.wait_for(is_text)["delta"] == "the token is False"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_new_token_is_printed_on_a_terminal_and_nowhere_else(options: tuple[str, ...]) -> None:
    command, env = [*COMMAND, "serve", "--port", "0", *options], environment(TURNSTOP_TOKEN="")
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no TURNSTOP_TOKEN" in result.stderr
    assert result.stderr.count("\n") == 1
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        os.close(theirs)
        with open(ours) as terminal:
            lines = [terminal.readline() for _ in range(1 if options else 3)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    if options:
        told = json.loads(lines[0])
        url, token = told["url"], told["token"]
    else:
        url, _, token = lines[1].removeprefix("open ").strip().partition("/#token=")
        assert lines[2].strip() == f"commands: export TURNSTOP_URL={url} TURNSTOP_TOKEN={token}"
    assert url.startswith("http://127.0.0.1:")
    assert len(token) >= 32


def test_a_token_that_was_given_is_never_printed() -> None:
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "-v"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert "http://" in first
    assert TOKEN not in first + out + err


def test_a_token_that_no_request_can_bear_is_refused_and_not_shown() -> None:
    result = CliRunner().invoke(main, ["serve"], env={"TURNSTOP_TOKEN": "not a bearer"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert "TURNSTOP_TOKEN cannot be used" in result.stderr
    assert "bearer" not in result.stderr.replace("can bear", "")
    assert result.stderr.count("\n") == 1


def test_a_name_that_is_allowed_is_answered() -> None:
    import httpx2

    with serve("--allow-host", "my.example") as program:
        for host, status in (("my.example", 200), ("other.example", 421)):
            url, headers = f"{program.url}/health", {"Host": host}
            assert httpx2.get(url, headers=headers, trust_env=False).status_code == status
        program.end()
