"""What is near to a dead process's turn, and not of it: this process, and what nobody can tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from turnstop import BackendLost
from turnstop.abc import Proof
from turnstop.transports import orphans
from turnstop.transports.offspring import Offspring
from turnstop.transports.orphans import ProcessAddress, attach_process, new_mark
from turnstop.transports.proctable import TableEntry

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

RECOVERER = """
import sys, trio
from turnstop import BackendLost
from turnstop.transports.orphans import attach_process

async def main():
    turn = attach_process(sys.stdin.readline().strip())
    await turn.cancel(lambda: None)

try:
    trio.run(main)
except BackendLost as error:
    print(error)
"""


deaf: Any = print


def begin(command: str, *more: str) -> tuple[subprocess.Popen[bytes], ProcessAddress]:
    mark = new_mark()
    agent = subprocess.Popen(
        ["/bin/sh", "-c", command, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **dict([mark])},
        start_new_session=True,
    )
    return agent, ProcessAddress.of(agent.pid, mark)


@pytest.mark.parametrize("begun", ["", "setsid -w ", "sh -c 'exec setsid -w \"$@\"' x "])
def test_a_process_does_not_end_the_agent_that_has_begun_it(begun: str) -> None:
    # As an agent that is told to restart the service whose agent it is.
    agent, where = begin(f'{begun}"$0" -c "$1"; echo "tool: $?"', sys.executable, RECOVERER)
    told, _ = agent.communicate(str(where).encode() + b"\n", 60)
    assert agent.returncode == 0
    assert f"pid {agent.pid} works on the turn, and has begun this very process" in told.decode()
    assert told.endswith(b"tool: 0\n")


SERVICE = """
import os, subprocess, sys, trio
from turnstop import BackendLost
from turnstop.transports.orphans import attach_process

async def main(addresses):
    own = subprocess.Popen(["sleep", "300"], start_new_session=True)
    for address in addresses:
        try:
            await attach_process(address).cancel(lambda: None)
        except BackendLost as error:
            print(error)
    print("own:", own.poll(), flush=True)
    own.kill()

