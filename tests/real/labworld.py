"""A real program whose model is the lab's, in rooms: what the tests of several programs do there.

A command that ignores signals says when it does, by a file: a stop in between would prove nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar, cast

import attrs
import trio

from turnstop import Ending, Proof, Rooms, StopBudget, Turn
from turnstop.events import Ask, Event, Text, ToolCall
from turnstop.lab import Behaviour, Lab, write_prompt
from turnstop.lab.behaviours import Word

PATIENCE = 60.0
BUDGET = StopBudget(20.0, 5.0)
STOPPED = (Ending.STOPPED, Proof.EVENT, True)
LOOP = "while :; do sleep 0.05; done"
DEAF = f"trap '' TERM INT HUP; touch $READY; {LOOP}"
LEFT_BEHIND = f"setsid sh -c {shlex.quote(DEAF)} >/dev/null 2>&1 & exit 0"


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes give no event
        await trio.sleep(0.01)


def ended(turn: Turn) -> tuple[Ending, Proof | None, bool]:
    settlement = turn.settlement
    assert settlement is not None
    assert settlement.errors == ()
    return settlement.ending, settlement.proof, settlement.clean


def prompt_for_tool(home: Path, command: str, then: str = "answer") -> tuple[str, str, Path]:
    """A prompt that runs a command, its token, and the file that says it is ready."""
    ready = home / f"ready-{os.urandom(4).hex()}"
    whole = f"export READY={shlex.quote(str(ready))}; {command}"
    return (*write_prompt(Behaviour("tool", None, whole, cast(Word, then))), ready)


class Deaf:
    """An emit that nobody reads."""

    def __call__(self, event: Event) -> None:
        pass

    async def ask(self, ask: Ask) -> object:
        await trio.sleep_forever()


@attrs.define
class World:
    """Rooms of one program, which is known by its home.

    Attributes:
        variable: what of its environment names the home, and how.
        itself: what the command line of the program itself has in it.
    """

    lab: Lab
    rooms: Rooms[Any]
    home: Path
    variable: ClassVar[str]
    itself: ClassVar[bytes]

    async def ask(self, room: str, prompt: str) -> tuple[list[Event], Turn]:
        events = []
        async with self.rooms.turn(room, prompt) as turn:
            async for event in turn:
                events.append(event)
        return events, turn

    async def answers(self, room: str = "kitchen") -> Turn:
        """The room's next turn answers, and every history the model was given is valid."""
        token, prompt = write_prompt(Behaviour("answer"))
        events, turn = await self.ask(room, prompt)
        said = "".join(event.delta for event in events if isinstance(event, Text))
        assert said == f"answer to {token}"
        assert ended(turn)[0] is Ending.FINISHED
        assert self.lab.faults == []
        return turn

    def tool(self, command: str, then: str = "answer") -> tuple[str, str, Path]:
        return prompt_for_tool(self.home, command, then)

    def pids(self) -> list[int]:
        """The processes of the program itself."""
        return [pid for pid, command in self._processes().items() if self.itself in command]

    def commands(self) -> list[bytes]:
        """Everything that the program has started, found by nothing but its home."""
        found = self._processes().values()
        return [command for command in found if command and self.itself not in command]

    def _processes(self) -> dict[int, bytes]:
        found = {}
        home = f"{self.variable.format(self.home)}\0".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if home in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
        return found

    async def stop_in(self, command: str, then: str = "answer") -> tuple[str, Turn]:
        """Take a turn of the kitchen, and stop it once its command runs."""
        token, prompt, ready = self.tool(command, then)
        async with self.rooms.turn("kitchen", prompt) as turn:
            await until(lambda: ready.exists() and self.lab.processes(token))
            turn.stop()
            await trio.sleep_forever()
        return token, turn

    async def end_left(self, token: str) -> None:
        """Whatever of a turn's is there still."""
        while left := self.lab.processes(token):
            for process in left:
                process.kill()
            await trio.sleep(0.02)


