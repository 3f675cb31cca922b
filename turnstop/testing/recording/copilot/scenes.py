"""Scenes of Copilot: what the golden wire is recorded of, and what the far end in memory plays.

What the prompts say is told by the scenes that all programs have, and `tool WORD`: run a shell
command, then do WORD.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import trio

from ...._errors import BackendError
from ...._rooms import open_rooms
from ....abc import Backend, Request
from ....events import Ask
from .. import _scenes as scenes
from .._scenes import World

__all__ = ["SCENES", "Scene", "World"]

Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name; its settings say whether everything is permitted."""
_scene = partial(scenes.register, SCENES)

_scene(approve_all=True)(scenes.finish)
_scene(approve_all=True)(scenes.stop_while_running)
_scene(approve_all=True)(scenes.stop_while_starting)
# A stopped turn's session is the next one's.
_scene(approve_all=True)(scenes.two_turns)


@_scene(approve_all=True)
async def _stop_while_a_command_runs(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("tool park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            turn.stop()
            await trio.sleep_forever()


@_scene(approve_all=False)
async def _stop_while_a_permission_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.stop_at(rooms, world.prompt("tool answer")[1], Ask)


@_scene(approve_all=False)
async def _allow(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        prompt = world.prompt("tool answer")[1]
        await scenes.read(rooms, prompt, lambda turn, ask: turn.answer(ask, "allow"))


@_scene(approve_all=False)
async def _deny(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        prompt = world.prompt("tool answer")[1]
        await scenes.read(rooms, prompt, lambda turn, ask: turn.answer(ask, "deny"))


@_scene(approve_all=True)
async def _fail_and_resume(backend: Backend[Any], world: World) -> None:
    """A failed turn's session is let go of, and resumed by its id."""
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await scenes.read(rooms, world.prompt("fail")[1])
        await scenes.read(rooms, world.prompt("answer")[1])


@_scene(approve_all=True)
async def _abort_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what Copilot would say."""
    remote = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await remote.follow(scenes.Unheard())
    await remote.cancel(lambda: None)
