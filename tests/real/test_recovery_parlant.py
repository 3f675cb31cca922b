"""The process that runs the real Parlant engine is killed, with a turn under way; then the next."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import turnstop
from turnstop import Ending, Proof, Settlement
from turnstop.journal import open_journal

from .parlant_env import need_parlant

need_parlant()

from turnstop.adapters.parlant import open_parlant  # noqa: E402
from turnstop.lab.parlant import ParkedModel  # noqa: E402

PATIENCE = 60.0
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

OWNER = """
import sys, trio, turnstop
from turnstop.adapters.parlant import open_parlant
from turnstop.journal import open_journal
from turnstop.lab.parlant import ParkedModel

async def main(path, store, said):
    model = ParkedModel()
    async with (
        open_journal(path) as journal,
        open_parlant(model.prepare, session_store=store, **model.options()) as parlant,
        turnstop.open_rooms(parlant, journal=journal) as rooms,
    ):
        _, message = model.write("answer")
        async with rooms.turn("kitchen", message) as turn:
            async for _ in turn: pass
        token, message = model.write("park generation")
        async with rooms.turn("kitchen", message) as turn:
            await model.parked(token)
            with open(said, "w") as file:
                print(model.session(token), file=file)
            await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


async def kill_owner(path: Path, store: str) -> str:
    """Have a process begin a turn, and kill it; the session of the turn."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    said = path.with_name("said")
    command = [sys.executable, "-c", OWNER, str(path), store, str(said)]
    process = await trio.lowlevel.open_process(command, env=env)
    try:
        while not (said.exists() and (session := said.read_text().strip())):
            assert process.poll() is None
            await trio.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
    return session


@asynccontextmanager
async def recovered(
    path: Path, store: str
) -> AsyncGenerator[tuple[list[Settlement], ParkedModel, turnstop.Rooms[str]], None]:
    found: list[Settlement] = []
    model = ParkedModel()
    options: dict[str, Any] = {"session_store": store, **model.options()}
    async with (
        open_journal(path) as journal,
        open_parlant(model.prepare, **options) as parlant,
        turnstop.open_rooms(parlant, journal=journal, observers=[found.append]) as rooms,
    ):
        while rooms.statistics().rooms:  # noqa: ASYNC110 - rooms have no word for it
            await trio.sleep(0.01)
        yield found, model, rooms


@pytest.mark.parametrize("store", ["transient", "local"])
async def test_a_turn_has_ended_with_its_process(tmp_path: Path, store: str) -> None:
    path = tmp_path / "turns.db"
    with trio.fail_after(3 * PATIENCE):
        # Parlant is imported by this: the folder of its files is in the environment from then on.
        ParkedModel().options()
        before = await kill_owner(path, store)
        async with recovered(path, store) as (found, model, rooms):
            (settled,) = found
            assert (settled.ending, settled.proof) == (Ending.STOPPED, Proof.PROCESS)
            assert settled.clean
            token, message = model.write("answer")
            async with rooms.turn("kitchen", message) as turn:
                async for _ in turn:
                    pass
            assert turn.ending is Ending.FINISHED
            assert (model.session(token) == before) is (store == "local")
