"""Scenes of ACP: what the golden wire is recorded of, and what the agent in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `permission` (run a
command that a person is asked about, then answer).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from ...._rooms import Rooms, open_rooms
from ...._turn import Turn
from ....abc import Backend
from ....events import Ask, Text

__all__ = ["SCENES", "World"]

_LAST_PIECE = "piece 2 "


class World(Protocol):
    """The model that a scene asks."""

    def prompt(self, words: str) -> tuple[str, str]:
        """A name for a piece of work, and the prompt that asks for it."""
        ...

    async def reached(self, name: str) -> None:
        """Wait until it is silent: its words are said.

        **Cancellation:** changes nothing.
        """
        ...

    def release(self, name: str) -> None:
        """Have it answer to its end."""
        ...

    async def lose(self) -> None:
        """End the agent's process.

        **Cancellation:** it is ended all the same.
        """
        ...


_Play: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]
SCENES: dict[str, _Play] = {}
"""What plays each scene, by its name, which is also its file's."""


def _scene(play: _Play) -> _Play:
    SCENES[play.__name__.strip("_")] = play
    return play


async def _hear(turn: Turn, text: str) -> None:
    """Read until this was said."""
    said = ""
    async for event in turn:
        said += event.delta if isinstance(event, Text) else ""
        if text in said:
            return


async def _stop_parked(rooms: Rooms[Any], world: World) -> None:
    name, prompt = world.prompt("park")
    async with rooms.turn("kitchen", prompt) as turn:
        await world.reached(name)
        await _hear(turn, _LAST_PIECE)
        turn.stop()


async def _read(rooms: Rooms[Any], world: World) -> None:
    async with rooms.turn("kitchen", world.prompt("answer")[1]) as turn:
        async for _ in turn:
            pass


@_scene
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            await _hear(turn, _LAST_PIECE)
            world.release(name)
            async for _ in turn:
                pass


@_scene
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)


@_scene
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)
        await _read(rooms, world)


@_scene
async def _approve(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", world.prompt("permission")[1]) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, "allow_once")


@_scene
async def _stop_while_a_permission_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", world.prompt("permission")[1]) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    turn.stop()
        await _read(rooms, world)


@_scene
async def _go_on_after_a_loss(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world)
        await world.lose()
        await _read(rooms, world)
