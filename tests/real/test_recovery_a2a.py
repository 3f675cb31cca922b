"""The process that began turns of a real A2A agent is killed; the next one ends them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from turnstop import Ending, Proof, Settlement, StopBudget, open_rooms
from turnstop.journal import open_journal
from turnstop.lab.a2a import open_a2a_server

from . import REQUIRED

try:
    from turnstop.adapters.a2a import open_a2a

    from .test_a2a import PATIENCE, POLLING, STREAMING, A2AServer, open_server
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

OWNER = """
import sys, trio, turnstop
from turnstop.adapters.a2a import open_a2a
from turnstop.journal import open_journal

async def main(path, url, *tokens):
    async with (
        open_journal(path) as journal,
        open_a2a(url) as agent,
        turnstop.open_rooms(agent, journal=journal) as rooms,
        trio.open_nursery() as nursery,
    ):
        async def take(token):
            async with rooms.turn(f"room {token}", f"park token={token}") as turn:
                async for _ in turn: pass
        for token in tokens:
            nursery.start_soon(take, token)

trio.run(main, *sys.argv[1:])
"""


@asynccontextmanager
async def killed(path: Path, server: A2AServer, *tokens: str) -> AsyncGenerator[None, None]:
    """A process whose turns are under way; it is killed when this is entered."""
    command = [sys.executable, "-c", OWNER, str(path), server.url, *tokens]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = await trio.lowlevel.open_process(command, env=environment)
    try:
        with trio.fail_after(PATIENCE):
            for token in tokens:
                await server.began(token)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    yield


async def recover(path: Path, server: A2AServer) -> list[Settlement]:
    found: list[Settlement] = []
    budget = StopBudget(10.0, 2.0)
    async with (
        open_journal(path) as journal,
        open_a2a(server.url) as agent,
        open_rooms(agent, journal=journal, budget=budget, observers=[found.append]) as rooms,
    ):
        while rooms.statistics().live:  # noqa: ASYNC110 - it has no event
            await trio.sleep(0.01)
    return found


@pytest.mark.parametrize("kind", [STREAMING, POLLING])
async def test_its_turns_are_ended_and_settled(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    async with open_server(kind) as server, killed(path, server, "one", "two"):
        assert server.alive("one")
        assert server.alive("two")
        found = await recover(path, server)
        with trio.fail_after(PATIENCE):
            await server.gone("one")
            await server.gone("two")
        assert sorted(one.room for one in found) == ["room one", "room two"]
        for one in found:
            assert one.request is not None
            assert one.request.kind == "recovery"
            if kind == STREAMING:
                assert (one.ending, one.proof) == (Ending.STOPPED, Proof.STREAM)
            else:
                assert one.ending is Ending.UNCONFIRMED
        assert [len(server.told(token)) for token in ("one", "two")] == [1, 1]
        assert await recover(path, server) == []


async def test_an_agent_that_has_forgotten_them_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    async with open_server() as server, killed(path, server, "one"):
        port = int(server.url.rstrip("/").rpartition(":")[2])
    # Another one, where the first was.
    async with open_a2a_server(port=port) as other:
        with trio.fail_after(PATIENCE):
            (found,) = await recover(path, other)
    assert (found.ending, found.gone) == (Ending.UNCONFIRMED, False)
