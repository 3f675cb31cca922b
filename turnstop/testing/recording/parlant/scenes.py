"""Scenes of Parlant: what the golden events are recorded of, and what the double plays.

A scene takes turns of a backend, and knows nothing of its engine but what the messages say:
`answer`, `mute` (nothing to say), `fail`, and `park` with a place, where the turn waits to be
released: `matching`, `preamble`, `generation`, or `emission` (of a message that is there).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import trio

from ...._errors import BackendError
from ...._rooms import Rooms, open_rooms
from ...._service import open_service
from ....abc import Backend

__all__ = ["SCENES", "Scene", "World"]


class World(Protocol):
    """The engine that a scene asks."""

    def prompt(self, words: str) -> tuple[str, str]:
        """A name for a turn, and the message that asks for it."""
        ...

    async def reached(self, name: str) -> None:
        """Wait until it waits.

        **Cancellation:** changes nothing.
        """
        ...

    def release(self, name: str) -> None:
        """Let it go on."""


Scene: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]

SCENES: dict[str, Scene] = {}
"""Every scene by its name."""

# So long that whatever the stop does first is done.
_MEANWHILE = 0.2


def _scene(play: Callable[[Rooms[Any], World], Awaitable[None]]) -> Scene:
    async def run(backend: Backend[Any], world: World) -> None:
        async with open_rooms(backend) as rooms:
            await play(rooms, world)

    SCENES[play.__name__.strip("_")] = run
    return run


async def _read(rooms: Rooms[Any], world: World, words: str) -> None:
    async with rooms.turn("kitchen", world.prompt(words)[1]) as turn:
        async for _ in turn:
            pass


async def _stop(rooms: Rooms[Any], world: World, place: str) -> None:
    name, message = world.prompt(f"park {place}")
    async with rooms.turn("kitchen", message) as turn:
        await world.reached(name)
        turn.stop()


@_scene
async def _finish(rooms: Rooms[Any], world: World) -> None:
    await _read(rooms, world, "answer")


@_scene
async def _say_nothing(rooms: Rooms[Any], world: World) -> None:
    await _read(rooms, world, "mute")


@_scene
async def _fail(rooms: Rooms[Any], world: World) -> None:
    with suppress(BackendError):
        await _read(rooms, world, "fail")


@_scene
async def _stop_while_matching(rooms: Rooms[Any], world: World) -> None:
    await _stop(rooms, world, "matching")


@_scene
async def _stop_with_a_preamble(rooms: Rooms[Any], world: World) -> None:
    await _stop(rooms, world, "preamble")


@_scene
async def _stop_while_generating(rooms: Rooms[Any], world: World) -> None:
    await _stop(rooms, world, "generation")


@_scene
async def _stop_while_emitting(rooms: Rooms[Any], world: World) -> None:
    async with open_service() as service:
        name, message = world.prompt("park emission")

        async def go_on() -> None:
            await trio.sleep(_MEANWHILE)
            world.release(name)

        async with rooms.turn("kitchen", message) as turn:
            await world.reached(name)
            service.start_soon(go_on)
            turn.stop()


@_scene
async def _two_turns(rooms: Rooms[Any], world: World) -> None:
    await _stop(rooms, world, "preamble")
    await _read(rooms, world, "answer")
