"""Scenes of A2A: what the golden wire is recorded of, and what the agent in memory plays.

A scene takes turns of a backend, and knows nothing of its agent but what the messages say:
`answer` (one artifact, completed), `stream` (`count` artifacts, `seconds` apart, completed), `park`
(work until cancelled), `fail`, `ask` (input-required; the next message goes on).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import attrs
import trio

from ...._errors import BackendError
from ...._rooms import Rooms, open_rooms
from ....abc import Backend, Emit, RemoteTurn, Request
from ....events import Ask, Event, Thought
from ._agent import Kind

__all__ = ["SCENES", "Scene", "World"]


_STREAM = "stream count=2 seconds=0.2"


class World(Protocol):
    """The agent that a scene asks."""

    def message(self, words: str) -> tuple[str, str]:
        """A name for a piece of work, and the message that asks for it."""
        ...

    async def began(self, name: str) -> None:
        """Wait until it works on it.

        **Cancellation:** changes nothing.
        """
        ...

    def cut(self) -> None:
        """Break the connections; it works on."""
        ...


_Play: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]


@attrs.frozen
class Scene:
    """A scene.

    Attributes:
        name: also its file's.
        kind: of what kind of agent.
        play: plays it.
    """

    name: str
    kind: Kind
    play: _Play


SCENES: dict[str, Scene] = {}
"""Every scene by its name."""


def _scene(kind: Kind) -> Callable[[_Play], _Play]:
    def register(play: _Play) -> _Play:
        name = play.__name__.strip("_")
        SCENES[name] = Scene(name, kind, play)
        return play

    return register


async def _stop_parked(rooms: Rooms[Any], world: World) -> None:
    _, message = world.message("park")
    async with rooms.turn("kitchen", message) as turn:
        async for event in turn:
            if isinstance(event, Thought):
                turn.stop()


async def _read(rooms: Rooms[Any], message: str) -> None:
    async with rooms.turn("kitchen", message) as turn:
        async for _ in turn:
            pass


@_scene("streaming")
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)


@_scene("streaming")
async def _stop_while_starting(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, message = world.message("park")
        async with rooms.turn("kitchen", message) as turn:
            await world.began(name)
            turn.stop()


@_scene("streaming")
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message(_STREAM)[1])


@_scene("streaming")
async def _fail(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await _read(rooms, world.message("fail")[1])


@_scene("streaming")
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)
        await _read(rooms, world.message("answer")[1])


@_scene("streaming")
async def _answer_a_question(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message("ask")[1])
        await _read(rooms, world.message("answer")[1])


@_scene("streaming")
async def _take_up_again(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", world.message("park")[1]) as turn:
            async for event in turn:
                if isinstance(event, Thought):
                    world.cut()
                    # By then it listens again.
                    await trio.sleep(0.5)
                    turn.stop()


@_scene("streaming")
async def _cancel_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what the agent would say."""
    remote = await backend.start(Request("kitchen", "1", world.message("answer")[1]))
    await remote.follow(_Unheard())
    await remote.cancel(lambda: None)


@_scene("polling")
async def _polled_finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message(_STREAM)[1])


@_scene("polling")
async def _polled_stop(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)


@_scene("plain")
async def _plain_finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _read(rooms, world.message(_STREAM)[1])


@_scene("plain")
async def _plain_stop(backend: Backend[Any], world: World) -> None:
    """The message's own answer may come before the cancel's, or not at all: it is let go of."""
    remote: RemoteTurn = await backend.start(Request("kitchen", "1", world.message("park")[1]))
    await remote.cancel(lambda: None)
    await remote.follow(_Unheard())


class _Unheard(Emit):
    def __call__(self, event: Event, /) -> None:
        pass

    async def ask(self, ask: Ask, /) -> object:
        raise NotImplementedError
