"""Programs that are no good Claude: each is a clear error, or an honest end within the budget.

Each is a script that stands for `claude`, in a real process.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendError, BackendLost, BackendRefused, Ending, StopBudget
from turnstop.adapters.claude import open_claude
from turnstop.events import Event, Text

BUDGET = StopBudget(cancel_within=1.0, kill_within=3.0)
PATIENCE = 60.0

# A Claude that answers every message at once, and obeys. What follows makes it worse.
GOOD = """
import json, os, signal, sys, time

def say(**frame):
    sys.stdout.write(json.dumps(frame) + "\\n")
    sys.stdout.flush()

def init(frame):
    say(type="system", subtype="init", capabilities=["msg_lifecycle_v1"])

def greet(frame):
    say(type="control_response", response={"subtype": "success", "request_id":
        frame["request_id"], "response": {}})

def start(frame):
    say(type="command_lifecycle", command_uuid=frame["uuid"], state="started")
    init(frame)

def end(frame, **how):
    say(type="result", user_message_uuid=frame["uuid"], is_error=False, result="done", **how)

def message(frame):
    start(frame)
    block = {"type": "text", "text": "done"}
    say(type="assistant", message={"id": "m", "content": [block]})
    end(frame)

def interrupt(frame):
    say(type="control_response", response={"subtype": "success", "request_id":
        frame["request_id"], "response": {"cancelled": []}})

def main():
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "user":
            message(frame)
        elif frame["request"]["subtype"] == "initialize":
            greet(frame)
        else:
            interrupt(frame)

if "--version" in sys.argv:
    print("2.1.332 (Claude Code)")
    sys.exit()
"""


def write_program(folder: Path, source: str, name: str = "claude") -> str:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{source}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def bad(folder: Path, worse: str, name: str = "claude") -> str:
    """A good one made worse, by what comes before it serves."""
    return write_program(folder, f"{GOOD}\n{worse}\nmain()", name)


@attrs.define
class World:
    rooms: turnstop.Rooms[str]

    async def ask(self, room: str) -> tuple[str, turnstop.Turn]:
        events: list[Event] = []
        async with self.rooms.turn(room, "hi") as turn:
            async for event in turn:
                events.append(event)
        return "".join(one.delta for one in events if isinstance(one, Text)), turn

    async def fails(self, room: str) -> BackendError:
        with pytest.raises(BackendError) as caught:
            await self.ask(room)
        return caught.value


@asynccontextmanager
async def open_world(program: str) -> AsyncGenerator[World, None]:
    with trio.fail_after(PATIENCE):
        async with (
            open_claude(program) as claude,
            turnstop.open_rooms(claude, budget=BUDGET) as rooms,
        ):
            yield World(rooms)


async def test_the_good_one_answers(tmp_path: Path) -> None:
    async with open_world(bad(tmp_path, "")) as world:
        said, turn = await world.ask("a")
    assert (said, turn.ending) == ("done", Ending.FINISHED)


async def test_a_missing_one_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("turnstop.adapters.claude._program.find_spec", lambda name: None)
    with pytest.raises(BackendRefused, match=r"python -m pip install claude-agent-sdk==0\.2\.189"):
        async with open_claude():
            pass


async def test_a_path_with_nothing_at_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(BackendRefused, match=r"cannot run .*nothing.*pip install"):
        async with open_claude(tmp_path / "nothing"):
            pass


async def test_the_one_on_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad(tmp_path, "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with trio.fail_after(PATIENCE):
        async with open_claude() as claude, turnstop.open_rooms(claude) as rooms:
            assert (await World(rooms).ask("a"))[0] == "done"


async def test_else_the_bundled_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = tmp_path / "claude_agent_sdk" / "_bundled"
    bundled.mkdir(parents=True)
    # Who imports it fails: it is only looked for.
    (tmp_path / "claude_agent_sdk" / "__init__.py").write_text("raise ImportError")
    bad(bundled, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    with trio.fail_after(PATIENCE):
        async with open_claude(env={"PATH": str(empty)}) as claude:
            async with turnstop.open_rooms(claude) as rooms:
                assert (await World(rooms).ask("a"))[0] == "done"


async def test_an_old_one_is_refused_with_floor_and_found(tmp_path: Path) -> None:
    program = write_program(tmp_path, "print('2.1.99 (Claude Code)')")
    with pytest.raises(BackendRefused, match=r"claude is 2\.1\.99, and 2\.1\.185 is the oldest"):
        async with open_claude(program):
            pass


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("print('a shell, at your service')", "told no version but 'a shell"),
        ("import sys; sys.exit('no libc')", "exited with status 1; its stderr ends: no libc"),
        ("print('x' * 2**21)", "told no version but 'xxx"),
    ],
    ids=["something else", "exits", "a megabyte"],
)
async def test_one_that_tells_no_version_is_refused(tmp_path: Path, source: str, text: str) -> None:
    with trio.fail_after(PATIENCE), pytest.raises(BackendRefused, match=text):
        async with open_claude(write_program(tmp_path, source)):
            pass


async def test_one_that_exits_at_start_is_told_with_its_stderr(tmp_path: Path) -> None:
    async with open_world(bad(tmp_path, "sys.exit('no such model')")) as world:
        error = await world.fails("a")
    assert isinstance(error, BackendLost)
    assert "exited with status 1; its stderr ends: no such model" in str(error)
    assert error.gone


async def test_one_that_says_nothing_is_told_after_its_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop.adapters.claude._wire._GREETED_WITHIN", 0.5)
    starts = tmp_path / "starts"
    worse = f"def greet(frame): open({str(starts)!r}, 'a').write('x')"
    async with open_world(bad(tmp_path, worse)) as world:
        error = await world.fails("a")
    assert isinstance(error, BackendRefused)
    assert "not answered initialize for 0.5 s" in str(error)
    assert starts.read_text() == "x"


async def test_options_that_it_does_not_take_are_told_at_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    words = "error: option '--permission-mode <mode>' argument 'x' is invalid"
    worse = f"open({str(starts)!r}, 'a').write('x'); sys.exit({words!r})"
    async with open_world(bad(tmp_path, worse)) as world:
        error = await world.fails("a")
    assert isinstance(error, BackendRefused)
    assert words in str(error)
    assert starts.read_text() == "x"


async def test_one_that_asks_for_a_login_fails_the_turn_with_its_words(tmp_path: Path) -> None:
    worse = """
