"""Scenes of codex: what the golden wire is recorded of, and what the app server in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `fail`, `tool WORD` (run
a shell command, then do WORD), `agent` (set a sub-agent to work that parks, then park).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
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
        """Wait until it is silent: its words are said, its command runs, its sub-agent works.

        **Cancellation:** changes nothing.
        """
        ...

    def release(self, name: str) -> None:
        """Have it answer to its end."""
        ...

    async def said(self, *texts: str) -> None:
        """Wait until codex has said a frame with all these texts in it.

        **Cancellation:** changes nothing.
        """
        ...


_Play: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]


@attrs.frozen
class Scene:
    """A scene.

    Attributes:
        name: also its file's.
        play: plays it.
        settings: how codex is opened for it.
    """

    name: str
    play: _Play
    settings: Mapping[str, str]


SCENES: dict[str, Scene] = {}
"""Every scene by its name."""


def _scene(**settings: str) -> Callable[[_Play], _Play]:
    def register(play: _Play) -> _Play:
        name = play.__name__.strip("_")
        SCENES[name] = Scene(name, play, settings)
        return play

    return register


async def _hear(turn: Turn, text: str) -> None:
    """Read until this was said."""
    said = ""
    async for event in turn:
        said += event.delta if isinstance(event, Text) else ""
        if text in said:
            return


async def _stop_parked(rooms: Rooms[Any], world: World, words: str) -> None:
    name, prompt = world.prompt(words)
    async with rooms.turn("kitchen", prompt) as turn:
        await world.reached(name)
        await _hear(turn, _LAST_PIECE)
        turn.stop()


async def _read(rooms: Rooms[Any], prompt: str) -> None:
    async with rooms.turn("kitchen", prompt) as turn:
        async for _ in turn:
            pass


@_scene()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world, "park")


@_scene()
async def _stop_while_starting(backend: Backend[Any], world: World) -> None:
    revealing = _Revealing(backend, lambda: turn.stop())
    async with open_rooms(revealing) as rooms:
        turn = rooms.turn("kitchen", world.prompt("park")[1])
        async with turn:
            await trio.sleep_forever()


class _Revealing:
    """Tells when a start is answered, before codex has begun the turn."""

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
            await world.said("item/started", "commandExecution")
            turn.stop()
            await trio.sleep_forever()
        # Its end is told late, and nobody waits for that.
        await world.said("item/completed", "commandExecution")


@_scene()
async def _stop_while_a_sub_agent_works(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world, "agent")


@_scene(approval="untrusted", sandbox="read-only")
async def _stop_while_an_approval_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", world.prompt("tool answer")[1]) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    turn.stop()


@_scene(approval="untrusted", sandbox="read-only")
async def _approve(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", world.prompt("tool answer")[1]) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, "accept")


@_scene()
async def _finish(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            await _hear(turn, _LAST_PIECE)
            world.release(name)
            async for _ in turn:
                pass


@_scene()
async def _fail(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await _read(rooms, world.prompt("fail")[1])


@_scene()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world, "park")
        await _read(rooms, world.prompt("answer")[1])


@_scene()
async def _interrupt_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what codex would say."""
    remote = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await remote.follow(_Unheard())
    with trio.move_on_after(0.05):
        await remote.cancel(lambda: None)


class _Unheard(Emit):
    def __call__(self, event: Event, /) -> None:
        pass

    async def ask(self, ask: Ask, /) -> object:
        await trio.sleep_forever()
