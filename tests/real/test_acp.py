"""The adapter on each real agent that speaks ACP, whose model is the lab's: what a stop leaves."""

from __future__ import annotations

import os
import random
import shlex
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendLost, BackendRefused, Ending, Proof, StopBudget, Turn
from turnstop.adapters.acp import open_acp
from turnstop.events import Ask, Event, Other, Text, ToolCall
from turnstop.lab import Lab, open_lab, program_env

from . import real_program

PATIENCE = 60.0
BUDGET = StopBudget(20.0, 5.0)
PROGRAMS = (
    "claude-agent-acp",
    "codex-acp",
    "zed-codex-acp",
    "copilot",
    "gemini",
    "qwen",
    "opencode",
    "omp",
)
each_program = pytest.mark.parametrize("name", PROGRAMS)

# codex asks for nothing that is not dangerous, and writes the more for that.
ASKS = "tool answer $ rm -rf ./none; echo from the shell"
MODES = {"codex-acp": "read-only"}
# By its path: a shell of omp's own has a `sleep` that is no process.
SLEEP = "/bin/sleep 300"
DEAF = shlex.quote("trap '' TERM INT HUP; while :; do /bin/sleep 0.05; done")
# Those that do not tell the model of a tool call that was open at a stop: another session begins.
FORGETFUL = ("gemini",)
# Those whose process goes with each stop, since their answer to a cancel shows too little.
ENDED = ("zed-codex-acp",)


@attrs.define
class World:
    name: str
    lab: Lab
    rooms: turnstop.Rooms[Any]
    home: Path
    count: int = 0

    def prompt(self, words: str) -> tuple[str, str]:
        self.count += 1
        token = f"{self.home.name}.{self.count}"
        return token, f"[turn:{token}] {words}"

    async def ask(self, room: str, prompt: str, reply: str = "allow_once") -> list[Event]:
        events = []
        async with self.rooms.turn(room, prompt) as turn:
            async for event in turn:
                events.append(event)
                if isinstance(event, Ask):
                    turn.answer(event, reply)
        return events

    async def answers(self, room: str = "a") -> list[Event]:
        """The room's next turn answers, and every history the model was given is valid."""
        token, prompt = self.prompt("answer")
        events = await self.ask(room, prompt)
        said = "".join(event.delta for event in events if isinstance(event, Text))
        assert f"answer to {token}" in said
        assert [fault.text for fault in self.lab.faults] == []
        return events

    async def stop_at(self, words: str, reached: Callable[[str, trio.Event], Any]) -> Turn:
        """Stop a turn once this was reached; what it asks until then is granted, but for `ASKS`."""
        token, prompt = self.prompt(words)
        asked = trio.Event()
        async with trio.open_nursery() as nursery:
            async with self.rooms.turn("a", prompt) as turn:
                nursery.start_soon(self._grant, turn, asked, words != ASKS)
                with trio.fail_after(PATIENCE):
                    await reached(token, asked)
                turn.stop()
                await trio.sleep_forever()
        await self.saw_the_end(token)
        return turn

    async def saw_the_end(self, token: str) -> None:
        """What was alive when the turn was settled is known to be dead in the next moment."""
        with trio.move_on_after(0.25):
            await self.lab.gone(token)
        assert self.lab.alive(token) == []

    async def _grant(self, turn: Turn, asked: trio.Event, grants: bool) -> None:
        async for event in turn:
            if isinstance(event, Ask):
                asked.set()
                if grants:
                    turn.answer(event, "allow_once")

    def pids(self) -> list[int]:
        """Everything of this world's agent, found by nothing but its home."""
        home = f"HOME={self.home}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if home in (entry / "environ").read_bytes() and (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


@asynccontextmanager
async def open_world(
    name: str, home: Path, mode: str | None = None, budget: StopBudget = BUDGET
) -> AsyncGenerator[World, None]:
    program = real_program(name)
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = program_env(name, lab.url, home)
            own: dict[str, str | None] = dict.fromkeys(os.environ, None)
            async with open_acp(program.acp_command, cwd=home, env=own | env, mode=mode) as acp:
                async with turnstop.open_rooms(acp, budget=budget) as rooms:
                    yield World(name, lab, rooms, home)


