"""Scenes of codex: what the golden wire is recorded of, and what the app server in memory plays.

A scene takes turns of a backend, and knows nothing of its model but what the prompts say: `answer`
(answer at once), `park` (say three pieces, then be silent until released), `fail`, `tool WORD` (run
a shell command, then do WORD), `agent` (set a sub-agent to work that parks, then park).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import trio

from ...._rooms import open_rooms
from ....abc import Backend, Request
from .. import _scenes as scenes

__all__ = ["SCENES", "Scene", "World"]


class World(scenes.World, Protocol):
    """The model that a scene asks."""

    async def said(self, *texts: str) -> None:
        """Wait until codex has said a frame with all these texts in it.

        **Cancellation:** changes nothing.
        """
        ...


Scene = scenes.Scene[World]
SCENES: dict[str, Scene] = {}
"""Every scene by its name."""
_scene = partial(scenes.register, SCENES)

_scene()(scenes.stop_while_running)
_scene()(scenes.stop_while_starting)
_scene()(scenes.finish)
_scene()(scenes.fail)
_scene()(scenes.two_turns)


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
        await scenes.stop_parked(rooms, world, "agent")


@_scene(approval="untrusted", sandbox="read-only")
async def _stop_while_an_approval_is_open(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        prompt = world.prompt("tool answer")[1]
        await scenes.read(rooms, prompt, lambda turn, ask: turn.stop())


@_scene(approval="untrusted", sandbox="read-only")
async def _approve(backend: Backend[Any], world: World) -> None:
    async with open_rooms(backend) as rooms:
        prompt = world.prompt("tool answer")[1]
        await scenes.read(rooms, prompt, lambda turn, ask: turn.answer(ask, "accept"))


@_scene()
async def _interrupt_too_late(backend: Backend[Any], world: World) -> None:
    """No turn of rooms is told when it is over: this is what codex would say."""
    remote = await backend.start(Request("kitchen", "1", world.prompt("answer")[1]))
    await remote.follow(scenes.Unheard())
    with trio.move_on_after(0.05):
        await remote.cancel(lambda: None)