async def no_command_outlives_a_stop(world: World, command: str) -> None:
    token, turn = await world.stop_in(command, "park")
    try:
        assert ended(turn) == STOPPED
        assert world.commands() == []
    finally:
        await world.end_left(token)
    await world.answers()


async def a_neighbour_goes_on(world: World, theirs: str, command: str) -> None:
    """What another room's turn runs is not the stopped one's."""
    async with trio.open_nursery() as nursery:
        other, prompt, ready = world.tool(theirs)
        nursery.start_soon(world.ask, "garden", prompt)
        await until(ready.exists)
        token, turn = await world.stop_in(command)
        assert ended(turn) == STOPPED
        assert world.lab.processes(token) == []
        await until(lambda: world.lab.processes(other))
        assert world.rooms.statistics().live == 1
        world.rooms.stop("garden")


async def what_was_left_goes_on(world: World, left: str, command: str) -> None:
    """What a finished turn left in the background is the user's: only the stopped turn is swept."""
    kept, prompt, ready = world.tool(left)
    try:
        _, first = await world.ask("kitchen", prompt)
        assert first.ending is Ending.FINISHED
        await until(ready.exists)
        token, turn = await world.stop_in(command)
        assert ended(turn) == STOPPED
        assert world.lab.processes(token) == []
        await until(lambda: world.lab.processes(kept))
    finally:
        await world.end_left(kept)


async def a_stop_that_races_the_end_tells_the_truth(world: World, step: float = 0.001) -> None:
    endings = set()
    for number in range(16):
        token, prompt = write_prompt(Behaviour("park"))
        async with world.rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            world.lab.release(token)
            await trio.sleep(number * step)
            turn.stop()
            await trio.sleep_forever()
        ending, proof, clean = ended(turn)
        assert (proof, clean) == (Proof.EVENT, True)
        endings.add(ending)
        assert world.lab.open_requests(token) == []
    assert endings <= {Ending.STOPPED, Ending.FINISHED}
    await world.answers()


async def a_cancellation_around_everything_stops_for_real(
    opened: AbstractAsyncContextManager[World], command: str
) -> None:
    turn: Turn | None = None
    with trio.CancelScope() as app:
        async with opened as world:
            _, prompt, ready = world.tool(command)
            turn = world.rooms.turn("kitchen", prompt)
            async with turn:
                await until(ready.exists)
                app.cancel()
                await trio.sleep_forever()
    assert turn is not None
    assert ended(turn) == STOPPED
    assert world.commands() == world.pids() == []


async def a_permission_is_asked_for(world: World, reply: str, state: str) -> ToolCall:
    """A command runs where it is allowed; what was told of it last."""
    made = world.home / "made"
    _, prompt, _ = world.tool(f"touch {shlex.quote(str(made))}")
    calls = []
    async with world.rooms.turn("kitchen", prompt) as turn:
        async for event in turn:
            if isinstance(event, Ask):
                assert event.choices == ("allow", "deny")
                assert "touch" in event.text
                turn.answer(event, reply)
            elif isinstance(event, ToolCall):
                calls.append(event)
    assert turn.ending is Ending.FINISHED
    assert calls[-1].state == state
    assert made.exists() == (reply == "allow")
    await world.answers()
    return calls[-1]


async def a_stop_takes_an_open_permission_back(world: World, choice: str = "allow") -> None:
    """The command does not run, and the model is asked no more."""
    made = world.home / "made"
    token, prompt, _ = world.tool(f"touch {shlex.quote(str(made))}")
    async with world.rooms.turn("kitchen", prompt) as turn:
        async for event in turn:
            if isinstance(event, Ask):
                assert choice in event.choices
                turn.stop()
    assert ended(turn) == STOPPED
    await trio.sleep(0.3)
    assert not made.exists()
    assert len(world.lab.requests(token)) == 1
    assert world.lab.alive(token) == []
    await world.answers()
