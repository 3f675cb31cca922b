from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

from turnstop.lab import open_lab
from turnstop.lab._processes import find_processes, mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    command = mark("a1", "setsid sleep 61 & sleep 62; true")
    with subprocess.Popen(["/bin/sh", "-c", command]) as process:
        yield process
        for found in find_processes("a1"):
            os.kill(found.pid, signal.SIGKILL)
        process.kill()


async def test_what_a_turns_shell_started_is_found_and_its_end_is_seen(
    shell: subprocess.Popen[bytes],
) -> None:
    async with open_lab() as lab:
        with trio.fail_after(10):
            found = {one.command: one for one in await lab.tool_running("a1", 2)}
        assert {"sleep 61", "sleep 62"} <= set(found)
        assert lab.processes("a2") == []
        assert lab.gone_at("a1") is None
        os.kill(found["sleep 61"].pid, signal.SIGKILL)
        with trio.fail_after(10):
            await lab.until(lambda: found["sleep 61"].gone_at is not None)
            assert lab.alive("a1") == [f"process {found['sleep 62']}"]
            os.kill(found["sleep 62"].pid, signal.SIGKILL)
            await lab.gone("a1")
        assert lab.alive("a1") == []
        assert lab.gone_at("a1") == found["sleep 62"].gone_at


async def test_tool_running_waits_for_one(shell: subprocess.Popen[bytes]) -> None:
    async with open_lab() as lab:
        with trio.fail_after(10):
            assert (await lab.tool_running("a1"))[0].token == "a1"
