"""The process that began turns of the real Copilot is killed; the next one takes stock."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from turnstop.lab import Behaviour, copilot_session, open_lab, program_env, write_prompt

from . import REQUIRED
from .labworld import PATIENCE, until
from .recovery import (
    FINISHED,
    KINDS,
    Left,
    a_turn_that_was_left_is_over_and_its_room_goes_on,
    every_room_is_settled,
    facts,
    no_command_is_left,
    one_that_hangs_is_ended_by_force,
    what_a_finished_turn_left_goes_on,
)

try:
    from turnstop.adapters.copilot import open_copilot

    from .test_copilot import PROGRAM
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)


class LeftCopilot(Left):
    opening = staticmethod(open_copilot)
    itself = b"--headless"


@asynccontextmanager
async def open_left(home: Path) -> AsyncGenerator[LeftCopilot, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            options = {"command": str(PROGRAM), "cwd": str(home), "approve_all": True}
            env = program_env("copilot", lab.url, home)
            yield LeftCopilot(lab, home, {**options, "env": env, **copilot_session(lab.url)})


async def test_a_turn_that_was_left_is_over_and_its_room_goes_on(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        await a_turn_that_was_left_is_over_and_its_room_goes_on(left)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_command_is_left(tmp_path: Path, kind: str) -> None:
    async with open_left(tmp_path) as left:
        await no_command_is_left(left, KINDS[kind])


async def test_what_a_finished_turn_left_goes_on(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        await what_a_finished_turn_left_goes_on(left)


async def test_every_room_is_settled(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        await every_room_is_settled(left)


async def test_a_copilot_that_hangs_is_ended_by_force(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        await one_that_hangs_is_ended_by_force(left)


async def test_a_turn_that_had_completed_is_finished(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        token, prompt = write_prompt(Behaviour("park"))
        async with left.owner(kitchen=[prompt]) as owner:
            await left.lab.parked(token)
            # It hears no more of Copilot, which completes the turn.
            owner.send_signal(signal.SIGSTOP)
            left.lab.release(token)
            await until(lambda: b'"assistant.turn_end"' in written(tmp_path))
        async with left.recovered() as ((found,), rooms):
            assert facts(found) == FINISHED
            assert await left.remembers(rooms, token)


def written(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("events.jsonl"))
