"""Scenes of Copilot: what the golden wire is recorded of, and what the far end in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `fail`, and `tool WORD`
(run a shell command, then do WORD).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import attrs
import trio

from ...._errors import BackendError
from ...._rooms import Rooms, open_rooms
from ...._turn import Turn
from ....abc import Backend, Emit, RemoteTurn, Request
from ....events import Ask, Event, Text

__all__ = ["SCENES", "Scene", "World"]

_LAST_PIECE = "piece 2 "


class World(Protocol):
    """The model that a scene asks."""

    def prompt(self, words: str) -> tuple[str, str]:
        """A name for a piece of work, and the prompt that asks for it."""
        ...

    async def reached(self, name: str) -> None:
        """Wait until it is silent: its words are said, or its command runs.

        **Cancellation:** changes nothing.
        """
        ...

    def release(self, name: str) -> None:
        """Have it answer to its end."""
        ...


_Play: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]


@attrs.frozen
class Scene:
    """A scene.

    Attributes:
        name: also its file's.
        play: plays it.
        asks: whether Copilot asks before it uses a tool.
    """

    name: str
    play: _Play
    asks: bool


SCENES: dict[str, Scene] = {}
"""Every scene by its name."""


def _scene(*, asks: bool = False) -> Callable[[_Play], _Play]:
    def register(play: _Play) -> _Play:
        name = play.__name__.strip("_")
        SCENES[name] = Scene(name, play, asks)
        return play

    return register


async def _hear(turn: Turn, text: str) -> None:
    """Read until this was said."""
    said = ""
    async for event in turn:
        said += event.delta if isinstance(event, Text) else ""
        if text in said:
            return


async def _read(turn: Turn) -> None:
    async for _ in turn:
        pass


async def _stop_parked(rooms: Rooms[Any], world: World) -> None:
    name, prompt = world.prompt("park")
    async with rooms.turn("kitchen", prompt) as turn:
        await world.reached(name)
        await _hear(turn, _LAST_PIECE)
        turn.stop()


async def _answer(rooms: Rooms[Any], world: World) -> None:
    async with rooms.turn("kitchen", world.prompt("answer")[1]) as turn:
        await _read(turn)


@_scene()
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            await _hear(turn, _LAST_PIECE)
            world.release(name)
            await _read(turn)


@_scene()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)


@_scene()
async def _stop_while_starting(backend: Backend[Any], world: World) -> None:
    revealing = _Revealing(backend, lambda: turn.stop())
    async with open_rooms(revealing) as rooms:
        turn = rooms.turn("kitchen", world.prompt("park")[1])
        async with turn:
            await trio.sleep_forever()


class _Revealing:
    """Tells when the message has been taken, before the model has been asked."""

    def __init__(self, backend: Backend[Any], tell: Callable[[], object]) -> None:
        self._backend = backend
        self._tell = tell

    async def start(self, request: Request[Any]) -> RemoteTurn:
        remote = await self._backend.start(request)
        self._tell()
        return remote


@_scene()
async def _stop_while_a_command_runs(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("tool park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            turn.stop()
            await trio.sleep_forever()


async def _ask_for_a_command(rooms: Rooms[Any], world: World, reply: str | None) -> None:
    async with rooms.turn("kitchen", world.prompt("tool answer")[1]) as turn:
        async for event in turn:
            if isinstance(event, Ask) and reply is None:
                turn.stop()
            elif isinstance(event, Ask):
                turn.answer(event, reply)


@_scene(asks=True)
async def _stop_while_a_permission_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _ask_for_a_command(rooms, world, None)


@_scene(asks=True)
async def _allow(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _ask_for_a_command(rooms, world, "allow")


@_scene(asks=True)
async def _deny(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _ask_for_a_command(rooms, world, "deny")


@_scene()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    """A stopped turn's session is the next one's."""
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)
        await _answer(rooms, world)


@_scene()
async def _fail_and_resume(backend: Backend[Any], world: World) -> None:
    """A failed turn's session is let go of, and resumed by its id."""
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            async with rooms.turn("kitchen", world.prompt("fail")[1]) as turn:
                await _read(turn)
        await _answer(rooms, world)


@_scene()
async def _abort_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what Copilot would say."""
    remote = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await remote.follow(_Unheard())
    await remote.cancel(lambda: None)


class _Unheard(Emit):
    def __call__(self, event: Event, /) -> None:
        pass

    async def ask(self, ask: Ask, /) -> object:
        await trio.sleep_forever()
