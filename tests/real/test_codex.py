"""The adapter on the real codex, whose model is the lab's: what a stop leaves."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import turnstop
from turnstop import BackendError, BackendLost, BackendRefused, Ending, Proof, StopBudget, Turn
from turnstop.abc import Request
from turnstop.adapters.codex import open_codex
from turnstop.events import Ask, ToolCall
from turnstop.lab import Behaviour, open_lab, program_env, write_prompt

from . import real_program
from .golden_codex import sub_agents
from .labworld import (
    BUDGET,
    DEAF,
    LEFT_BEHIND,
    LOOP,
    PATIENCE,
    STOPPED,
    World,
    a_cancellation_around_everything_stops_for_real,
    a_neighbour_goes_on,
    a_stop_takes_an_open_permission_back,
    a_stop_that_races_the_end_tells_the_truth,
    ended,
    no_command_outlives_a_stop,
    until,
    what_was_left_goes_on,
)

PROGRAM = real_program("codex").path
KINDS = {
    "plain": "touch $READY; sleep 300",
    "loop": f"touch $READY; {LOOP}",
    "TERM-ignoring": DEAF,
    "nohup": "touch $READY; nohup sleep 300",
    "background": "sleep 300 & sleep 301 & touch $READY; wait",
    "setsid": f"setsid sh -c {shlex.quote(DEAF)} & sleep 300",
    "left behind": LEFT_BEHIND,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


class CodexWorld(World):
    variable = "CODEX_HOME={}"
    itself = b"app-server"


@asynccontextmanager
async def open_world(
    home: Path, budget: StopBudget = BUDGET, **options: object
) -> AsyncGenerator[World, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = program_env("codex", lab.url, home)
            async with open_codex(PROGRAM, cwd=home, env=env, **options) as codex:  # type: ignore[arg-type]
                async with turnstop.open_rooms(codex, budget=budget) as rooms:
                    yield CodexWorld(lab, rooms, home)


async def test_a_turn_is_answered_and_the_next_continues(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        assert ended(await world.answers())[0] is Ending.FINISHED
        await world.answers()
        first, second = world.lab.exchanges
        assert len(second.json()["input"]) > len(first.json()["input"])
        # A goal would make codex begin turns by itself.
        tools = {tool.get("name") for tool in second.json()["tools"]}
        assert "exec_command" in tools
        assert "create_goal" not in tools


async def test_a_stop_in_the_middle_of_the_answer(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt = write_prompt(Behaviour("park"))
        async with world.rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        await world.lab.gone(token)
        await world.answers()


async def test_stops_around_the_start_are_never_lost(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for number in range(25):
            token, prompt = write_prompt(Behaviour("park"))
            async with world.rooms.turn("kitchen", prompt) as turn:
                await trio.sleep(number * 0.002)
                turn.stop()
                await trio.sleep_forever()
            assert ended(turn) in (STOPPED, (Ending.UNSTARTED, None, True))
            assert world.lab.open_requests(token) == []
        await world.answers()


@every_kind
async def test_no_command_outlives_its_turns_stop(tmp_path: Path, kind: str) -> None:
    async with open_world(tmp_path) as world:
        await no_command_outlives_a_stop(world, KINDS[kind])


async def test_a_second_rooms_turn_and_command_go_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await a_neighbour_goes_on(world, KINDS["loop"], KINDS["setsid"])


async def test_a_command_of_an_earlier_turn_goes_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        left = f"setsid sh -c {shlex.quote(DEAF)} >/dev/null 2>&1 & :"
        await what_was_left_goes_on(world, left, KINDS["background"])


async def test_a_stop_that_races_the_end_tells_the_truth(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await a_stop_that_races_the_end_tells_the_truth(world, 0.002)


async def test_a_killed_codex_loses_its_turns_and_comes_back(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.answers()
        token, prompt, ready = world.tool("touch $READY; sleep 300")
        turn = world.rooms.turn("kitchen", prompt)
        with pytest.raises(BackendLost, match="signal 9") as caught:
            await kill_codex_in(world, turn, ready)
        assert caught.value.gone
        assert turn.ending is Ending.FAILED
        for process in world.lab.processes(token):
            process.kill()
        await world.answers()
        assert len(world.lab.exchanges[-1].json()["input"]) > 4


async def kill_codex_in(world: World, turn: Turn, ready: Path) -> None:
    async with turn:
        await until(ready.exists)
        for pid in world.pids():
            os.kill(pid, signal.SIGKILL)
        await trio.sleep_forever()


async def test_a_codex_that_dies_while_it_is_stopped_is_gone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt, ready = world.tool(KINDS["TERM-ignoring"])
        async with world.rooms.turn("kitchen", prompt) as turn:
            await until(ready.exists)
            (pid,) = world.pids()
            os.kill(pid, signal.SIGSTOP)
            turn.stop()
            os.kill(pid, signal.SIGKILL)
            await trio.sleep_forever()
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.proof) == (Ending.STOPPED, Proof.PROCESS)
        assert turn.settlement.clean
        assert world.lab.processes(token) == []
        await world.answers()


async def test_a_codex_that_hangs_holds_nobody_beyond_the_budget(tmp_path: Path) -> None:
    async with open_world(tmp_path, StopBudget(0.5, 2.0)) as world:
        token, prompt, ready = world.tool(KINDS["setsid"])
        async with world.rooms.turn("kitchen", prompt) as turn:
            await until(ready.exists)
            (pid,) = world.pids()
            os.kill(pid, signal.SIGSTOP)
            turn.stop()
            await trio.sleep_forever()
        settlement = turn.settlement
        assert settlement is not None
        assert settlement.ending is Ending.UNCONFIRMED
        assert settlement.asked_at is not None
        assert settlement.settled_at - settlement.asked_at < 6.0
        # What the process table shows was swept all the same.
        assert world.lab.processes(token) == []
        os.kill(pid, signal.SIGCONT)
        await world.answers()


async def test_a_cancellation_around_everything_still_stops_for_real(tmp_path: Path) -> None:
    world = open_world(tmp_path)
    await a_cancellation_around_everything_stops_for_real(world, KINDS["loop"])


async def test_a_busy_thread_is_refused_and_its_turn_untouched(tmp_path: Path) -> None:
    async with open_lab() as lab:
        env = program_env("codex", lab.url, tmp_path)
        async with open_codex(PROGRAM, cwd=tmp_path, env=env) as codex:
            token, prompt = write_prompt(Behaviour("park"))
            turn = await codex.start(Request("kitchen", "1", prompt))
            await lab.parked(token)
            with pytest.raises(BackendRefused, match="busy"):
                await codex.start(Request("kitchen", "2", "and this", turn.session))
            assert len(lab.exchanges) == 1
            assert len(lab.open_requests(token)) == 1
            await turn.cancel(lambda: None)


async def test_a_sub_agent_and_its_command_end_with_the_turn_that_set_them_to_work(
    tmp_path: Path,
) -> None:
    with sub_agents():
        await stop_a_turn_with_agents(tmp_path)


async def stop_a_turn_with_agents(home: Path) -> None:
    async with open_world(home) as world:
        parked, park = write_prompt(Behaviour("park"))
        shell, command, ready = world.tool(KINDS["TERM-ignoring"])
        outer, nested = write_prompt(Behaviour("tool", None, f"AGENT {command}", "park"))
        first, other = write_prompt(Behaviour("tool", None, f"AGENT {park}", "answer"))
        # An earlier turn's sub-agent works on: it is not this turn's.
        await world.ask("kitchen", other)
        await world.lab.parked(parked)
        async with world.rooms.turn("kitchen", nested) as turn:
            await until(ready.exists)
            await world.lab.parked(outer)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        assert world.commands() == []
        for token in (outer, shell):
            assert world.lab.open_requests(token) == []
        assert world.lab.open_requests(parked)
        assert world.lab.requests(first)


async def test_an_approval_is_asked_and_a_stop_takes_it_back(tmp_path: Path) -> None:
    options = {"approval": "untrusted", "sandbox": "read-only"}
    async with open_world(tmp_path, **options) as world:
        await a_stop_takes_an_open_permission_back(world, "accept")


async def test_an_approval_that_is_given_lets_the_command_run(tmp_path: Path) -> None:
    async with open_world(tmp_path, approval="untrusted", sandbox="read-only") as world:
        _, prompt, _ = world.tool("echo 'from the shell'")
        outputs = []
        async with world.rooms.turn("kitchen", prompt) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, "accept")
                if isinstance(event, ToolCall) and event.state == "completed":
                    outputs.append(event.detail)
        assert turn.ending is Ending.FINISHED
        assert any("from the shell" in output for output in outputs)


async def test_a_model_that_fails_fails_the_turn_and_the_room_goes_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        with pytest.raises(BackendError, match=r"demand|500"):
            await world.ask("kitchen", write_prompt(Behaviour("refuse"))[1])
        await world.answers()


async def test_nothing_of_codex_is_left_when_it_is_closed(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt, ready = world.tool(KINDS["TERM-ignoring"])
        with trio.CancelScope() as scope:
            async with world.rooms.turn("kitchen", prompt):
                await until(ready.exists)
                scope.cancel()
                await trio.sleep_forever()
        assert world.lab.processes(token) == []
        assert world.pids()
    assert world.pids() == world.commands() == []
