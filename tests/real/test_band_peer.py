"""The peer itself: its own process, on a real codex and a real A2A server."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import trio

from turnstop.cli.band import BandAbsent, find_band_python, open_band
from turnstop.lab import open_lab, program_env
from turnstop.lab.a2a import open_a2a_server

from . import real_program


@pytest.fixture
def python() -> str:
    try:
        return find_band_python()
    except BandAbsent as absent:
        pytest.skip(str(absent))


@pytest.fixture
def codex() -> str:
    return real_program("codex").path


async def test_codex_is_stopped_while_it_streams(python: str, codex: str, tmp_path: Path) -> None:
    command = [codex, "app-server", "--listen", "stdio://"]
    with trio.fail_after(60):
        async with open_lab() as lab:
            env = program_env("codex", lab.url, tmp_path)
            async with open_band(
                python, backend="codex", command=command, cwd=os.fspath(tmp_path), env=env
            ) as peer:
                before = time.monotonic()
                turn = await peer.start("room", "[turn:one] park", turn_id="one")
                after = await peer.start("room", "[turn:two] answer", turn_id="two")
                await lab.parked("one")
                await peer.stop(turn)
                await after.reached("settled")
                await lab.gone("one")
    assert before <= turn.at["admitted"] <= turn.at["sent"] <= turn.at["revealed"]
    assert turn.at["asked"] <= turn.at["telling"] <= turn.at["told"] <= turn.at["acked"]
    assert turn.at["acked"] <= after.at["admitted"] <= after.at["ended"]
    assert after.said["ended"] == "completed"
    assert turn.said["ended"] == "interrupted"


async def test_codex_goes_on_when_the_stop_meets_the_start(
    python: str, codex: str, tmp_path: Path
) -> None:
    """The fault that the comparison shows: were it gone, the tables in the docs would be wrong."""
    command = [codex, "app-server", "--listen", "stdio://"]
    with trio.fail_after(60):
        async with open_lab() as lab:
            env = program_env("codex", lab.url, tmp_path)
            async with open_band(
                python, backend="codex", command=command, cwd=os.fspath(tmp_path), env=env
            ) as peer:
                refused = 0
                for number in range(10):
                    turn = await peer.start(
                        "room" + str(number),
                        f"[turn:t{number}] park",
                        turn_id=str(number),
                        stop_after=0.0,
                    )
                    await turn.reached("settled")
                    refused += "refused" in turn.at
    # How often depends on the machine; that it happens at all is what the comparison says.
    assert refused > 0


async def test_a2a_is_stopped_while_it_works(python: str) -> None:
    with trio.fail_after(60):
        async with (
            open_a2a_server() as server,
            open_band(python, backend="a2a", url=server.url, streaming=True) as peer,
        ):
            turn = await peer.start("room", "park token=one", turn_id="one")
            await turn.reached("revealed")
            await server.began("one")
            await peer.stop(turn)
            after = await peer.start("room", "answer token=two", turn_id="two")
            await after.reached("settled")
            await server.gone("one")
    assert turn.at["asked"] <= turn.at["told"] <= turn.at["acked"] <= after.at["admitted"]
    assert after.said["ended"] == "TASK_STATE_COMPLETED"
