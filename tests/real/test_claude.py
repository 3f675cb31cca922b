"""The adapter on the real Claude Code, whose model is the lab's: what a stop leaves."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendError, BackendLost, BackendRefused, Ending, Proof, StopBudget, Turn
from turnstop.abc import End, Request
from turnstop.adapters.claude import open_claude
from turnstop.adapters.claude._interrupt import interrupt
from turnstop.events import Text
from turnstop.lab import Behaviour, MissingProgram, find_program, open_lab, program_env
from turnstop.lab import write_prompt as prompt_for

from . import real_program
from .labworld import (
    BUDGET,
    DEAF,
    LEFT_BEHIND,
    LOOP,
    PATIENCE,
    STOPPED,
    Deaf,
    World,
    a_cancellation_around_everything_stops_for_real,
    a_neighbour_goes_on,
    a_permission_is_asked_for,
    a_stop_takes_an_open_permission_back,
    a_stop_that_races_the_end_tells_the_truth,
    ended,
    no_command_outlives_a_stop,
    until,
    what_was_left_goes_on,
)

PROGRAM = real_program("claude").path
KINDS = {
    "plain": "touch $READY; sleep 300 & wait",
    "loop": f"touch $READY; {LOOP}",
    "TERM-ignoring": DEAF,
    "nohup": "touch $READY; nohup sleep 300 & wait",
    "setsid": f"setsid sh -c {shlex.quote(DEAF)} & wait",
    "left behind": LEFT_BEHIND,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@attrs.define
class ClaudeWorld(World):
    claude: Any
    variable = "CLAUDE_CONFIG_DIR={}/.claude"
    itself = b"stream-json"

    def remembered(self) -> list[object]:
        """The answers of earlier turns that the model was given last: a fresh session has none.

        What a killed turn itself had said is not asked for. Claude writes its transcript behind
        its work, and a SIGKILL can come before the line.
        """
        messages = self.lab.exchanges[-1].json()["messages"]
        return [message["content"] for message in messages if message["role"] == "assistant"]

    def commands(self) -> list[bytes]:
        """Claude looks at the process table itself, now and then."""
        own = (b"ps\0", b"/bin/ps\0", b"/usr/bin/ps\0")
        return [command for command in super().commands() if not command.startswith(own)]


@asynccontextmanager
async def open_world(
    home: Path, budget: StopBudget = BUDGET, program: str = PROGRAM, **options: Any
) -> AsyncGenerator[ClaudeWorld, None]:
    options = {"permission_mode": "bypassPermissions", "setting_sources": (), **options}
    with trio.fail_after(3 * PATIENCE):
        async with open_lab() as lab:
            env = {**program_env("claude", lab.url, home), **options.pop("env", {})}
            async with open_claude(program, cwd=home, env=env, **options) as claude:
                async with turnstop.open_rooms(claude, budget=budget) as rooms:
                    yield ClaudeWorld(lab, rooms, home, claude)


async def test_a_turn_is_answered_and_the_next_continues(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        first = await world.answers()
        assert ended(first)[0] is Ending.FINISHED
        assert first.settlement is not None
        assert first.settlement.usage is not None
        assert first.settlement.usage.output_tokens
        await world.answers()
        one, two = world.lab.exchanges
        assert len(two.json()["messages"]) > len(one.json()["messages"])
        # A background task would wake Claude for nobody.
        bash = next(tool for tool in two.json()["tools"] if tool["name"] == "Bash")
        assert "run_in_background" not in bash["input_schema"]["properties"]


async def test_a_stop_in_the_middle_of_the_answer(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt = prompt_for(Behaviour("park"))
        said = ""
        async with world.rooms.turn("kitchen", prompt) as turn:
            async for event in turn:
                said += event.delta if isinstance(event, Text) else ""
                if "piece 2" in said:
                    turn.stop()
        assert ended(turn) == STOPPED
        await world.lab.gone(token)
        await world.answers()
        # C78: what it had said is what it remembers, once.
        history = json.dumps(world.lab.exchanges[-1].json()["messages"])
        assert history.count("piece 0 piece 1 piece 2") == 1


@pytest.mark.parametrize("warm", [True, False])
async def test_stops_around_the_start_are_never_lost(tmp_path: Path, warm: bool) -> None:
    """C26, F7: at every moment from the writing of the message on, also of a first turn."""
    async with open_world(tmp_path) as world:
        session = None
        for number in range(24 if warm else 4):
            token, prompt = prompt_for(Behaviour("park"))
            turn: Any = await world.claude.start(Request("kitchen", "1", prompt, session))
            await trio.sleep(number * 0.002 if warm else number * 0.03)
            ends: list[End] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow, turn, ends)
                await turn.cancel(lambda: None)
            assert ends[0].how.name == "CANCELLED"
            # Of a request that had just come the endpoint sees a moment later that it was dropped.
            with trio.fail_after(PATIENCE):
                await world.lab.gone(token)
            session = turn.session if warm else None
            await world.claude.forget(turn.session) if not warm else None
        await world.answers("garden")


async def follow(turn: Any, ends: list[End]) -> None:
    ends.append(await turn.follow(Deaf()))


async def test_a_stop_with_a_plain_interrupt_is_repeated_once(tmp_path: Path) -> None:
    """An old Claude loses an interrupt that comes before the turn has begun."""
    try:
        found = find_program("claude-agent-acp").command[-1]
    except MissingProgram as missing:
        pytest.skip(str(missing))
    modules = Path(found).parents[3]
    (old,) = modules.glob("@anthropic-ai/claude-agent-sdk-linux-*/claude")
    async with open_world(tmp_path, program=str(old)) as world:
        session = None
        for number in range(8):
            token, prompt = prompt_for(Behaviour("park"))
            turn: Any = await world.claude.start(Request("kitchen", "1", prompt, session))
            await trio.sleep(number * 0.003)
            ends: list[End] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow, turn, ends)
                nursery.start_soon(interrupt, turn._peer.rpc, turn._begun, turn._over, print)
            assert ends[0].how.name == "CANCELLED"
            with trio.fail_after(PATIENCE):
                await world.lab.gone(token)
            session = turn.session
        assert session is not None
        assert session.lifecycle is False
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
        await what_was_left_goes_on(world, LEFT_BEHIND, KINDS["nohup"])


async def test_a_background_task_is_stopped_and_wakes_nobody(tmp_path: Path) -> None:
    async with open_world(tmp_path, background=True) as world:
        token, prompt = prompt_for(Behaviour("park"))
        behind = f"export TURNSTOP_LAB_TURN={token}; sleep 300 & wait"
        async with world.rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            given = {"command": behind, "description": "wait", "run_in_background": True}
            world.lab.order(token, "call", "Bash", given)
            await world.lab.tool_running(token)
            await until(lambda: len(world.lab.requests(token)) == 2)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        assert world.commands() == []
        count = len(world.lab.exchanges)
        await trio.sleep(0.5)
        assert len(world.lab.exchanges) == count
        await world.answers()


async def test_a_stop_that_races_the_end_tells_the_truth(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await a_stop_that_races_the_end_tells_the_truth(world)


async def test_a_killed_claude_loses_its_turn_and_comes_back(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.answers()
        token, prompt, ready = world.tool(KINDS["plain"])
        turn = world.rooms.turn("kitchen", prompt)
        with pytest.raises(BackendLost, match="signal 9") as caught:
            await kill_claude_in(world, turn, ready)
        assert caught.value.gone
        assert turn.ending is Ending.FAILED
        for process in world.lab.processes(token):
            process.kill()
        await world.answers()
        assert world.remembered()


async def kill_claude_in(world: ClaudeWorld, turn: Turn, ready: Path) -> None:
    async with turn:
        await until(ready.exists)
        for pid in world.pids():
            os.kill(pid, signal.SIGKILL)
        await trio.sleep_forever()


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
async def test_one_that_is_lost_early_is_begun_anew(tmp_path: Path, after: float) -> None:
    """Before Claude has written anything down, there is nothing to resume."""
    async with open_world(tmp_path) as world:
        turn: Any = await world.claude.start(
            Request("kitchen", "1", prompt_for(Behaviour("park"))[1])
        )
        await trio.sleep(after)
        os.kill(turn._peer.process.pid, signal.SIGKILL)
        with pytest.raises(BackendLost):
            await turn.follow(Deaf())
        token, prompt = prompt_for(Behaviour("answer"))
        again: Any = await world.claude.start(Request("kitchen", "2", prompt, turn.session))
        end = await again.follow(Deaf())
        assert end.how.name == "COMPLETED"
        assert again.session is turn.session
        assert world.lab.requests(token)
        assert world.lab.faults == []


class Watched:
    """Claude, and the last turn that it was sent."""

    def __init__(self, claude: Any) -> None:
        self._claude = claude
        self.sent = trio.Event()
        self.turn: Any = None

    async def start(self, request: Request[Any]) -> Any:
        self.turn = await self._claude.start(request)
        self.sent.set()
        return self.turn

    async def lose(self) -> None:
        """Its process is killed, and that has been seen."""
        os.kill(self.turn._peer.process.pid, signal.SIGKILL)
        await self.turn._peer.broken.wait()


@asynccontextmanager
async def open_watched(home: Path) -> AsyncGenerator[tuple[ClaudeWorld, Watched], None]:
    async with open_world(home) as world:
        watched = Watched(world.claude)
        async with turnstop.open_rooms(watched, budget=BUDGET) as rooms:
            yield attrs.evolve(world, rooms=rooms), watched


@pytest.mark.parametrize("after", [0.0, 0.005, 0.03])
async def test_one_whose_first_message_was_cancelled_goes_on_when_it_is_lost(
    tmp_path: Path, after: float
) -> None:
    async with open_watched(tmp_path) as (world, claude):
        async with world.rooms.turn("kitchen", prompt_for(Behaviour("park"))[1]) as turn:
            await claude.sent.wait()
            await trio.sleep(after)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        await claude.lose()
        await world.answers()


async def test_a_conversation_that_was_cleared_is_not_resumed(tmp_path: Path) -> None:
    async with open_watched(tmp_path) as (world, claude):
        token, prompt = prompt_for(Behaviour("answer"))
        await world.ask("kitchen", prompt)
        await world.ask("kitchen", "/clear")
        await world.answers()
        await claude.lose()
        await world.answers()
        history = json.dumps(world.lab.exchanges[-1].json()["messages"])
        assert token not in history
        # What came behind the /clear is what it goes on with.
        assert history.count("answer to") == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"permission_mode": "bogus"}, "argument 'bogus' is invalid"),
        ({"setting_sources": ("bogus",)}, "Invalid setting source: bogus"),
        ({"args": ("--bogus",)}, "unknown option '--bogus'"),
    ],
)
async def test_options_that_it_does_not_take_are_told_at_once(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    async with open_world(tmp_path, **options) as world:
        with pytest.raises(BackendRefused, match=text):
            await world.ask("kitchen", "hi")


async def test_a_claude_that_hangs_is_killed_and_its_session_resumed(tmp_path: Path) -> None:
    """F6, C14: SIGTERM, then SIGKILL of the group, and its tool as well, within the budget."""
    async with open_world(tmp_path, StopBudget(0.5, 3.0)) as world:
        await world.answers()
        token, prompt, ready = world.tool(KINDS["setsid"], "park")
        async with world.rooms.turn("kitchen", prompt) as turn:
            await until(ready.exists)
            (pid,) = world.pids()
            os.kill(pid, signal.SIGSTOP)
            turn.stop()
            await trio.sleep_forever()
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.proof) == (Ending.KILLED, Proof.PROCESS)
        assert settlement.clean
        assert settlement.asked_at is not None
        assert settlement.settled_at - settlement.asked_at < 6.0
        assert world.lab.processes(token) == []
        assert world.commands() == []
        await world.answers()
        assert world.remembered()


async def test_a_kill_ends_the_tools_with_sigterm(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt, ready = world.tool(KINDS["plain"], "park")
        turn: Any = await world.claude.start(Request("kitchen", "1", prompt))
        await until(lambda: ready.exists() and world.lab.processes(token))
        await turn.kill()
        # A machine that is busy may not let it come to its own end in time.
        assert turn._peer.process.returncode in (143, -signal.SIGKILL)
        assert world.lab.processes(token) == []
        with pytest.raises(BackendLost):
            await turn.follow(Deaf())


async def test_a_cancellation_around_everything_still_stops_for_real(tmp_path: Path) -> None:
    world = open_world(tmp_path)
    await a_cancellation_around_everything_stops_for_real(world, KINDS["loop"])


@pytest.mark.parametrize("background", [False, True])
async def test_a_sub_agent_ends_with_the_turn_that_set_it_to_work(
    tmp_path: Path, background: bool
) -> None:
    async with open_world(tmp_path, background=background) as world:
        token, prompt = prompt_for(Behaviour("park"))
        agent, work = prompt_for(Behaviour("park"))
        async with world.rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            given = {"description": "look", "prompt": work, "subagent_type": "general-purpose"}
            world.lab.order(token, "call", "Task", given)
            await world.lab.parked(agent)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        assert world.lab.open_requests(agent) == world.lab.open_requests(token) == []
        await world.answers()


@pytest.mark.parametrize(
    ("reply", "state"), [("allow", "completed"), ("deny", "failed"), ("not that", "failed")]
)
async def test_a_permission_is_asked_for(tmp_path: Path, reply: str, state: str) -> None:
    async with open_world(tmp_path, permission_mode="default") as world:
        call = await a_permission_is_asked_for(world, reply, state)
        assert reply != "not that" or call.detail == reply


async def test_a_stop_takes_an_open_permission_back(tmp_path: Path) -> None:
    async with open_world(tmp_path, permission_mode="default") as world:
        await a_stop_takes_an_open_permission_back(world)


async def test_a_login_that_is_demanded_is_the_turns_failure(tmp_path: Path) -> None:
    async with open_world(tmp_path, env={"ANTHROPIC_API_KEY": None}) as world:
        with pytest.raises(BackendError, match="Not logged in"):
            await world.ask("kitchen", "hi")
        assert world.lab.exchanges == []


async def test_a_retired_rooms_process_is_gone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.answers()
        await world.answers("garden")
        assert len(world.pids()) == 2
        await world.rooms.retire("kitchen")
        assert len(world.pids()) == 1
