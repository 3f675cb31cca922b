"""Scenes of opencode: what the golden wire is recorded of, and what the server in memory plays.

A scene takes turns of a backend, and knows nothing of its far end but what its world does: `answer`
(says something, and completes), `park` (says something, and goes on), `ask` (wants a permission).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from ...._rooms import open_rooms
from ....abc import Backend
from ....events import Ask, Text
from .. import _scenes as scenes

__all__ = ["SCENES", "Scene", "World"]


class World(Protocol):
    """The far end that a scene asks."""

    def message(self, word: str) -> str:
        """The message that has it do something."""
        ...


Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name."""
_scene = partial(scenes.register, SCENES)


@_scene()
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message("answer"))


@_scene()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.stop_at(rooms, world.message("park"), Text)


@_scene()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.stop_at(rooms, world.message("park"), Text)
        await scenes.read(rooms, world.message("answer"))


@_scene()
async def _stop_at_a_permission(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.stop_at(rooms, world.message("ask"), Ask)
