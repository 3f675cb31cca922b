"""`turnstop serve` as a program, and the commands that talk to it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from programs import COMMAND, ROOT, TOKEN, environment, is_settled, is_text, serve
from runs import look

from turnstop.cli.main import main
from turnstop.cli.serve.agents import NoAgent, opener_of

STUBBORN = """
import subprocess, sys, trio
from turnstop.adapters.local import open_local
from turnstop.events import Text

async def stubborn(work):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    work.emit(Text(f"child {child.pid} "))
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(child.wait)

async def refusing(work):
    work.emit(Text("no "))
    with trio.CancelScope(shield=True):
        await trio.sleep(600)

def open_stubborn():
    return open_local(stubborn)

def open_refusing():
    return open_local(refusing)
"""


def test_a_message_is_sent_stopped_and_goes_on() -> None:
    with serve() as program:
        assert program.told("send", "kitchen", "count to 5000", "--id", "m") == {"id": "m"}
        turn = program.wait_for(is_text)["turn_id"]
        told = program.told("stop", "kitchen", "--wait", "--reason", "enough")
        assert told["turn_ids"] == [turn]
        (settlement,) = told["settlements"]
        assert settlement["ending"] == "stopped"
        assert settlement["request"]["reason"] == "enough"
        assert program.told("play", "kitchen")["rooms"] == ["kitchen"]
        program.wait_for(lambda one: one["type"] == "turn" and one["turn_id"] != turn)
        assert "no turn" not in program.run("interrupt", "kitchen", "--wait").stdout
        program.wait_for(lambda one: one.get("state") == "handled")
        assert program.end() == (0, "ending: 0 turns are stopped; once more kills\n")


def test_watch_shows_what_happens_and_ends_with_the_server() -> None:
    with serve() as program:
        program.told("send", "kitchen", "count to 3")
        program.wait_for(is_settled)
        watching = subprocess.Popen(
            [
                *COMMAND,
                "watch",
                "--url",
                f"{program.url}/#token={TOKEN}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TURNSTOP_TOKEN": ""},
        )
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(5)]
        assert lines[0].endswith("count to 3\n")
        assert lines[3] == "kitchen: 1 2 3 \n"
        assert lines[4].startswith("kitchen: settlement FINISHED")
        assert program.end()[0] == 0
        _, err = watching.communicate(timeout=30)
        assert (watching.returncode, err) == (0, "")


def test_watch_is_interrupted_by_ctrl_c() -> None:
    with serve() as program:
        program.told("send", "kitchen", "count to 5000")
        watching = subprocess.Popen(
            [*COMMAND, "watch", "--url", program.url, "kitchen"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TURNSTOP_TOKEN": TOKEN},
        )
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=30)
        assert (watching.returncode, err) == (130, "interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_every_turn_and_what_is_unfinished_is_handled_by_the_next(
    number: int, tmp_path: Path
) -> None:
    file = str(tmp_path / "messages.db")
    with serve("--file", file) as program:
        program.told("send", "kitchen", "count to 5000")
        program.told("send", "kitchen", "count to 2")
        program.wait_for(is_text)
        code, err = program.end(number)
        assert (code, err) == (0, "ending: 1 turn is stopped; once more kills\n")
    with serve("--file", file) as program:
        program.wait_for(is_text)
        first = program.events()[0]
        assert (first["type"], first["content"]) == ("message", "count to 5000")
        program.told("interrupt", "kitchen")
        program.wait_for(lambda one: is_settled(one) and one["ending"] == "finished")


def test_a_paused_room_is_paused_in_the_next_server_too(tmp_path: Path) -> None:
    file = str(tmp_path / "messages.db")
    with serve("--file", file) as program:
        program.told("send", "kitchen", "count to 5000")
        program.wait_for(is_text)
        program.told("stop", "kitchen", "--wait")
        assert program.end()[0] == 0
    with serve("--file", file) as program:
        program.wait_for(lambda one: one["type"] == "paused")
        assert not any(map(is_text, program.events()))
        program.told("play", "kitchen")
        program.wait_for(is_text)


def test_a_second_signal_kills_what_the_turns_have_started(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    budget = ("--cancel-within", "60", "--kill-within", "60")
    with serve(*budget, "stubborn:open_stubborn", cwd=tmp_path) as program:
        program.told("send", "kitchen", "x")
        child = int(program.wait_for(is_text)["delta"].split()[1])
        program.process.send_signal(signal.SIGTERM)
        assert program.process.stderr is not None
        assert program.process.stderr.readline().startswith("ending: 1 turn is")
        code, err = program.end()
        assert (code, err) == (0, "killed 1 process\n")
    assert look(child) is None


def test_a_second_signal_ends_it_whatever_refuses(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    with serve("stubborn:open_refusing", cwd=tmp_path) as program:
        program.told("send", "kitchen", "x")
        program.wait_for(is_text)
        program.process.send_signal(signal.SIGINT)
        assert program.process.stderr is not None
        assert program.process.stderr.readline().startswith("ending: 1 turn is")
        begun = time.monotonic()
        code, _ = program.end(signal.SIGTERM)
        assert code == 128 + signal.SIGTERM
        assert time.monotonic() - begun < 30


def test_a_control_says_what_it_has_done_and_how_to_go_on() -> None:
    with serve() as program:
        program.told("send", "a room", "count to 5000")
        turn = program.wait_for(is_text, "a%20room")["turn_id"]
        stopped = program.run("stop", "a room", "--wait").stdout.splitlines()
        hint = "to go on: turnstop play 'a room'"
        assert stopped[0] == f"stop: 1 room paused, stopping {turn}; {hint}"
        assert stopped[1].startswith("a room: STOPPED sent ")
        sent = program.run("send", "a room", "count to 1", "--id", "m").stdout
        assert sent == "sent as m\nthe room is paused; to go on: turnstop play 'a room'\n"
        assert program.run("send", "a room", "").exit_code == 2
        assert program.run("play", "--all").stdout == "play: 1 room may go on\n"
        program.told("send", "other", "count to 1")
        program.told("stop", "--all", "--wait")
        again = program.run("stop", "--all").stdout
        assert again == "stop: 2 rooms paused, no turn to stop; to go on: turnstop play --all\n"
        assert program.run("interrupt", "other").stdout == "interrupt: no turn to stop\n"


def test_a_question_is_answered_from_a_terminal() -> None:
    with serve() as program:
        assert "there is no room" in program.run("answer", "kitchen", "allow").stderr
        program.told("send", "kitchen", "tidy up")
        program.wait_for(lambda one: one["type"] == "ask")
        other = program.run("answer", "kitchen", "yes")
        assert (other.exit_code, other.stdout) == (1, "")
        assert other.stderr == "Error: yes is none of the choices: allow, deny\n"
        none = program.run("answer", "kitchen", "allow", "--ask", "other")
        assert (none.exit_code, none.stderr.count("\n")) == (1, 1)
        told = program.run("answer", "kitchen", "allow")
        assert (told.exit_code, told.stdout) == (0, "answered: May I change agent.py?\n")
        assert program.wait_for(is_settled)["ending"] == "finished"
        said = "".join(one["delta"] for one in program.events() if is_text(one))
        assert "That is done." in said
        again = program.run("answer", "kitchen", "allow")
        assert again.stderr == "Error: nobody waits for an answer to that\n"


def test_watch_waits_for_a_room_that_is_not_there_yet() -> None:
    with (
        serve() as program,
        subprocess.Popen(
            [*COMMAND, "watch", "--url", program.url, "kitchen"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TURNSTOP_TOKEN": TOKEN},
        ) as watching,
    ):
        assert watching.stdout is not None
        assert watching.stderr is not None
        told = watching.stderr.readline()
        assert told == "there is no room 'kitchen' yet: a message makes it\n"
        program.told("send", "other", "count to 1")
        program.told("send", "kitchen", "count to 1")
        assert watching.stdout.readline().startswith("kitchen: message waiting")
        program.end()
        out, _ = watching.communicate(timeout=30)
        assert (watching.returncode, "other" in out) == (0, False)


WHY = "[Errno 111] Connection refused"
GOOD = "http://HOST:PORT"


def test_a_client_says_in_one_line_what_was_wrong() -> None:
    with serve() as program:
        wrong = program.run("send", "kitchen", "x", token="wrong")
        assert (wrong.exit_code, wrong.stderr.count("\n")) == (1, 1)
        assert "401" in wrong.stderr
        nowhere = program.run("stop", "nowhere")
        assert (nowhere.exit_code, nowhere.stdout) == (1, "")
        assert "there is no room 'nowhere'" in nowhere.stderr
        assert program.run("stop").exit_code == 2
        both = program.run("stop", "--all", "kitchen")
        assert both.exit_code == 2
        assert "--all is all rooms: leave it out, or 'kitchen'" in both.stderr
        program.told("send", "kitchen", "count to 5000")
        program.wait_for(is_text)
        for name in ("", ".", ".."):
            for command in (["send", name, "x"], ["stop", name], ["watch", name]):
                bad = program.run(*command)
                assert (bad.exit_code, bad.stdout) == (2, "")
                assert f"no room can be called {name!r}" in bad.stderr
        assert not any(map(is_settled, program.events()))
        assert program.run("stop", "--all").exit_code == 0
        program.end()
        gone = program.run("watch")
        assert (gone.exit_code, gone.stderr.count("\n")) == (2, 1)
        assert "no server answers" in gone.stderr
    assert gone.stderr == f"Error: no server answers at {program.url}: {WHY}; see --url\n"
    for url in ("notaurl", "ftp://localhost", "http://", "localhost:8000"):
        none = program.run("send", "kitchen", "x", "--url", url)
        assert none.exit_code == 2
        assert none.stderr == f"Error: {url} is no address of a server: it has to be {GOOD}\n"
    assert program.run("watch", "--url", "http://[", token="").exit_code == 2
    assert program.run("send", "kitchen", "x", "--url", "http://[").exit_code == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["codexx"], "did you mean codex"),
        (["a2a"], "it takes URL behind its name"),
        (["nothing:there"], "no module nothing"),
        (["local"], "it takes FN behind its name"),
        (["--file", "/nowhere/at/all.db"], "Error: /nowhere/at/all.db: No such file"),
        (["codex", "/nowhere/codex"], "/nowhere/codex"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(args: list[str], says: str) -> None:
    result = CliRunner().invoke(
        main, ["serve", "--port", "0", *args], env={"TURNSTOP_TOKEN": TOKEN}
    )
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


FACTORIES = """
from contextlib import asynccontextmanager, contextmanager

