"""Scenes of Claude: what the golden wire is recorded of, and what the program in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `fail`, `tool WORD` (run
a shell command, then do WORD); and what it has the world do to a silent one.
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
        """Wait until it is silent: its words are said, or its command runs.

        **Cancellation:** changes nothing.
        """
        ...

    def release(self, name: str) -> None:
        """Have it answer to its end."""
        ...

    def call(self, name: str, what: str) -> None:
        """Have a silent one use a tool: `task`, `agent` or `question`; then it is silent again."""
        ...

    async def said(self, *texts: str) -> None:
        """Wait until Claude has said a frame with all these texts in it.

        **Cancellation:** changes nothing.
        """
        ...

    async def end_tasks(self) -> None:
        """End the processes of what runs in the background.

        **Cancellation:** what has been told to end stays told.
        """
        ...


_Play: TypeAlias = Callable[[Backend[Any], World], Awaitable[None]]


@attrs.frozen
class Scene:
    """A scene.

    Attributes:
        name: also its file's.
        play: plays it.
        settings: how Claude is opened for it.
    """

    name: str
    play: _Play
    settings: Mapping[str, Any]


SCENES: dict[str, Scene] = {}
"""Every scene by its name."""


def _scene(**settings: Any) -> Callable[[_Play], _Play]:
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


async def _stop_parked(rooms: Rooms[Any], world: World, *calls: str) -> None:
    name, prompt = world.prompt("park")
    async with rooms.turn("kitchen", prompt) as turn:
        await world.reached(name)
        await _hear(turn, _LAST_PIECE)
        for call in calls:
            world.call(name, call)
            await world.said("task_started")
            if call == "task":
                await _hear(turn, _LAST_PIECE)
        turn.stop()


async def _read(rooms: Rooms[Any], prompt: str) -> None:
    async with rooms.turn("kitchen", prompt) as turn:
        async for _ in turn:
            pass


@_scene()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)
        # It is told after the result, which has ended the turn.
        await world.said("command_lifecycle", "cancelled")


@_scene()
async def _stop_while_starting(backend: Backend[Any], world: World) -> None:
    revealing = _Revealing(backend, lambda: turn.stop())
    async with open_rooms(revealing) as rooms:
        turn = rooms.turn("kitchen", world.prompt("park")[1])
        async with turn:
            await trio.sleep_forever()
        await world.said("still_queued")


class _Revealing:
    """Tells when a message has been handed over, before Claude has read it."""

    def __init__(self, backend: Backend[Any], tell: Callable[[], object]) -> None:
        self._backend = backend
        self._tell = tell

    async def start(self, request: Request[Any]) -> RemoteTurn:
        remote = await self._backend.start(request)
        self._tell()
        return remote


@_scene(permission_mode="bypassPermissions")
async def _stop_while_a_command_runs(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("tool park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            turn.stop()
            await trio.sleep_forever()


@_scene(permission_mode="bypassPermissions")
async def _stop_while_a_sub_agent_works(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world, "agent")


@_scene(permission_mode="bypassPermissions", background=True)
async def _stop_while_a_task_runs_behind(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world, "task")


@_scene(permission_mode="bypassPermissions", background=True)
async def _a_task_wakes_it(backend: Backend[Any], world: World) -> None:
    """A turn that nobody has asked for is interrupted, and the next one is as ever."""
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            await _hear(turn, _LAST_PIECE)
            world.call(name, "task")
            await _hear(turn, _LAST_PIECE)
            world.release(name)
            async for _ in turn:
                pass
        await world.end_tasks()
        await world.said("result", "aborted")
        await _read(rooms, world.prompt("answer")[1])


async def _ask_for_a_command(rooms: Rooms[Any], world: World, reply: str | None) -> None:
    async with rooms.turn("kitchen", world.prompt("tool answer")[1]) as turn:
        async for event in turn:
            if isinstance(event, Ask) and reply is None:
                turn.stop()
            elif isinstance(event, Ask):
                turn.answer(event, reply)


@_scene()
async def _stop_while_a_permission_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _ask_for_a_command(rooms, world, None)


@_scene()
async def _allow(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _ask_for_a_command(rooms, world, "allow")


@_scene()
async def _deny(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _ask_for_a_command(rooms, world, "use the other folder")


@_scene()
async def _answer_a_question(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            await _hear(turn, _LAST_PIECE)
            world.call(name, "question")
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, event.choices[0])
                    break
            await _hear(turn, _LAST_PIECE)
            world.release(name)
            async for _ in turn:
                pass


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
        await world.said("command_lifecycle", "completed")


@_scene()
async def _fail(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        with suppress(BackendError):
            await _read(rooms, world.prompt("fail")[1])


@_scene()
async def _two_turns(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        await _stop_parked(rooms, world)
        await _read(rooms, world.prompt("answer")[1])


@_scene()
async def _resume(backend: Backend[Any], world: World) -> None:
    """A process that is ended by force is begun anew, and goes on with the conversation."""
    first = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await first.follow(_Unheard())
    name, prompt = world.prompt("park")
    second: Any = await backend.start(Request("kitchen", "2", prompt, first.session))
    await world.reached(name)
    await world.said(_LAST_PIECE)
    await second.kill()
    with suppress(BackendError):
        await second.follow(_Unheard())
    prompt = world.prompt("answer")[1]
    third = await backend.start(Request("kitchen", "3", prompt, second.session))
    await third.follow(_Unheard())


@_scene()
async def _interrupt_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what Claude would say."""
    remote = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await remote.follow(_Unheard())
    await remote.cancel(lambda: None)


class _Unheard(Emit):
    def __call__(self, event: Event, /) -> None:
        pass

    async def ask(self, ask: Ask, /) -> object:
        await trio.sleep_forever()
