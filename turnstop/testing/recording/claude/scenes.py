"""Scenes of Claude: what the golden wire is recorded of, and what the program in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `fail`, `tool WORD` (run
a shell command, then do WORD); and what it has the world do to a silent one.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import trio

from ...._errors import BackendError
from ...._rooms import open_rooms
from ...._turn import Turn
from ....abc import Backend, Request
from ....events import Ask
from .. import _scenes as scenes

__all__ = ["SCENES", "Scene", "World"]


class World(scenes.World, Protocol):
    """The model that a scene asks."""

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


Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name."""
_scene = partial(scenes.register, SCENES)

_scene()(scenes.fail)
_scene()(scenes.two_turns)


@_scene()
async def _stop_while_running(backend: Backend[Any], world: World) -> None:
    # It is told after the result, which has ended the turn.
    then = partial(world.said, "command_lifecycle", "cancelled")
    await scenes.stop_while_running(backend, world, then)


@_scene()
async def _stop_while_starting(backend: Backend[Any], world: World) -> None:
    await scenes.stop_while_starting(backend, world, partial(world.said, "still_queued"))


@_scene(permission_mode="bypassPermissions")
async def _stop_while_a_command_runs(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("tool park")
        async with rooms.turn("kitchen", prompt) as turn:
            await world.reached(name)
            turn.stop()
            await trio.sleep_forever()


async def _stop_in_a_call(backend: Backend[Any], world: World, what: str) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await scenes.hear_out(turn, world, name)
            world.call(name, what)
            await world.said("task_started")
            if what == "task":
                await scenes.hear_out(turn, world, name)
            turn.stop()


@_scene(permission_mode="bypassPermissions")
async def _stop_while_a_sub_agent_works(backend: Backend[Any], world: World) -> None:
    await _stop_in_a_call(backend, world, "agent")


@_scene(permission_mode="bypassPermissions", background=True)
async def _stop_while_a_task_runs_behind(backend: Backend[Any], world: World) -> None:
    await _stop_in_a_call(backend, world, "task")


@_scene(permission_mode="bypassPermissions", background=True)
async def _a_task_wakes_it(backend: Backend[Any], world: World) -> None:
    """A turn that nobody has asked for is interrupted, and the next one is as ever."""
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await scenes.hear_out(turn, world, name)
            world.call(name, "task")
            await scenes.hear_out(turn, world, name)
            world.release(name)
            async for _ in turn:
                pass
        await world.end_tasks()
        await world.said("result", "aborted")
        await scenes.read(rooms, world.prompt("answer")[1])


async def _use(backend: Backend[Any], world: World, reply: str | None) -> None:
    """Allow a command, or tell why not; or, where there is no reply, stop."""

    def asked(turn: Turn, ask: Ask) -> None:
        if reply is None:
            turn.stop()
        else:
            turn.answer(ask, reply)

    async with open_rooms(backend) as rooms:
        await scenes.read(rooms, world.prompt("tool answer")[1], asked)


@_scene()
async def _stop_while_a_permission_is_open(backend: Backend[Any], world: World) -> None:
    await _use(backend, world, None)


@_scene()
async def _allow(backend: Backend[Any], world: World) -> None:
    await _use(backend, world, "allow")


@_scene()
async def _deny(backend: Backend[Any], world: World) -> None:
    await _use(backend, world, "use the other folder")


@_scene()
async def _answer_a_question(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        name, prompt = world.prompt("park")
        async with rooms.turn("kitchen", prompt) as turn:
            await scenes.hear_out(turn, world, name)
            world.call(name, "question")
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, event.choices[0])
                    break
            await scenes.hear_out(turn, world, name)
            world.release(name)
            async for _ in turn:
                pass


@_scene()
async def _finish(backend: Backend[Any], world: World) -> None:
    then = partial(world.said, "command_lifecycle", "completed")
    await scenes.finish(backend, world, then)


@_scene()
async def _resume(backend: Backend[Any], world: World) -> None:
    """A process that is ended by force is begun anew, and goes on with the conversation."""
    first = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await first.follow(scenes.Unheard())
    name, prompt = world.prompt("park")
    second: Any = await backend.start(Request("kitchen", "2", prompt, first.session))
    await world.reached(name)
    await world.said("piece 2 ")
    await second.kill()
    with suppress(BackendError):
        await second.follow(scenes.Unheard())
    prompt = world.prompt("answer")[1]
    third = await backend.start(Request("kitchen", "3", prompt, second.session))
    await third.follow(scenes.Unheard())


@_scene()
async def _interrupt_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what Claude would say."""
    remote = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await remote.follow(scenes.Unheard())
    await remote.cancel(lambda: None)