@asynccontextmanager
async def yields_text():
    yield "x"

@contextmanager
def not_async():
    yield "x"

async def coroutine():
    pass
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("yields_text", "yields a str"),
        ("not_async", "returns a _GeneratorContextManager"),
        ("coroutine", "returns a coroutine"),
    ],
)
def test_what_is_no_factory_of_a_backend_is_said_in_one_line(
    name: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    command = [*COMMAND, "serve", "--port", "0", f"factories:{name}"]
    env = environment(tmp_path)
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert result.returncode == 2
    assert f"factories:{name} is no factory of a backend" in result.stderr
    assert result.stderr.endswith(f"{says}\n")
    assert result.stderr.count("\n") == 1


def test_a_module_in_the_current_folder_is_found_by_the_command_as_it_is_installed(
    tmp_path: Path,
) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    (tmp_path / "bin").mkdir()
    # What pip installs is a script in another folder.
    script = tmp_path / "bin" / "command.py"
    script.write_text("from turnstop.cli.main import main; main()")
    command = [sys.executable, str(script), "serve", "--port", "0", "factories:coroutine"]
    for safe, says in (("", "returns a coroutine"), ("1", "there is no module factories here")):
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=30,
            cwd=tmp_path,
            env=environment(PYTHONSAFEPATH=safe),
        )
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert says in result.stderr


