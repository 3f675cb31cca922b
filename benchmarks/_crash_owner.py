"""The program that `crash_points.py` kills: it takes up what was left, and goes on with turns.

It says on its stdout, a line of JSON each, in which phase each of its turns is: what was written
there survives it. Where it is told at which phase to die, it ends itself by SIGKILL, which nothing
in it can see coming.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio

from turnstop import BackendError, Settlement, StopBudget, open_rooms
from turnstop.abc import Emit, End, Request, current_turn
from turnstop.journal import open_journal

ROOMS = ("a", "b", "c")
BUDGET = StopBudget(cancel_within=5.0, kill_within=2.0)
RESTS = 0.01

OWN = ("entering", "starting", "announcing", "sending", "running", "stopping", "settling")
TAKEN_UP = ("attaching", "stopping what was left", "settling what was left")
"""The phases of a turn, and of one that is taken up; between two of a room there is none."""

Opener: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
Prompt: TypeAlias = Callable[[str, str], Any]
"""Makes what a turn asks for, of its token and of the word for what is to be done."""


@attrs.define
class Plan:
    """What one program does.

    Attributes:
        words: what its turns ask for, by chance.
        longest: how many seconds a turn has at most, before it is left.
        aim: in which phase it dies, in which of them, and how many seconds after it began.
        goes_on: whether it goes on until it is killed; else each room takes one turn that ends by
            itself.
    """

    backend: str
    folder: str
    options: dict[str, Any]
    words: list[str]
    longest: float
    number: int
    seed: int
    aim: tuple[str, int, float] | None
    goes_on: bool


@attrs.define(eq=False)
class Teller:
    """Says what happens, and dies when it is time."""

    aim: tuple[str, int, float] | None
    phases: dict[str, str] = attrs.field(factory=dict)
    _met: int = attrs.field(default=0, init=False)
    _offset: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._offset = time.monotonic() - trio.current_time()

    def say(self, **what: object) -> None:
        os.write(1, json.dumps({**what, "at": time.monotonic()}).encode() + b"\n")

    def enter(self, token: str, phase: str) -> None:
        """Say that a turn is in a phase from now on, unless it is in a later one."""
        order = [*OWN, *TAKEN_UP]
        before = self.phases.get(token) if phase != "entering" else ""
        if before is None or (before and order.index(phase) <= order.index(before)):
            return
        self.phases[token] = phase
        self.say(turn=token, phase=phase)
        if self.aim is not None and phase == self.aim[0]:
            self._met += 1
            if self._met == self.aim[1]:
                self._die_after(self.aim[2])

    def _die_after(self, seconds: float) -> None:
        def die() -> None:
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGKILL)

        if seconds > 0:
            threading.Thread(target=die, daemon=True).start()
        else:
            die()

    def settled(self, settlement: Settlement) -> None:
        self.phases.pop(settlement.turn_id, None)
        asked, request = settlement.asked_at, settlement.request
        self.say(
            turn=settlement.turn_id,
            phase="settled",
            ending=settlement.ending.value,
            gone=settlement.gone,
            taken_up=request is not None and request.kind == "recovery",
            asked=None if asked is None else asked + self._offset,
            settled=settlement.settled_at + self._offset,
            errors=[repr(error) for error in settlement.errors],
        )


class Watched:
    """A remote turn, and when it is stopped and ends."""

    def __init__(self, remote: Any, tell: Callable[[str], None], last: str) -> None:
        self._remote, self._tell, self._last = remote, tell, last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    async def follow(self, emit: Emit) -> End:
        try:
            end: End = await self._remote.follow(emit)
            return end
        finally:
            self._tell(self._last)


@attrs.define(eq=False)
class WatchedBackend:
    """A backend, and how its turns begin."""

    _backend: Any
    _teller: Teller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _tell(self, token: str) -> Callable[[str], None]:
        return lambda phase: self._teller.enter(token, phase)

    async def start(self, request: Request[Any]) -> Watched:
        tell = self._tell(request.turn_id)
        tell("starting")

        async def announce(address: str) -> None:
            tell("announcing")
            await request.announce(address)
            tell("sending")

        remote = await self._backend.start(attrs.evolve(request, announce=announce))
        tell("running")
        return Watched(remote, tell, "settling")

    async def attach(self, address: str) -> Watched:
        token = str(current_turn.get())
        self._teller.phases.setdefault(token, "entering")
        tell = self._tell(token)
        tell("attaching")
        remote = await self._backend.attach(address)
        tell("stopping what was left")
        return Watched(remote, tell, "settling what was left")


@attrs.define(eq=False)
class Owner:
    plan: Plan
    teller: Teller
    rooms: Any
    prompt: Prompt
    draw: random.Random

    async def work(self, room: str) -> None:
        names = (f"{room}.{self.plan.number}.{count}" for count in itertools.count())
        while self.plan.goes_on:
            word = self.draw.choice(self.plan.words)
            await self.take(room, next(names), word, self.draw.uniform(0, self.plan.longest))
            await trio.sleep(self.draw.uniform(0, RESTS))
        await self.take(room, next(names), "answer", 60.0)

    async def take(self, room: str, token: str, word: str, seconds: float) -> None:
        self.teller.enter(token, "entering")
        turn = self.rooms.turn(room, self.prompt(token, word), turn_id=token)
        try:
            async with turn:
                with trio.move_on_after(seconds):
                    async for _ in turn:
                        pass
                self.teller.enter(token, "stopping")
        except BackendError as error:
            self.teller.say(failed=token, error=repr(error))


async def own(plan: Plan) -> None:
    open_backend: Opener = importlib.import_module(f"_crash_{plan.backend}").open_backend
    teller = Teller(plan.aim)
    async with (
        open_journal(Path(plan.folder, "turns.db")) as journal,
        open_backend(**plan.options) as (backend, prompt),
        open_rooms(
            WatchedBackend(backend, teller),
            journal=journal,
            budget=BUDGET,
            observers=[teller.settled],
        ) as rooms,
        trio.open_nursery() as nursery,
    ):
        teller.say(open=True)
        owner = Owner(plan, teller, rooms, prompt, random.Random(plan.seed))
        for room in ROOMS:
            nursery.start_soon(owner.work, room)
