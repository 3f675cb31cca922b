"""The process that began turns of real ACP agents is killed; the next one ends them and goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstop import Ending, Proof, Settlement, StopBudget, Turn, open_rooms
from turnstop.adapters.acp import open_acp
from turnstop.events import Event, Text
from turnstop.journal import open_journal
from turnstop.lab import Behaviour, Lab, open_lab, program_env, write_prompt

from . import real_program
from .test_acp import DEAF, FORGETFUL, PATIENCE, PROGRAMS, SLEEP, is_replaced

each_program = pytest.mark.parametrize("name", PROGRAMS)
# The others' tools end what they have begun in the background.
LEAVE = ("claude-agent-acp", "zed-codex-acp", "copilot", "gemini", "opencode")

OWNER = """
import json, sys, trio, turnstop
from turnstop.adapters.acp import open_acp
from turnstop.events import Ask
from turnstop.journal import open_journal

async def work(rooms, room, prompts):
    for prompt in prompts:
        async with rooms.turn(room, prompt) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, "allow_once")
        # The process table counts in ticks.
        await trio.sleep(0.05)

async def main(path, options, work_of):
    async with (
        open_journal(path) as journal,
        open_acp(**json.loads(options)) as acp,
        turnstop.open_rooms(acp, journal=journal) as rooms,
        trio.open_nursery() as nursery,
    ):
        for room, prompts in json.loads(work_of).items():
            nursery.start_soon(work, rooms, room, prompts)

trio.run(main, *sys.argv[1:])
"""


class World:
    """One home of an agent, and a journal."""

    def __init__(self, name: str, lab: Lab, home: Path) -> None:
        self.lab = lab
        self.home = home
        self.path = home / "turns.db"
        own: dict[str, str | None] = dict.fromkeys(os.environ, None)
        self.options: dict[str, Any] = {
            "command": list(real_program(name).acp_command),
            "cwd": str(home),
            "env": own | program_env(name, lab.url, home),
        }

    def pids(self) -> list[int]:
        """Everything of this world's agents, found by nothing but its home."""
        home = f"HOME={self.home}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if home in (entry / "environ").read_bytes() and (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    async def leave(
        self, *prompts: str, token: str, processes: int = 0, **others: Sequence[str]
    ) -> None:
        """Have a process work on these prompts, and kill it in the midst of the last."""
        told = (
            str(self.path),
            json.dumps(self.options),
            json.dumps({"kitchen": prompts, **others}),
        )
        command = [sys.executable, "-c", OWNER, *told]
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = await trio.lowlevel.open_process(command, env=here)
        try:
            if processes:
                await self.lab.tool_running(token, processes)
            else:
                await self.lab.parked(token)
            # What Claude and qwen have said is in their files only after a while.
            await trio.sleep(0.5)
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()

    @asynccontextmanager
    async def open_rooms(self, found: list[Settlement]) -> AsyncGenerator[Any, None]:
        """As the next process does."""
        async with (
            open_journal(self.path) as journal,
            open_acp(**self.options) as acp,
            open_rooms(
                acp, journal=journal, budget=StopBudget(10.0, 5.0), observers=[found.append]
            ) as rooms,
        ):
            yield rooms

    async def end_all(self) -> None:
        while found := self.pids():
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            await trio.sleep(0.02)


@asynccontextmanager
async def open_world(name: str, home: Path) -> AsyncGenerator[World, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            world = World(name, lab, home)
            try:
                yield world
            finally:
                with trio.CancelScope(shield=True):
                    await world.end_all()


async def answers(world: World, rooms: Any, room: str = "kitchen") -> list[Event]:
    token, prompt = write_prompt(Behaviour("answer"))
    events = []
    async with rooms.turn(room, prompt) as turn:
        async for event in turn:
            events.append(event)
    assert isinstance(turn, Turn)
    assert turn.ending is Ending.FINISHED
    said = "".join(event.delta for event in events if isinstance(event, Text))
    assert f"answer to {token}" in said
    assert [fault.text for fault in world.lab.faults] == []
    return events


@each_program
async def test_what_was_left_is_ended_and_its_room_goes_on(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        first, warm = write_prompt(Behaviour("answer"))
        token, prompt = write_prompt(Behaviour("park"))
        await world.leave(warm, prompt, token=token)
        found: list[Settlement] = []
        async with world.open_rooms(found) as rooms:
            # The room's next turn waits until what was left there is over.
            events = await answers(world, rooms)
            left = found[0]
            assert (left.ending, left.proof, left.clean) == (Ending.STOPPED, Proof.PROCESS, True)
            assert left.request is not None
            assert left.request.kind == "recovery"
            assert world.lab.alive(token) == []
            assert is_replaced(events) is (name in FORGETFUL)
            # The model is told of what the room said before.
            told = f"answer to {first}" in str(world.lab.exchanges[-1].json())
            assert told is (name not in FORGETFUL)
        assert world.pids() == []
        # Nothing is left for anybody else.
        async with world.open_rooms(found) as rooms:
            assert rooms.statistics().live == 0
        assert len(found) == 2


@each_program
async def test_a_command_that_hears_no_signal_is_ended_too(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        leaves = f"setsid sh -c {DEAF} >/dev/null 2>&1 & {SLEEP}"
        token, prompt = write_prompt(Behaviour("tool", None, leaves, "park"))
        await world.leave(prompt, token=token, processes=2)
        found: list[Settlement] = []
        async with world.open_rooms(found) as rooms:
            await answers(world, rooms)
            assert (found[0].ending, found[0].clean) == (Ending.STOPPED, True)
            assert world.lab.alive(token) == []
        assert world.pids() == []


@pytest.mark.parametrize("name", LEAVE)
async def test_what_an_earlier_turn_has_left_on_purpose_goes_on(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        # Some agents end the shell's group with it: so it waits for the sleep to have left that.
        has_left = "read -r a b c d e s r </proc/$!/stat && [ $s = $! ]"
        leaves = f"setsid /bin/sleep 300 >/dev/null 2>&1 & until {has_left}; do :; done; exit 0"
        kept, before = write_prompt(Behaviour("tool", None, leaves, "answer"))
        token, prompt = write_prompt(Behaviour("park"))
        await world.leave(before, prompt, token=token)
        assert world.lab.processes(kept)
        found: list[Settlement] = []
        async with world.open_rooms(found) as rooms:
            await answers(world, rooms)
            assert (found[0].ending, found[0].clean) == (Ending.STOPPED, True)
            assert world.lab.processes(kept)


@pytest.mark.parametrize("name", ["claude-agent-acp", "omp"])
async def test_an_agent_that_rooms_have_shared_is_ended_for_each(name: str, tmp_path: Path) -> None:
    async with open_world(name, tmp_path) as world:
        world.options["shared"] = True
        first, one = write_prompt(Behaviour("park"))
        second, other = write_prompt(Behaviour("tool", None, SLEEP, "park"))
        await world.leave(one, token=second, processes=1, garden=[other])
        found: list[Settlement] = []
        async with world.open_rooms(found) as rooms:
            for room in ("kitchen", "garden"):
                events = await answers(world, rooms, room)
                assert not is_replaced(events)
        left = {one.room: one for one in found if one.request is not None}
        assert sorted(left) == ["garden", "kitchen"]
        assert all((one.ending, one.clean) == (Ending.STOPPED, True) for one in left.values())
        assert world.lab.alive(first) == world.lab.alive(second) == []
        assert world.pids() == []
