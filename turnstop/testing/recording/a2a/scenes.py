"""Scenes of A2A: what the golden wire is recorded of, and what the agent in memory plays.

A scene takes turns of a backend, and knows nothing of its agent but what the messages say:
`answer` (one artifact, completed), `stream` (`count` artifacts, `seconds` apart, completed), `park`
(work until cancelled), `fail`, `ask` (input-required; the next message goes on).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import trio

from ...._errors import BackendError
from ...._rooms import Rooms, open_rooms
from ....abc import Backend, RemoteTurn, Request
from ....events import Thought
from .. import _scenes as scenes

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


Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name; its setting is of what `kind` the agent is."""
_streaming = partial(scenes.register, SCENES, kind="streaming")
_polling = partial(scenes.register, SCENES, kind="polling")
_plain = partial(scenes.register, SCENES, kind="plain")


async def _stop_parked(rooms: Rooms[Any], world: World) -> None:
    await scenes.stop_at(rooms, world.message("park")[1], Thought)


@_streaming()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)


@_streaming()
async def _stop_while_starting(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, message = world.message("park")
        async with rooms.turn("kitchen", message) as turn:
            await world.began(name)
            turn.stop()


@_streaming()
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message(_STREAM)[1])


@_streaming()
async def _fail(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await scenes.read(rooms, world.message("fail")[1])


@_streaming()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)
        await scenes.read(rooms, world.message("answer")[1])


@_streaming()
async def _answer_a_question(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message("ask")[1])
        await scenes.read(rooms, world.message("answer")[1])


@_streaming()
async def _take_up_again(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", world.message("park")[1]) as turn:
            async for event in turn:
                if isinstance(event, Thought):
                    world.cut()
                    # By then it listens again.
                    await trio.sleep(0.5)
                    turn.stop()


@_streaming()
async def _cancel_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what the agent would say."""
    remote = await backend.start(Request("kitchen", "1", world.message("answer")[1]))
    await remote.follow(scenes.Unheard())
    await remote.cancel(lambda: None)


@_polling()
async def _polled_finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message(_STREAM)[1])


@_polling()
async def _polled_stop(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)


@_plain()
async def _plain_finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message(_STREAM)[1])


@_plain()
async def _plain_stop(backend: Backend[Any], world: World) -> None:
    """The message's own answer may come before the cancel's, or not at all: it is let go of."""
    remote: RemoteTurn = await backend.start(Request("kitchen", "1", world.message("park")[1]))
    await remote.cancel(lambda: None)
    await remote.follow(scenes.Unheard())
