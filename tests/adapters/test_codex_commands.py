"""Whose shell commands are whose: real processes, marked as codex marks them."""

import os
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from turnstop._errors import BackendLost
from turnstop.adapters.codex._commands import Commands, ShellCommand
from turnstop.transports.jsonrpc import Incoming, RpcError
from turnstop.transports.proctable import has_table, ticks_now

pytestmark = pytest.mark.skipif(not has_table(), reason="needs /proc")


class Rpc:
    """codex's list of terminals, and what it was asked to terminate."""

    def __init__(self) -> None:
        self.listed: list[dict[str, str]] = []
        self.terminated: list[str] = []
        self.error: Exception | None = None

    async def call_within(self, seconds: float, method: str, params: dict[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if method.endswith("/list"):
            at = int(params.get("cursor", 0))
            more = str(at + 1) if at + 1 < len(self.listed) else None
            return {"data": self.listed[at : at + 1], "nextCursor": more}
        self.terminated.append(params["processId"])
        self.listed = [one for one in self.listed if one["processId"] != params["processId"]]
        return {"terminated": True}


class Shells:
    """Commands as codex starts them, each in a session of its own."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    async def start(
        self, thread: str, call: str, command: str = "echo up; sleep 300", root: str = ""
    ) -> subprocess.Popen[bytes]:
        marks = {"CODEX_THREAD_ID": thread, "CODEX_TOOL_CALL_ID": call}
        process = subprocess.Popen(  # noqa: ASYNC220
            ["/bin/sh", "-c", command],
            stdout=subprocess.PIPE,
            env={**os.environ, **marks, "CODEX_SESSION_ID": root or thread},
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"up\n"
        return process


@pytest.fixture
def shells() -> Iterator[Shells]:
    found = Shells()
    yield found
    for process in found.processes:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@asynccontextmanager
async def a_tick_later() -> AsyncGenerator[None, None]:
    """Whatever starts inside has a later start time than what started before."""
    now = ticks_now()
    while ticks_now() <= now + 1:  # noqa: ASYNC110 - it is the clock that is waited for
        await trio.sleep(0.01)
    yield


def note(commands: Commands, call: str, command: str = "sleep") -> None:
    item = {"type": "commandExecution", "id": call, "command": command}
    commands.note(Incoming("item/started", {"item": item}, {}, lambda frame: None))


def thread_name() -> str:
    return f"thread-{os.getpid()}-{os.urandom(4).hex()}"


async def test_a_turns_own_commands_are_found_and_ended_and_no_others(shells: Shells) -> None:
    thread, other = thread_name(), thread_name()
    earlier = await shells.start(thread, "c0")
    async with a_tick_later():
        commands = Commands(Rpc(), thread, ticks_now(), set(), set())  # type: ignore[arg-type]
        mine = await shells.start(thread, "c1")
        unseen = await shells.start(thread, "c2")
        neighbour = await shells.start(other, "c1")
        note(commands, "c1", "npm test")
        found = await commands.find()
        assert {command.call for command in found} == {"c1", "c2"}
        (named,) = [command for command in found if command.call == "c1"]
        assert str(named).startswith(f"npm test (pid {mine.pid}")
        assert await commands.end(await commands.find()) == []
        assert mine.wait() == -15
        assert unseen.wait() == -15
        assert earlier.poll() is None
        assert neighbour.poll() is None


async def test_a_new_child_of_an_earlier_command_is_not_this_turns(shells: Shells) -> None:
    thread = thread_name()
    loop = "echo up; while :; do sleep 0.01; done"
    earlier = await shells.start(thread, "c0", loop)
    async with a_tick_later():
        commands = Commands(Rpc(), thread, ticks_now(), set(), set())  # type: ignore[arg-type]
        async with a_tick_later():
            assert await commands.find() == []
            assert await commands.end(await commands.find()) == []
            assert earlier.poll() is None


async def test_what_an_earlier_command_left_to_begin_anew_is_not_this_turns(shells: Shells) -> None:
    thread = thread_name()
    async with a_tick_later():
        commands = Commands(Rpc(), thread, ticks_now(), set(), {"c0"})  # type: ignore[arg-type]
    # As a server that reloads itself: nothing older than the turn is left of it.
    earlier = await shells.start(thread, "c0")
    mine = await shells.start(thread, "c1")
    assert [one.call for one in await commands.find()] == ["c1"]
    assert await commands.end(await commands.find()) == []
    assert mine.wait() == -15
    assert earlier.poll() is None


async def test_one_that_ignores_sigterm_in_a_session_of_its_own_is_killed(shells: Shells) -> None:
    thread = thread_name()
    rpc = Rpc()
    commands = Commands(rpc, thread, ticks_now() - 1, set(), set())  # type: ignore[arg-type]
    inner = "trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done"
    await shells.start(thread, "c1", f'setsid sh -c "{inner}" & wait')
    assert len(await commands.find()) == 1
    assert await commands.end(await commands.find()) == []
    assert await commands.find() == []


async def test_a_sub_agents_commands_are_the_turns_and_another_turns_agents_are_not(
    shells: Shells,
) -> None:
    thread, agent, other = thread_name(), thread_name(), thread_name()
    commands = Commands(Rpc(), thread, ticks_now() - 1, {agent}, set())  # type: ignore[arg-type]
    mine = await shells.start(agent, "c1", root=thread)
    theirs = await shells.start(other, "c2", root=thread)
    found = await commands.find()
    assert [command.call for command in found] == ["c1"]
    assert await commands.end(found) == []
    assert mine.wait() == -15
    assert theirs.poll() is None


async def test_codex_list_names_what_the_table_does_not_show_and_is_told_to_end_it() -> None:
    rpc = Rpc()
    thread = thread_name()
    commands = Commands(rpc, thread, ticks_now(), set(), set())  # type: ignore[arg-type]
    note(commands, "c1", "npm start")
    note(commands, "c2", "npm test")
    rpc.listed = [
        {"itemId": "c0", "processId": "70", "command": "of an earlier turn"},
        {"itemId": "c1", "processId": "71", "command": "npm start"},
        {"itemId": "c2", "processId": "72", "command": "npm test"},
    ]
    expected = [ShellCommand("c1", "npm start", (), "71"), ShellCommand("c2", "npm test", (), "72")]
    assert await commands.find() == expected
    assert await commands.end(await commands.find()) == []
    assert rpc.terminated == ["71", "72"]


@pytest.mark.parametrize("error", [BackendLost("gone"), RpcError(-32600, "what?")])
async def test_the_table_will_do_where_codex_does_not_answer(
    shells: Shells, error: Exception
) -> None:
    thread = thread_name()
    rpc = Rpc()
    rpc.error = error
    commands = Commands(rpc, thread, ticks_now() - 1, set(), set())  # type: ignore[arg-type]
    note(commands, "c1")
    process = await shells.start(thread, "c1")
    assert len(await commands.find()) == 1
    assert await commands.end(await commands.find()) == []
    assert process.wait() == -15


async def test_without_a_table_the_list_has_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rpc = Rpc()
    rpc.error = BackendLost("no answer")
    commands = Commands(rpc, thread_name(), ticks_now(), set(), set())  # type: ignore[arg-type]
    note(commands, "c1")
    monkeypatch.setattr("turnstop.adapters.codex._commands.has_table", lambda: False)
    with pytest.raises(BackendLost, match="no answer"):
        await commands.find()


async def test_codex_is_not_asked_about_a_turn_that_ran_no_command() -> None:
    rpc = Rpc()
    rpc.error = AssertionError("asked")
    commands = Commands(rpc, thread_name(), ticks_now(), set(), set())  # type: ignore[arg-type]
    assert await commands.find() == []