def ended(turn: Turn) -> tuple[Ending, Proof | None, bool]:
    settlement = turn.settlement
    assert settlement is not None
    assert settlement.errors == ()
    return settlement.ending, settlement.proof, settlement.clean


def is_replaced(events: list[Event]) -> bool:
    return any(isinstance(one, Other) and one.kind == "session_replaced" for one in events)


def stopped(name: str) -> tuple[Ending, Proof | None, bool]:
    return Ending.STOPPED, Proof.PROCESS if name in ENDED else Proof.EVENT, True


@each_program
async def test_a_stop_at_any_moment_ends_the_work_and_the_room_goes_on(
    name: str, tmp_path: Path
) -> None:
    async with open_world(name, tmp_path) as world:

        async def after(seconds: float, token: str, asked: trio.Event) -> None:
            await trio.sleep(seconds)

        async def silent(token: str, asked: trio.Event) -> None:
            await world.lab.arrived(token)

        async def parked(token: str, asked: trio.Event) -> None:
            await world.lab.parked(token)

        async def running(token: str, asked: trio.Event) -> None:
            await world.lab.tool_running(token)

        # A session's first prompt is the slowest to begin.
        for milliseconds in (0, 2, 5, 10, 25, 50):
            turn = await world.stop_at("park", partial(after, milliseconds / 1000))
            # A prompt that was not sent yet never is; that is all there is to show.
            not_sent = (Ending.STOPPED, Proof.EVENT, True)
            assert ended(turn) in (stopped(name), not_sent, (Ending.UNSTARTED, None, True))
        await world.answers()
        assert ended(await world.stop_at("hold", silent)) == stopped(name)
        await world.answers()
        assert ended(await world.stop_at("park", parked)) == stopped(name)
        await world.answers()
        assert ended(await world.stop_at(f"tool park $ {SLEEP}", running)) == stopped(name)
        await world.answers()


