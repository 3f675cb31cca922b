"""Scenes of Letta: what the golden wire is recorded of, and what the server in memory plays.

A scene takes turns of a backend, and knows nothing of its far end but what its world does: `answer`
(says something, and completes), `park` (goes on saying something), `ask` (has a tool that needs an
approval, then answers), `fail` (the model's provider answers by an error).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import attrs

from ...._errors import BackendError
from ...._rooms import Rooms, open_rooms
from ....abc import Backend, Emit, Request
from ....adapters.letta import LettaContent
from ....events import Ask, Event, Text

__all__ = ["SCENES", "Scene", "World"]


class World(Protocol):
    """The far end that a scene asks."""

    def message(self, word: str) -> str:
        """The message that has it do something."""
        ...


Play: TypeAlias = Callable[[Backend[LettaContent], World], Awaitable[None]]


@attrs.frozen
class Scene:
    """A scene.

    Attributes:
        name: also its file's.
        conversations: whether the rooms have conversations, or the agent's own history.
        play: plays it.
    """

    name: str
    conversations: bool
    play: Play


SCENES: dict[str, Scene] = {}
"""Every scene by its name."""


def _scene(*, conversations: bool = True) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        name = play.__name__.strip("_")
        SCENES[name] = Scene(name, conversations, play)
        return play

    return register


async def _read(rooms: Rooms[Any], message: str) -> None:
    async with rooms.turn("kitchen", message) as turn:
        async for event in turn:
            if isinstance(event, Ask):
                turn.answer(event, "approve")


async def _stop_at(rooms: Rooms[Any], message: str, kind: type) -> None:
    async with rooms.turn("kitchen", message) as turn:
        async for event in turn:
            if isinstance(event, kind):
                turn.stop()


@_scene()
async def _two_turns(backend: Backend[LettaContent], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message("answer"))
        await _read(rooms, world.message("answer"))


@_scene()
async def _stop_while_running(backend: Backend[LettaContent], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_at(rooms, world.message("park"), Text)


@_scene()
async def _fail(backend: Backend[LettaContent], world: World) -> None:
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await _read(rooms, world.message("fail"))


@_scene()
async def _approve(backend: Backend[LettaContent], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message("ask"))


@_scene()
async def _cancel_too_late(backend: Backend[LettaContent], world: World) -> None:
    """No turn of rooms is told when it is over: this is what the server would say."""
    remote = await backend.start(Request("kitchen", "1", world.message("answer")))
    await remote.follow(_Unheard())
    await remote.cancel(lambda: None)


@_scene(conversations=False)
async def _agent_finish(backend: Backend[LettaContent], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message("answer"))


@_scene(conversations=False)
async def _agent_stop(backend: Backend[LettaContent], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_at(rooms, world.message("park"), Text)


class _Unheard(Emit):
    def __call__(self, event: Event, /) -> None:
        pass

    async def ask(self, ask: Ask, /) -> object:
        raise NotImplementedError
