from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest
import trio

from turnstop.lab import ToolProcess, open_lab
from turnstop.lab._processes import find_processes, mark

TOKEN = uuid.uuid4().hex
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    command = mark(TOKEN, "sleep 61 & sleep 62; true")
    with subprocess.Popen(["/bin/sh", "-c", command]) as process:
        yield process
        process.kill()
        # The last of the shell's children may still be on its way from fork to exec.
        for _ in range(20):
            for found in find_processes(TOKEN, 0):
                found.kill()
            time.sleep(0.001)


async def test_what_a_turns_shell_started_is_found_and_its_end_is_seen(
    shell: subprocess.Popen[bytes],
) -> None:
    async with open_lab() as lab:
        with trio.fail_after(10):
            found = {one.command: one for one in await lab.tool_running(TOKEN, 2)}
        assert {"sleep 61", "sleep 62"} <= set(found)
        assert lab.processes("a2") == []
        assert lab.gone_at(TOKEN) is None
        os.kill(found["sleep 61"].pid, signal.SIGKILL)
        with trio.fail_after(10):
            await lab.until(lambda: found["sleep 61"].gone_at is not None)
            assert lab.alive(TOKEN) == [f"process {found['sleep 62']}"]
            os.kill(found["sleep 62"].pid, signal.SIGKILL)
            await lab.gone(TOKEN)
        assert lab.alive(TOKEN) == []
        assert lab.gone_at(TOKEN) == found["sleep 62"].gone_at


async def test_tool_running_waits_for_one(shell: subprocess.Popen[bytes]) -> None:
    async with open_lab() as lab:
        with trio.fail_after(10):
            assert (await lab.tool_running(TOKEN))[0].token == TOKEN


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


async def test_a_number_that_was_given_away_is_somebody_elses(
    other: subprocess.Popen[bytes],
) -> None:
    process = ToolProcess(other.pid, started=1, token=TOKEN, command="x", seen_at=0)
    with trio.fail_after(10):
        await process.watch()
    assert process.gone_at is not None
    process.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.05)