def message(frame):
    start(frame)
    block = {"type": "text", "text": "Not logged in"}
    say(type="assistant", message={"id": "m", "content": [block]}, is_api_error_message=True)
    say(type="result", user_message_uuid=frame["uuid"], is_error=True,
        terminal_reason="api_error", result="Not logged in · Please run /login")
"""
    async with open_world(bad(tmp_path, worse)) as world:
        assert "Please run /login" in str(await world.fails("a"))
        # It can be logged in meanwhile: the process is as good as ever.
        assert "Please run /login" in str(await world.fails("a"))


async def test_a_banner_on_stdout_is_told(tmp_path: Path) -> None:
    async with open_world(bad(tmp_path, "print('Welcome to Claude!', flush=True)")) as world:
        error = await world.fails("a")
    assert "it wrote what is no JSON: Welcome to Claude!" in str(error)


async def test_a_line_without_end_is_told(tmp_path: Path) -> None:
    async with open_world(bad(tmp_path, "sys.stdout.write('x' * 70 * 2**20)")) as world:
        error = await world.fails("a")
    assert "it wrote a line of more than" in str(error)


async def test_a_megabyte_line_of_json_is_read(tmp_path: Path) -> None:
    worse = """
def message(frame):
    start(frame)
    block = {"type": "text", "text": "x" * 2**20}
    say(type="assistant", message={"id": "m", "content": [block]})
    end(frame)
"""
    async with open_world(bad(tmp_path, worse)) as world:
        said, _ = await world.ask("a")
    assert len(said) == 2**20


async def test_a_flood_on_stderr_holds_nobody(tmp_path: Path) -> None:
    worse = """
def message(frame):
    start(frame)
    for _ in range(64):
        os.write(2, b"warning: " * 2**13)
    block = {"type": "text", "text": "done"}
    say(type="assistant", message={"id": "m", "content": [block]})
    end(frame)
"""
    async with open_world(bad(tmp_path, worse)) as world:
        assert (await world.ask("a"))[0] == "done"


# Each of these hangs in its own way once it has a message; other rooms have good ones.
HANGS = {
    "closes its stdout and lives": "os.close(1); time.sleep(600)",
    "stops reading its stdin": "time.sleep(600)",
    "acknowledges, and goes on": "start(frame)",
    "is deaf to SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("how", HANGS)
async def test_one_that_hangs_is_ended_within_the_budget(tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pid"
    worse = f"""
def message(frame, plain=message):
    if "hang" not in frame["message"]["content"]:
        plain(frame)
        return
    start(frame)
    open({str(pids)!r}, "w").write(str(os.getpid()))
    {HANGS[how]}
"""
    async with open_world(bad(tmp_path, worse)) as world:
        assert (await world.ask("b"))[0] == "done"
        turn = world.rooms.turn("a", "hang")
        began = trio.current_time()
        try:
            async with turn:
                while not (pids.exists() and pids.read_text()):  # noqa: ASYNC110
                    await trio.sleep(0.01)
                turn.stop()
                await trio.sleep_forever()
        except BackendLost:
            assert how == "closes its stdout and lives"
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.gone
        assert settlement.survivors == ()
        assert settlement.ending in (Ending.KILLED, Ending.STOPPED, Ending.FAILED)
        assert trio.current_time() - began < 10.0
        with pytest.raises(ProcessLookupError):
            os.kill(int(pids.read_text()), 0)
        # The other room never noticed, and this one goes on in a process of its own.
        assert (await world.ask("b"))[0] == "done"
        assert (await world.ask("a"))[0] == "done"