def test_what_an_adapter_needs_is_said_as_it_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        raise ImportError("it needs a2a-sdk: python -m pip install 'turnstop[a2a]'")

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(NoAgent) as caught:
        opener_of("a2a", ["http://127.0.0.1/"])
    assert str(caught.value) == "it needs a2a-sdk: python -m pip install 'turnstop[a2a]'"


@pytest.mark.parametrize("option", ["--cancel-within", "--kill-within", "--rate", "--retire-after"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_a_number_that_is_none_is_a_usage_error(option: str, value: str) -> None:
    if (option, value) == ("--retire-after", "inf"):
        # It means never, and the next argument is what cannot be.
        option, value = "--retire-after=inf", "--rooms=0"
    result = CliRunner().invoke(main, ["serve", option, value], env={"TURNSTOP_TOKEN": TOKEN})
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("host", ["nosuch.invalid", "192.0.2.1"])
def test_an_address_that_is_none_is_named(host: str) -> None:
    command = ["serve", "--host", host, "--port", "8741"]
    result = CliRunner().invoke(main, command, env={"TURNSTOP_TOKEN": TOKEN})
    assert result.exit_code == 2
    assert f"cannot listen on {host}, port 8741: " in result.stderr
    assert "Errno" not in result.stderr


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with serve() as program:
        port = program.url.rpartition(":")[2]
        result = CliRunner().invoke(main, ["serve", "--port", port], env={"TURNSTOP_TOKEN": TOKEN})
        assert result.exit_code == 2
        assert f"port {port}: Address already in use: --port 0 takes any" in result.stderr