trio.run(main, sys.argv[1:])
"""


def test_a_service_that_its_agent_has_restarted_does_not_end_what_is_its_own() -> None:
    # Nothing between it and the agent is left: it is no child of that, and of no session of it.
    agent, where = begin("cat")
    ahead = ProcessAddress.ahead(where.mark)
    assert agent.stdin is not None
    try:
        told = subprocess.run(
            [sys.executable, "-c", SERVICE, str(where), str(ahead)],
            env={**os.environ, **dict([where.mark])},
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        ).stdout.splitlines()
        alive = agent.poll() is None
    finally:
        agent.communicate()
    assert alive
    assert [line.partition(" has begun this very process")[0] for line in told] == [
        f"the turn, of pid {agent.pid},",
        "the turn, of a process whose pid was not known yet,",
        "own: None",
    ]


def test_a_service_within_another_turn_is_apart() -> None:
    # As turnstop within an agent of turnstop: it carries the outer turn's mark alone.
    agent, where = begin("exec sleep 300")
    outer = new_mark()
    command = [sys.executable, "-c", RECOVERER]
    told = subprocess.run(
        command,
        input=f"{where}\n",
        env={**os.environ, **dict([outer]), where.mark[0]: "another"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    agent.communicate()
    assert (told, agent.returncode) == ("", -signal.SIGTERM)


async def test_what_may_be_of_a_session_without_its_leader_is_named_and_not_ended() -> None:
    agent, where = begin("env -i sleep 300 >/dev/null & echo $!; sleep 300 & cat")
    assert agent.stdin is not None
    assert agent.stdout is not None
    bare = int(agent.stdout.readline())
    turn = attach_process(str(where))
    agent.stdout.close()
    agent.stdin.close()
    agent.wait()
    try:
        with trio.fail_after(30):  # it is a shell's child until it is itself
            while bare in {one.pid for one in await turn.process.find()}:  # noqa: ASYNC110
                await trio.sleep(0.01)
        marked = await turn.process.find()
        assert marked
        assert [one.pid for one in await turn.leftovers() if one not in marked] == [bare]
        await turn.cancel(lambda: None)
        assert (await turn.follow(deaf)).proof is Proof.PROCESS
        assert [one.pid for one in await turn.sweep(await turn.leftovers())] == [bare]
        assert await attrs.evolve(turn.process, started=0).find_unclear() == []
    finally:
        os.kill(bare, signal.SIGKILL)


async def test_while_its_leader_is_there_all_of_a_session_is_its_own() -> None:
    agent, where = begin("env -i sleep 300 >/dev/null & echo $!; cat")
    assert agent.stdout is not None
    agent.stdout.readline()
    turn = attach_process(str(where))
    assert await turn.process.find_unclear() == []
    await turn.cancel(lambda: None)
    agent.communicate()
    assert await turn.leftovers() == []


async def test_what_only_looks_like_a_tool_of_the_turn_is_named_and_not_ended() -> None:
    # As a command of a person's who goes on by hand in the thread of a service that has crashed.
    agent, where = begin("TOOL=1 setsid sleep 300 >/dev/null & echo; cat")
    person, _ = begin("TOOL=1 sleep 300 & echo; wait")
    for one in (agent, person):
        assert one.stdout is not None
        one.stdout.readline()
    agent.communicate()
    try:
        tools = Offspring(("TOOL", "1"), {}, where.since)
        turn = attach_process(str(attrs.evolve(where, tool={"TOOL": "1"})), tools=tools)
        with trio.fail_after(30):  # it is a shell's child until it is itself
            while not any(one.session == one.pid for one in await turn.process.find_tools()):  # noqa: ASYNC110
                await trio.sleep(0.01)
        tool, persons = await turn.leftovers()
        assert [tool.session == tool.pid, persons.session == person.pid] == [True, True]
        assert await turn.sweep([tool, persons]) == [persons]
        assert person.poll() is None
    finally:
        os.killpg(person.pid, signal.SIGKILL)
        person.communicate()


async def test_what_a_finished_turn_has_left_in_a_session_is_nobodys_to_name() -> None:
    agent, where = begin("TOOL=1 sleep 300 >/dev/null & echo $!; cat")
    assert agent.stdout is not None
    kept = int(agent.stdout.readline())
    agent.communicate()
    try:
        turn = attach_process(str(attrs.evolve(where, tool={"TOOL": "1"}, since=sys.maxsize)))
        assert await turn.leftovers() == []
    finally:
        os.kill(kept, signal.SIGKILL)


async def test_what_runs_for_another_user_is_not_said_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, where = begin("exit 0")
    agent.communicate()
    assert where == ProcessAddress.parse(str(where))
    assert where.user == os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(BackendLost, match="take the turn up for that user"):
        attach_process(str(attrs.evolve(where, user=4343)))
    machine, _, container = where.host.split()
    restarted = attrs.evolve(where, user=4343, host=f"{machine} another-boot {container}")
    for seen in (restarted, attrs.evolve(where, user=4242), attrs.evolve(where, user=None)):
        assert (await attach_process(str(seen)).follow(deaf)).proof is Proof.PROCESS
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    attach_process(str(attrs.evolve(where, user=4343)))


async def test_one_that_shows_no_mark_for_a_moment_is_not_named(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    agent, where = begin("cat")  # One that has exited already tells no start.
    agent.communicate()
    assert where.started
    leaving = TableEntry(where.pid + 1, where.started, 1, where.pid)
    looks = [[leaving], [leaving], [], []]

    async def find(session: int, *, since: int) -> list[TableEntry]:
        await trio.lowlevel.checkpoint()
        return looks.pop(0)

    monkeypatch.setattr(orphans, "find_session", find)
    begun = trio.current_time()
    assert await where.find_unclear() == []
    assert looks == [[]]
    assert trio.current_time() - begun == pytest.approx(0.1)
