"""Scenes of ACP: what the golden wire is recorded of, and what the agent in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `permission` (run a
command that a person is asked about, then answer).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from ...._rooms import open_rooms
from ....abc import Backend
from .. import _scenes as scenes

__all__ = ["SCENES", "Scene", "World"]


class World(scenes.World, Protocol):
    """The model that a scene asks."""

    async def lose(self) -> None:
        """End the agent's process.

        **Cancellation:** it is ended all the same.
        """
        ...


Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name."""
_scene = partial(scenes.register, SCENES)

_scene()(scenes.finish)
_scene()(scenes.stop_while_running)
_scene()(scenes.two_turns)


@_scene()
async def _approve(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        prompt = world.prompt("permission")[1]
        await scenes.read(rooms, prompt, lambda turn, ask: turn.answer(ask, "allow_once"))


@_scene()
async def _stop_while_a_permission_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.prompt("permission")[1], lambda turn, ask: turn.stop())
        await scenes.read(rooms, world.prompt("answer")[1])


@_scene()
async def _go_on_after_a_loss(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.prompt("answer")[1])
        await world.lose()
        await scenes.read(rooms, world.prompt("answer")[1])
