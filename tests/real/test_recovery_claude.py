"""The process that began turns of the real Claude Code is killed; the next one ends them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from turnstop.adapters.claude import open_claude
from turnstop.lab import Behaviour, open_lab, program_env, write_prompt

from . import real_program
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

PROGRAM = real_program("claude").path


class LeftClaude(Left):
    opening = staticmethod(open_claude)
    itself = b"stream-json"


@asynccontextmanager
async def open_left(home: Path) -> AsyncGenerator[LeftClaude, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            options = {
                "command": str(PROGRAM),
                "cwd": str(home),
                "env": program_env("claude", lab.url, home),
                "permission_mode": "bypassPermissions",
                "setting_sources": (),
            }
            yield LeftClaude(lab, home, options)


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


async def test_a_claude_that_hangs_is_ended_by_force(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        await one_that_hangs_is_ended_by_force(left)


async def test_a_turn_that_went_on_and_completed_is_finished(tmp_path: Path) -> None:
    async with open_left(tmp_path) as left:
        token, prompt = write_prompt(Behaviour("park"))
        async with left.owner(kitchen=[prompt]):
            await left.lab.parked(token)
        # Claude hears of nobody's death while it works.
        await trio.sleep(0.5)
        assert left.pids()
        left.lab.release(token)
        await until(lambda: not left.pids())
        async with left.recovered() as ((found,), rooms):
            assert facts(found) == FINISHED
            assert await left.remembers(rooms, token)