@each_program
async def test_a_stop_that_races_the_end_tells_the_truth(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        await world.answers()
        for milliseconds in (0, 2, 4, 8, 16):

            async def ending(token: str, asked: trio.Event, after: int = milliseconds) -> None:
                await world.lab.parked(token)
                world.lab.release(token)
                await trio.sleep(after / 1000)

            turn = await world.stop_at("park", ending)
            settlement = turn.settlement
            assert settlement is not None
            assert settlement.ending in (Ending.STOPPED, Ending.FINISHED, Ending.KILLED)
            assert settlement.clean
            # Where the remedy is to end the program, that may come between it and its last word.
            assert all(isinstance(one, BackendLost) and one.gone for one in settlement.errors)
        await world.answers()


@each_program
async def test_a_permission_is_asked_and_a_stop_takes_it_back(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path, MODES.get(name)) as world:
        events = await world.ask("a", world.prompt(ASKS)[1])
        assert any(isinstance(event, Ask) for event in events)
        # It was granted, and its output goes to the model.
        assert "from the shell" in str(world.lab.exchanges[-1].json())

        async def asking(token: str, asked: trio.Event) -> None:
            await asked.wait()

        turn = await world.stop_at(ASKS, asking)
        assert ended(turn) == stopped(name)
        events = await world.answers()
        assert is_replaced(events) is (name in FORGETFUL)
        # Another room was not asked, and is refused.
        events = await world.ask("b", world.prompt(ASKS)[1], reply="reject_once")
        assert not [one for one in events if isinstance(one, ToolCall) and one.state == "completed"]


@each_program
async def test_what_a_command_leaves_behind_ends_with_its_turn(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        leaves = f"setsid sh -c {DEAF} >/dev/null 2>&1 & {SLEEP}"

        async def both_run(token: str, asked: trio.Event) -> None:
            await world.lab.tool_running(token, 2)

        turn = await world.stop_at(f"tool park $ {leaves}", both_run)
        assert ended(turn) == stopped(name)
        await world.answers()


@each_program
async def test_an_agent_that_is_killed_comes_back_and_goes_on(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        first = world.prompt("answer")
        await world.ask("a", first[1])
        token, prompt = world.prompt("park")
        with pytest.raises(BackendLost, match="signal 9") as lost:
            await kill_in(world, token, prompt)
        assert lost.value.gone
        events = await world.answers()
        assert is_replaced(events) is (name in FORGETFUL)
        # The model is told of what the room said before.
        told = f"answer to {first[0]}" in str(world.lab.exchanges[-1].json())
        assert told is (name not in FORGETFUL)


async def kill_in(world: World, token: str, prompt: str) -> None:
    async with world.rooms.turn("a", prompt):
        await world.lab.parked(token)
        # What Claude and qwen have said is in their files only after a while.
        await trio.sleep(0.5)
        for pid in world.pids():
            os.kill(pid, signal.SIGKILL)
        await trio.sleep_forever()


@each_program
async def test_nothing_is_left_of_a_room_that_is_retired_nor_of_an_agent_that_is_closed(
    name: str, tmp_path: Path
) -> None:
    turn: Turn | None = None
    with trio.CancelScope() as app:
        async with open_world(name, tmp_path) as world:
            token, prompt = world.prompt("park")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.ask, "a", prompt)
                await world.lab.parked(token)
                await world.rooms.retire("a")
            await world.saw_the_end(token)
            assert world.pids() == []
            token, prompt = world.prompt(f"tool park $ {SLEEP}")
            async with trio.open_nursery() as nursery:
                async with world.rooms.turn("a", prompt) as turn:
                    nursery.start_soon(world._grant, turn, trio.Event(), True)
                    await world.lab.tool_running(token)
                    app.cancel()
                    await trio.sleep_forever()
    assert turn is not None
    assert ended(turn) == stopped(name)
    assert world.pids() == []


@pytest.mark.parametrize("name", ["codex-acp", "copilot"])
async def test_an_agent_that_hangs_is_killed_and_comes_back(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path, budget=StopBudget(0.5, 10.0)) as world:
        await world.answers()
        token, prompt = world.prompt("park")
        async with world.rooms.turn("a", prompt) as turn:
            await world.lab.parked(token)
            for pid in world.pids():
                os.kill(pid, signal.SIGSTOP)
            turn.stop()
            await trio.sleep_forever()
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.clean) == (Ending.KILLED, True)
        await world.saw_the_end(token)
        assert not is_replaced(await world.answers())


async def test_an_agent_that_hears_nothing_between_two_tries_is_killed(tmp_path: Path) -> None:
    """qwen asks a model that fails again, and hears no cancel while it waits to."""
    async with open_world("qwen", tmp_path, budget=StopBudget(1.0, 10.0)) as world:
        await world.answers()
        token, prompt = world.prompt("refuse")
        async with world.rooms.turn("a", prompt) as turn:
            await world.lab.until(lambda: len(world.lab.requests(token)) > 2)
            await trio.sleep(0.1)
            turn.stop()
            await trio.sleep_forever()
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending in (Ending.KILLED, Ending.STOPPED)
        assert settlement.clean
        asked = len(world.lab.requests(token))
        await world.answers()
        assert len(world.lab.requests(token)) == asked


async def test_what_gemini_reads_on_behind_a_limit_is_ended(tmp_path: Path) -> None:
    """It answers a prompt that turns in circles, and lets the model's request be."""
    async with open_world("gemini", tmp_path) as world:
        for _ in range(3):
            token, prompt = world.prompt("drip")
            events = await world.ask("a", prompt)
            assert isinstance(events[-1], Other)
            assert events[-1].kind == "max_turn_requests"
            await world.saw_the_end(token)
            assert not is_replaced(await world.answers())


async def test_each_of_many_stopped_prompts_has_one_answer(tmp_path: Path) -> None:
    """C45, C52: Claude's agent was one answer behind after a stop, and answered as if completed."""
    async with open_world("claude-agent-acp", tmp_path) as world:
        dice = random.Random(20)
        for _ in range(20):
            token, prompt = world.prompt("park")
            said = ""
            async with world.rooms.turn("a", prompt) as turn:
                with trio.move_on_after(dice.choice((0.002, 0.01, 0.03, 0.1))):
                    async for event in turn:
                        said += event.delta if isinstance(event, Text) else ""
            assert ended(turn) in (stopped(world.name), (Ending.UNSTARTED, None, True))
            # Of an earlier turn nothing is heard.
            assert said in "piece 0 piece 1 piece 2 "
            await world.saw_the_end(token)
        await world.answers()


async def test_an_agent_whose_answers_show_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendRefused, match=r"0\.23\.1.*take 0\.49"):
        async with open_world("zed-claude-agent-acp", tmp_path):
            pass
