"""What tools have started: known by two marks and a time, and ended with what it starts."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from turnstop.transports.offspring import Offspring, open_clearing
from turnstop.transports.proctable import ticks_now

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

MARK = (f"TURNSTOP_TEST_OFFSPRING_{os.getpid()}", "1")
TOOL = {"A_TOOL_OF": "agent", "AND_OF": None}
CARRIED = {"A_TOOL_OF": "agent", "AND_OF": "whatever"}


def start(command: str = "sleep 300", **carried: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"echo up; {command}"],
        stdout=subprocess.PIPE,
        env={**os.environ, **carried},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def reap(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def test_a_tools_process_carries_both_marks_and_began_after_the_turn() -> None:
    began = ticks_now()
    mine = start("exec sleep 300", **dict([MARK]), **CARRIED)
    helper = start("exec sleep 300", **dict([MARK]))
    stranger = start("exec sleep 300", **CARRIED)
    other = start("exec sleep 300", **dict([MARK]), A_TOOL_OF="another", AND_OF="it")
    try:
        found = await Offspring(MARK, TOOL, began).find()
        assert [one.pid for one in found] == [mine.pid]
        assert await Offspring(MARK, TOOL, found[0].started + 1).find() == []
    finally:
        reap(mine, helper, stranger, other)


async def test_it_is_ended_with_what_it_starts_on_its_way_out() -> None:
    began = ticks_now()
    trap = "trap 'setsid sleep 300 & exit' TERM; while :; do sleep 0.01; done"
    mine = start(trap, **dict([MARK]), **CARRIED)
    try:
        offspring = Offspring(MARK, TOOL, began)
        assert await offspring.end(await offspring.find()) == []
        assert await offspring.find() == []
    finally:
        reap(mine)


async def commands_once(*names: str) -> None:
    """Wait until processes of these commands carry the mark."""
    with trio.fail_after(30):
        found: set[str] = set()
        while not found >= {*names}:
            await trio.sleep(0.01)
            found = {one.command for one in await Offspring(MARK, {}, 0).find()}


async def test_what_an_earlier_turns_server_starts_is_not_this_turns(tmp_path: Path) -> None:
    turn = f"until [ -e {tmp_path}/turn ]; do sleep 0.01; done"
    tool = " ".join(f"{name}={value}" for name, value in CARRIED.items())
    # Its child, one in its session whose parent is gone, and a child in a session of its own.
    workers = "sleep 301 & (sleep 302 &); setsid sleep 303 & wait"
    server = start(f"{turn}; {workers}", **dict([MARK]), **CARRIED)
    # An agent may begin its tools in its own session, where an earlier turn's may still be.
    tools = (f"env {tool} sleep 304 &", f"env {tool} sleep 305 & wait")
    agent = start(f"{tools[0]} {turn}; {tools[1]}", **dict([MARK]))
    everything = Offspring(MARK, {}, 0)
    try:
        await commands_once("sleep 304")
        began = ticks_now() + 1
        while ticks_now() < began:  # noqa: ASYNC110 - a tick is no event
            await trio.sleep(0.001)
        (tmp_path / "turn").touch()
        await commands_once(*(f"sleep {number}" for number in range(301, 306)))
        offspring = Offspring(MARK, TOOL, began)
        found = await offspring.find()
        assert [one.command for one in found] == ["sleep 305"]
        assert await offspring.end(found) == []
        await commands_once(*(f"sleep {number}" for number in range(301, 305)))
    finally:
        await everything.end(await everything.find())
        reap(server, agent)


@pytest.mark.parametrize("how", ["leaves", "fails", "is cancelled"])
async def test_what_carries_the_mark_is_ended_however_the_body_leaves(how: str) -> None:
    mark = (f"{MARK[0]}_CLEARED", "1")
    mine = start("setsid sleep 300 & exec sleep 300", **dict([mark]))
    other = start("exec sleep 300", **{mark[0]: "2"})
    try:
        with trio.CancelScope() as scope, suppress(ZeroDivisionError):
            async with open_clearing(mark):
                if how == "fails":
                    raise ZeroDivisionError
                if how == "is cancelled":
                    scope.cancel()
        assert await Offspring(mark, {}, 0).find() == []
        assert other.poll() is None
    finally:
        reap(mine, other)
