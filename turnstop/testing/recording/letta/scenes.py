"""Scenes of Letta: what the golden wire is recorded of, and what the server in memory plays.

A scene takes turns of a backend, and knows nothing of its far end but what its world does: `answer`
(says something, and completes), `park` (goes on saying something), `ask` (has a tool that needs an
approval, then answers), `fail` (the model's provider answers by an error).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

import trio

from ...._errors import BackendError
from ...._rooms import open_rooms
from ....abc import Backend, Request, SupportsAttach
from ....events import Event, Text
from .. import _scenes as scenes

__all__ = ["SCENES", "Scene", "World"]


class World(Protocol):
    """The far end that a scene asks."""

    def message(self, word: str) -> str:
        """The message that has it do something."""
        ...


Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name; its setting is whether the rooms have `conversations`."""
_conversation = partial(scenes.register, SCENES, conversations=True)
_agent = partial(scenes.register, SCENES, conversations=False)


@_conversation()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    """None is stopped: whether the next one is in the same conversation then is luck."""
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message("answer"))
        await scenes.read(rooms, world.message("answer"))


@_conversation()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.stop_at(rooms, world.message("park"), Text)


@_conversation()
async def _fail(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await scenes.read(rooms, world.message("fail"))


@_conversation()
async def _approve(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(
            rooms, world.message("ask"), lambda turn, ask: turn.answer(ask, "approve")
        )


@_conversation()
async def _cancel_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what the server would say."""
    remote = await backend.start(Request("kitchen", "1", world.message("answer")))
    await remote.follow(scenes.Unheard())
    await remote.cancel(lambda: None)


class _Listening(scenes.Unheard):
    """Notes that something was said."""

    def __init__(self) -> None:
        self.heard = trio.Event()

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, Text):
            self.heard.set()


async def _leave(backend: Backend[Any], world: World) -> None:
    """A run that goes on is taken up by what was announced of it."""
    said: list[str] = []

    async def announce(address: str) -> None:
        said.append(address)

    remote = await backend.start(Request("kitchen", "1", world.message("park"), announce=announce))
    ears = _Listening()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(remote.follow, ears)
        await ears.heard.wait()
        left = await _taking_up(backend).attach(said[0])
        await left.cancel(lambda: None)


@_conversation()
async def _left_unnamed(backend: Backend[Any], world: World) -> None:
    await _leave(backend, world)


@_conversation()
async def _left_finished(backend: Backend[Any], world: World) -> None:
    remote = await backend.start(Request("kitchen", "1", world.message("answer")))
    await remote.follow(scenes.Unheard())
    # The server writes it down some time later.
    await trio.sleep(1.0)
    left = await _taking_up(backend).attach(getattr(remote, "address", ""))
    await left.follow(scenes.Unheard())


def _taking_up(backend: Any) -> SupportsAttach:
    return cast("SupportsAttach", backend)


@_agent()
async def _agent_left_unnamed(backend: Backend[Any], world: World) -> None:
    await _leave(backend, world)


@_agent()
async def _agent_finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.message("answer"))


@_agent()
async def _agent_stop(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await scenes.stop_at(rooms, world.message("park"), Text)
