"""What the scenes of several programs have in common.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `fail`. What else a
program's prompts may say stands with its own scenes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import attrs
import trio

from ..._errors import BackendError
from ..._rooms import Rooms, open_rooms
from ..._turn import Turn
from ...abc import Backend, Emit, RemoteTurn, Request
from ...events import Ask, Event, Text

__all__ = [
    "Scene",
    "Unheard",
    "World",
    "fail",
    "finish",
    "hear_out",
    "read",
    "register",
    "stop_at",
    "stop_parked",
    "stop_while_running",
    "stop_while_starting",
    "two_turns",
]

_LAST_PIECE = "piece 2 "
_W = TypeVar("_W")
_Play: TypeAlias = Callable[[Backend[Any], _W], Awaitable[None]]
_Wait: TypeAlias = Callable[[], Awaitable[None]]


class World(Protocol):
    """The model that a scene asks."""

    def prompt(self, words: str) -> tuple[str, str]:
        """A name for a piece of work, and the prompt that asks for it."""
        ...

    async def reached(self, name: str) -> None:
        """Wait until it is silent: its words are said, or what it has begun runs.

        **Cancellation:** changes nothing.
        """
        ...

    def release(self, name: str) -> None:
        """Have it answer to its end."""
        ...


@attrs.frozen
class Scene(Generic[_W]):
    """A scene.

    Attributes:
        name: also its file's.
        play: plays it.
        settings: how the program is opened for it.
    """

    name: str
    play: _Play[_W]
    settings: Mapping[str, Any]


def register(scenes: dict[str, Scene[_W]], **settings: Any) -> Callable[[_Play[_W]], _Play[_W]]:
    """Make a scene of what plays it; its name is the function's."""

    def to_scene(play: _Play[_W]) -> _Play[_W]:
        name = play.__name__.strip("_")
        scenes[name] = Scene(name, play, settings)
        return play

    return to_scene


async def hear_out(turn: Turn, world: World, name: str) -> None:
    """Read until a parked one has said all that it says."""
    await world.reached(name)
    said = ""
    async for event in turn:
        said += event.delta if isinstance(event, Text) else ""
        if _LAST_PIECE in said:
            return


async def read(
    rooms: Rooms[Any], prompt: Any, asked: Callable[[Turn, Ask], object] = lambda turn, ask: None
) -> None:
    """Take a turn, and read it to its end; `asked` does what a person does at a question."""
    async with rooms.turn("kitchen", prompt) as turn:
        async for event in turn:
            if isinstance(event, Ask):
                asked(turn, event)


async def stop_at(rooms: Rooms[Any], prompt: Any, kind: type[Event]) -> None:
    """Take a turn, and stop it at each event of a kind."""
    async with rooms.turn("kitchen", prompt) as turn:
        async for event in turn:
            if isinstance(event, kind):
                turn.stop()


async def stop_parked(rooms: Rooms[Any], world: World, words: str = "park") -> None:
    """Take a turn that says all that it says, and is silent then; and stop it."""
    name, prompt = world.prompt(words)
    async with rooms.turn("kitchen", prompt) as turn:
        await hear_out(turn, world, name)
        turn.stop()


async def stop_while_running(
    backend: Backend[Any], world: World, then: _Wait = trio.lowlevel.checkpoint
) -> None:
    """A scene; `then` waits for what comes behind the turn's end."""
    async with open_rooms(backend) as rooms:
        await stop_parked(rooms, world)
        await then()


async def stop_while_starting(
    backend: Backend[Any], world: World, then: _Wait = trio.lowlevel.checkpoint
) -> None:
    """A scene: its stop comes when the start is answered, before the program has begun the turn."""
    revealing = _Revealing(backend, lambda: turn.stop())
    async with open_rooms(revealing) as rooms:
        turn = rooms.turn("kitchen", world.prompt("park")[1])
        async with turn:
            await trio.sleep_forever()
        await then()


class _Revealing:
    """A backend that tells when a start has been answered."""

    def __init__(self, backend: Backend[Any], tell: Callable[[], object]) -> None:
        self._backend = backend
        self._tell = tell

    async def start(self, request: Request[Any]) -> RemoteTurn:
        """Start a turn, and tell."""
        remote = await self._backend.start(request)
        self._tell()
        return remote


async def finish(
    backend: Backend[Any], world: World, then: _Wait = trio.lowlevel.checkpoint
) -> None:
    """A scene; `then` waits for what comes behind the turn's end."""
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await hear_out(turn, world, name)
            world.release(name)
            async for _ in turn:
                pass
        await then()


async def fail(backend: Backend[Any], world: World) -> None:
    """A scene."""
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await read(rooms, world.prompt("fail")[1])


async def two_turns(backend: Backend[Any], world: World) -> None:
    """A scene: what was stopped is gone on with."""
    async with open_rooms(backend) as rooms:
        await stop_parked(rooms, world)
        await read(rooms, world.prompt("answer")[1])


class Unheard(Emit):
    """For a remote turn that is followed without rooms: what they would not do can be seen so."""

    def __call__(self, event: Event, /) -> None:
        """Drop it."""

    async def ask(self, ask: Ask, /) -> object:
        """Never answer."""
        await trio.sleep_forever()
