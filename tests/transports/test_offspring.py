"""What tools have started: known by two marks and a time, and ended with what it starts."""

import os
import subprocess
from pathlib import Path

import pytest

from turnstop.transports.offspring import Offspring
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
