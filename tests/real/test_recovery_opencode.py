"""The process that began turns of the real opencode is killed; the next one ends them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from turnstop import BackendLost, BackendRefused, Ending, Settlement, StopBudget, open_rooms
from turnstop.journal import open_journal
from turnstop.lab import Behaviour, Lab, open_lab, write_prompt

from . import REQUIRED
from .labworld import PATIENCE
from .recovery import (
    Left,
    a_turn_that_was_left_is_over_and_its_room_goes_on,
    no_command_is_left,
)

try:
    from turnstop.adapters.opencode import open_opencode

    from .test_opencode import PROGRAM, World, environment, holding_up
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

OWNER = """
import json, sys, trio, turnstop
from turnstop.adapters.opencode import open_opencode
from turnstop.journal import open_journal

async def main(path, options, prompt):
    async with (
        open_journal(path) as journal,
        open_opencode(**json.loads(options)) as opencode,
        turnstop.open_rooms(opencode, journal=journal) as rooms,
        rooms.turn("kitchen", prompt) as turn,
    ):
        async for _ in turn: pass

trio.run(main, *sys.argv[1:])
"""


@asynccontextmanager
async def killed(path: Path, lab: Lab, **options: object) -> AsyncGenerator[str, None]:
    """A process whose turn is under way; it is killed when this is entered."""
    token, prompt = write_prompt(Behaviour("park"))
    command = [sys.executable, "-c", OWNER, str(path), json.dumps(options), prompt]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = await trio.lowlevel.open_process(command, env=here)
    try:
        with trio.fail_after(2 * PATIENCE):
            await lab.parked(token)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    yield token


async def recover(path: Path, **options: object) -> list[Settlement]:
    found: list[Settlement] = []
    async with (
        open_journal(path) as journal,
        open_opencode(**options) as opencode,
        open_rooms(
            opencode, journal=journal, budget=StopBudget(10.0, 2.0), observers=[found.append]
        ) as rooms,
    ):
        while rooms.statistics().live:  # noqa: ASYNC110 - it has no event
            await trio.sleep(0.01)
    return found


async def test_a_turn_on_a_server_that_goes_on_is_aborted(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = environment(lab, tmp_path)
            async with open_opencode(command=PROGRAM, directory=tmp_path, env=env) as backend:
                options = {
                    "url": backend._servers.current.wire.url,
                    "directory": str(tmp_path),
                    "password": World(lab, backend, tmp_path).password,
                }
                async with killed(path, lab, **options) as token:
                    assert lab.alive(token)
                    (found,) = await recover(path, **options)
                    assert (found.ending, found.gone) == (Ending.STOPPED, True)
                    assert found.request is not None
                    assert found.request.kind == "recovery"
                    await lab.gone(token)
                    assert await recover(path, **options) == []


async def test_a_server_that_was_left_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            options = {
                "command": [str(PROGRAM), "serve"],
                "directory": str(tmp_path),
                "env": environment(lab, tmp_path),
            }
            async with killed(path, lab, **options) as token:
                (found,) = await recover(path, **options)
            assert found.gone
            assert found.ending is Ending.STOPPED
            await lab.gone(token)


class LeftOpenCode(Left):
    opening = open_opencode
    itself = b"serve"


@asynccontextmanager
async def left_behind(home: Path) -> AsyncGenerator[LeftOpenCode, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            options = {
                "command": [str(PROGRAM), "serve"],
                "directory": str(home),
                "env": environment(lab, home),
            }
            yield LeftOpenCode(lab, home, options)


async def test_the_room_of_a_server_that_was_left_goes_on_in_its_session(tmp_path: Path) -> None:
    async with left_behind(tmp_path) as left:
        await a_turn_that_was_left_is_over_and_its_room_goes_on(left)


async def test_a_command_of_a_server_that_was_left_is_ended(tmp_path: Path) -> None:
    async with left_behind(tmp_path) as left:
        await no_command_is_left(left, "touch $READY; setsid sleep 300")


async def test_a_message_that_a_plugin_holds_up_is_shut_out_or_in_doubt(tmp_path: Path) -> None:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = holding_up(environment(lab, tmp_path), tmp_path)
            async with open_opencode(command=PROGRAM, directory=tmp_path, env=env) as backend:
                wire = backend._servers.current.wire

                async def send(session: str, message: str) -> tuple[str, str]:
                    """The token of what was sent, and the address of its turn."""
                    token, prompt = write_prompt(Behaviour("park"))
                    body = {"messageID": message, "parts": [{"type": "text", "text": prompt}]}
                    await wire.post(f"/session/{session}/prompt_async", body)
                    return token, json.dumps([session, message])

                used, fresh = [(await wire.post("/session", {}))["id"] for _ in range(2)]
                token, address = await send(used, "msg_000000000001")
                await lab.parked(token)
                turn = await backend.attach(address)
                await turn.cancel(lambda: None)
                await lab.gone(token)

                doubted, address = await send(used, "msg_000000000002")
                with pytest.raises(BackendLost, match="may come late"):
                    await backend.attach(address)
                shut_out, address = await send(fresh, "msg_000000000003")
                with pytest.raises(BackendRefused, match="nothing was begun"):
                    await backend.attach(address)
                # It was begun before, and so it would have come by now.
                await lab.parked(doubted)
                await trio.sleep(4.0)
                assert lab.requests(shut_out) == []
