"""Scenes of opencode: what the golden wire is recorded of, and what the server in memory plays.

A scene takes turns of a backend, and knows nothing of its far end but what its world does: `answer`
(says something, and completes), `park` (says something, and goes on), `ask` (wants a permission).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from ...._rooms import Rooms, open_rooms
from ....abc import Backend
from ....events import Ask, Text

__all__ = ["SCENES", "World"]


class World(Protocol):
    """The far end that a scene asks."""

    def message(self, word: str) -> str:
        """The message that has it do something."""
        ...


Play: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]
SCENES: dict[str, Play] = {}
"""Every scene by its name, which is also its file's."""


def _scene(play: Play) -> Play:
    SCENES[play.__name__.strip("_")] = play
    return play


async def _read(rooms: Rooms[Any], message: str) -> None:
    async with rooms.turn("kitchen", message) as turn:
        async for _ in turn:
            pass


async def _stop_at(rooms: Rooms[Any], message: str, kind: type) -> None:
    async with rooms.turn("kitchen", message) as turn:
        async for event in turn:
            if isinstance(event, kind):
                turn.stop()


@_scene
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message("answer"))


@_scene
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_at(rooms, world.message("park"), Text)


@_scene
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_at(rooms, world.message("park"), Text)
        await _read(rooms, world.message("answer"))


@_scene
async def _stop_at_a_permission(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_at(rooms, world.message("ask"), Ask)
