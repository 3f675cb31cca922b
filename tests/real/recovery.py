"""A process whose turns of a real program are under way is killed, and the next one takes over.

What the tests of several programs do there.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from turnstop import Ending, Proof, Rooms, Settlement, StopBudget, open_rooms
from turnstop.abc import Backend
from turnstop.journal import open_journal
from turnstop.lab import Behaviour, Lab, write_prompt

from .labworld import DEAF, LEFT_BEHIND, LOOP, PATIENCE, prompt_for_tool, until

BUDGET = StopBudget(10.0, 5.0)
STOPPED = (Ending.STOPPED, Proof.PROCESS, True)
FINISHED = (Ending.FINISHED, Proof.PROCESS, True)
KINDS = {
    "loop": f"touch $READY; {LOOP}",
    "TERM-ignoring": DEAF,
    "nohup": "touch $READY; nohup sleep 300 & wait",
    "setsid": f"setsid sh -c {shlex.quote(DEAF)} & wait",
}
_OWNER = """
import importlib, json, sys, trio, turnstop
from turnstop.journal import open_journal

async def talk(rooms, room, *prompts):
    for prompt in prompts:
        async with rooms.turn(room, prompt) as turn:
            async for _ in turn: pass

async def main(module, function, path, options, talks):
    open_backend = getattr(importlib.import_module(module), function)
    async with (
        open_journal(path) as journal,
        open_backend(**json.loads(options)) as backend,
        turnstop.open_rooms(backend, journal=journal) as rooms,
        trio.open_nursery() as nursery,
    ):
        for room, prompts in json.loads(talks).items():
            nursery.start_soon(talk, rooms, room, *prompts)

trio.run(main, *sys.argv[1:])
"""


@attrs.define
class Left:
    """A program in one home, which one process after the other opens.

    Attributes:
        opening: what opens it.
        itself: what the command line of the program itself has in it.
    """

    lab: Lab
    home: Path
    options: dict[str, Any]
    opening: ClassVar[Callable[..., AbstractAsyncContextManager[Backend[Any]]]]
    itself: ClassVar[bytes]

    @property
    def path(self) -> Path:
        return self.home / "turns.db"

    @asynccontextmanager
    async def owner(self, **talks: list[str]) -> AsyncGenerator[trio.Process, None]:
        """A process that takes these turns, room by room; it is killed when this is left."""
        opening = type(self).opening
        told = [opening.__module__, opening.__name__, str(self.path)]
        command = [sys.executable, "-c", _OWNER, *told, json.dumps(self.options), json.dumps(talks)]
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = await trio.lowlevel.open_process(command, env=here)
        try:
            with trio.fail_after(PATIENCE):
                yield process
        finally:
            process.send_signal(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()

    @asynccontextmanager
    async def recovered(self) -> AsyncGenerator[tuple[list[Settlement], Rooms[Any]], None]:
        """The rooms of the next process, when what was left is settled."""
        found: list[Settlement] = []
        async with (
            open_journal(self.path) as journal,
            type(self).opening(**self.options) as backend,
            open_rooms(backend, journal=journal, budget=BUDGET, observers=[found.append]) as rooms,
        ):
            await until(lambda: not rooms.statistics().live)
            # Observers are told a pass later.
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            yield list(found), rooms

    async def recover(self) -> list[Settlement]:
        async with self.recovered() as (found, _):
            return found

    async def remembers(self, rooms: Rooms[Any], *tokens: str, room: str = "kitchen") -> bool:
        """The room's next turn answers; whether the model was told of these earlier turns."""
        token, prompt = write_prompt(Behaviour("answer"))
        async with rooms.turn(room, prompt) as turn:
            async for _ in turn:
                pass
        assert turn.ending is Ending.FINISHED
        assert self.lab.faults == []
        (exchange,) = self.lab.requests(token)
        return all(f"[turn:{one}]".encode() in exchange.body for one in tokens)

    def pids(self) -> list[int]:
        """The processes of the program itself."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.home).encode() in environ and self.itself in command:
                found.append(int(entry.name))
        return found

    async def is_over(self, token: str) -> None:
        """See that nothing works on it; the endpoint hears of a dropped request in a moment."""
        with trio.fail_after(PATIENCE):
            await self.lab.gone(token)

    async def end_left(self, token: str) -> None:
        while left := self.lab.processes(token):
            for process in left:
                process.kill()
            await trio.sleep(0.02)


def facts(settlement: Settlement) -> tuple[Ending, Proof | None, bool]:
    assert settlement.errors == ()
    assert settlement.request is not None
    assert settlement.request.kind == "recovery"
    return settlement.ending, settlement.proof, settlement.clean


async def a_turn_that_was_left_is_over_and_its_room_goes_on(left: Left) -> None:
    first, answer = write_prompt(Behaviour("answer"))
    token, prompt = write_prompt(Behaviour("park"))
    async with left.owner(kitchen=[answer, prompt]):
        await left.lab.parked(token)
    async with left.recovered() as ((found,), rooms):
        assert facts(found) == STOPPED
        await left.is_over(token)
        assert await left.remembers(rooms, first, token)
    assert await left.recover() == []


async def no_command_is_left(left: Left, command: str) -> None:
    token, prompt, ready = prompt_for_tool(left.home, command, "park")
    try:
        async with left.owner(kitchen=[prompt]):
            await until(lambda: ready.exists() and left.lab.processes(token))
        async with left.recovered() as ((found,), rooms):
            assert facts(found) == STOPPED
            await left.is_over(token)
            assert await left.remembers(rooms, token)
    finally:
        await left.end_left(token)


async def what_a_finished_turn_left_goes_on(left: Left) -> None:
    kept, leaves, ready = prompt_for_tool(left.home, LEFT_BEHIND)
    token, prompt = write_prompt(Behaviour("park"))
    try:
        async with left.owner(kitchen=[leaves, prompt]):
            await left.lab.parked(token)
            await until(ready.exists)
        (found,) = await left.recover()
        assert facts(found) == STOPPED
        await left.is_over(token)
        assert left.lab.processes(kept)
    finally:
        await left.end_left(kept)


async def every_room_is_settled(left: Left) -> None:
    tokens, talks = [], {}
    for room in ("kitchen", "garden", "cellar"):
        token, prompt = write_prompt(Behaviour("park"))
        tokens.append(token)
        talks[room] = [prompt]
    async with left.owner(**talks):
        for token in tokens:
            await left.lab.parked(token)
    async with left.recovered() as (found, rooms):
        assert [facts(one) for one in found] == [STOPPED] * 3
        assert {one.room for one in found} == {*talks}
        for room, token in zip(talks, tokens, strict=True):
            await left.is_over(token)
            assert await left.remembers(rooms, token, room=room)


async def one_that_hangs_is_ended_by_force(left: Left) -> None:
    first, answer = write_prompt(Behaviour("answer"))
    token, prompt = write_prompt(Behaviour("park"))
    async with left.owner(kitchen=[answer, prompt]) as owner:
        await left.lab.parked(token)
        owner.send_signal(signal.SIGSTOP)
        (pid,) = left.pids()
        os.kill(pid, signal.SIGSTOP)
    async with left.recovered() as ((found,), rooms):
        assert facts(found) == STOPPED
        await left.is_over(token)
        assert pid not in left.pids()
        # What a program is killed over may not be on its disk yet.
        assert await left.remembers(rooms, first)
