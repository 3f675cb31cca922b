"""What is near to a dead process's turn, and not of it: this process, and what nobody can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnstop.transports.orphans import ProcessAddress, new_mark

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


@pytest.mark.parametrize("begun", ["", "setsid -w ", "sh -c 'exec setsid -w \"$@\"' x "])
def test_a_process_does_not_end_the_agent_that_has_begun_it(begun: str) -> None:
    # As an agent that is told to restart the service whose agent it is.
    mark = new_mark()
    agent = subprocess.Popen(
        ["/bin/sh", "-c", f'{begun}"$0" -c "$1"; echo "tool: $?"', sys.executable, RECOVERER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **dict([mark])},
        start_new_session=True,
    )
    told, _ = agent.communicate(str(ProcessAddress.of(agent.pid, mark)).encode() + b"\n", 60)
    assert agent.returncode == 0
    assert f"pid {agent.pid} works on the turn, and has begun this very process" in told.decode()
    assert told.endswith(b"tool: 0\n")
