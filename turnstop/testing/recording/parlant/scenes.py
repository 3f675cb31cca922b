"""Scenes of Parlant: what the golden events are recorded of, and what the engine in memory plays.

A scene takes turns of a backend, and knows nothing of its engine but what the messages say:
`answer`, `mute` (nothing to say), `fail`, and `park` with a place, where the turn waits to be
released: `matching`, `preamble`, `generation`, or `emission` (of a message that is there).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from ...._rooms import Rooms, open_rooms
from ...._service import open_service
from ....abc import Backend
from .. import _scenes as scenes
from .._scenes import World

__all__ = ["SCENES", "Scene", "World"]

Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name."""
_scene = partial(scenes.register, SCENES)

# So long that whatever the stop does first is done.
_MEANWHILE = 0.2

_scene()(scenes.fail)


async def _stop(rooms: Rooms[Any], world: World, place: str) -> None:
    """Take a turn, and stop it where it waits."""
    name, message = world.prompt(f"park {place}")
    async with rooms.turn("kitchen", message) as turn:
        await world.reached(name)
        turn.stop()


@_scene()
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.prompt("answer")[1])


@_scene()
async def _say_nothing(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.prompt("mute")[1])


@_scene()
async def _stop_while_matching(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop(rooms, world, "matching")


@_scene()
async def _stop_with_a_preamble(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop(rooms, world, "preamble")


@_scene()
async def _stop_while_generating(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop(rooms, world, "generation")


@_scene()
async def _stop_while_emitting(backend: Backend[Any], world: World) -> None:
    name, message = world.prompt("park emission")

    async def go_on() -> None:
        await trio.sleep(_MEANWHILE)
        world.release(name)

    async with open_service() as service, open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", message) as turn:
            await world.reached(name)
            service.start_soon(go_on)
            turn.stop()


@_scene()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop(rooms, world, "preamble")
        await scenes.read(rooms, world.prompt("answer")[1])
