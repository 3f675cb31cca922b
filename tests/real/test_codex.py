"""The adapter on the real codex, whose model is the lab's: what a stop leaves.

A command that ignores signals says when it does, by a file: a stop in between would prove nothing.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendError, BackendLost, BackendRefused, Ending, Proof, StopBudget, Turn
from turnstop.abc import Request
from turnstop.adapters.codex import open_codex
from turnstop.events import Ask, Event, Text, ToolCall
from turnstop.lab import Behaviour, Lab, open_lab, program_env, write_prompt

from . import real_program
from .golden_codex import sub_agents

PROGRAM = real_program("codex").path
PATIENCE = 60.0
BUDGET = StopBudget(20.0, 5.0)
LOOP = "while :; do sleep 0.05; done"
DEAF = f"trap '' TERM INT HUP; touch $READY; {LOOP}"
KINDS = {
    "plain": "touch $READY; sleep 300",
    "loop": f"touch $READY; {LOOP}",
    "TERM-ignoring": DEAF,
    "nohup": "touch $READY; nohup sleep 300",
    "background": "sleep 300 & sleep 301 & touch $READY; wait",
    "setsid": f"setsid sh -c {shlex.quote(DEAF)} & sleep 300",
    "left behind": f"setsid sh -c {shlex.quote(DEAF)} >/dev/null 2>&1 & exit 0",
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@attrs.define
class World:
    lab: Lab
    rooms: turnstop.Rooms[str]
    home: Path

    async def ask(self, room: str, prompt: str) -> tuple[list[Event], Turn]:
        events = []
        async with self.rooms.turn(room, prompt) as turn:
            async for event in turn:
                events.append(event)
        return events, turn

    async def answers(self, room: str) -> Turn:
        """The room's next turn answers, and every history the model was given is valid."""
        token, prompt = write_prompt(Behaviour("answer"))
        events, turn = await self.ask(room, prompt)
        said = "".join(event.delta for event in events if isinstance(event, Text))
        assert f"answer to {token}" in said
        assert self.lab.faults == []
        return turn

    def tool(self, command: str, then: str = "answer") -> tuple[str, str, Path]:
        """A prompt that runs a command, its token, and the file that says it is ready."""
        ready = self.home / f"ready-{os.urandom(4).hex()}"
        whole = f"export READY={shlex.quote(str(ready))}; {command}"
        behaviour = Behaviour("tool", None, whole, then)  # type: ignore[arg-type]
        return (*write_prompt(behaviour), ready)

    def codex_pids(self) -> list[int]:
        """The processes of this world's codex itself."""
        return [pid for pid, command in self._processes().items() if b"app-server" in command]

    def commands(self) -> list[bytes]:
        """Everything that this world's codex has started, found by nothing but its home."""
        found = self._processes().values()
        return [command for command in found if command and b"app-server" not in command]

    def _processes(self) -> dict[int, bytes]:
        found = {}
        home = f"CODEX_HOME={self.home}\0".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if home in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
        return found


@asynccontextmanager
async def open_world(
    home: Path, budget: StopBudget = BUDGET, **options: object
) -> AsyncGenerator[World, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = program_env("codex", lab.url, home)
            async with open_codex(PROGRAM, cwd=home, env=env, **options) as codex:  # type: ignore[arg-type]
                async with turnstop.open_rooms(codex, budget=budget) as rooms:
                    yield World(lab, rooms, home)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes give no event
        await trio.sleep(0.01)


def ended(turn: Turn) -> tuple[Ending, Proof | None, bool]:
    settlement = turn.settlement
    assert settlement is not None
    assert settlement.errors == ()
    return settlement.ending, settlement.proof, settlement.clean


STOPPED = (Ending.STOPPED, Proof.EVENT, True)


async def test_a_turn_is_answered_and_the_next_continues(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        assert ended(await world.answers("a"))[0] is Ending.FINISHED
        await world.answers("a")
        first, second = world.lab.exchanges
        assert len(second.json()["input"]) > len(first.json()["input"])
        # A goal would make codex begin turns by itself.
        tools = {tool.get("name") for tool in second.json()["tools"]}
        assert "exec_command" in tools
        assert "create_goal" not in tools


async def test_a_stop_in_the_middle_of_the_answer(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt = write_prompt(Behaviour("park"))
        async with world.rooms.turn("a", prompt) as turn:
            await world.lab.parked(token)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        await world.lab.gone(token)
        await world.answers("a")


async def test_stops_around_the_start_are_never_lost(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for number in range(25):
            token, prompt = write_prompt(Behaviour("park"))
            async with world.rooms.turn("a", prompt) as turn:
                await trio.sleep(number * 0.002)
                turn.stop()
                await trio.sleep_forever()
            assert ended(turn) in (STOPPED, (Ending.UNSTARTED, None, True))
            assert world.lab.open_requests(token) == []
        await world.answers("a")


@every_kind
async def test_no_command_outlives_its_turns_stop(tmp_path: Path, kind: str) -> None:
    async with open_world(tmp_path) as world:
        token, prompt, ready = world.tool(KINDS[kind], "park")
        async with world.rooms.turn("a", prompt) as turn:
            await until(ready.exists)
            await until(lambda: world.lab.processes(token))
            turn.stop()
            await trio.sleep_forever()
        try:
            assert ended(turn) == STOPPED
            assert world.commands() == []
        finally:
            for process in world.lab.processes(token):
                process.kill()
        await world.answers("a")


async def test_a_second_rooms_turn_and_command_go_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, trio.open_nursery() as nursery:
        other_token, other_prompt, other_ready = world.tool(KINDS["loop"])
        nursery.start_soon(world.ask, "b", other_prompt)
        await until(other_ready.exists)
        token, prompt, ready = world.tool(KINDS["setsid"])
        async with world.rooms.turn("a", prompt) as turn:
            await until(ready.exists)
            turn.stop()
            await trio.sleep_forever()
        assert ended(turn) == STOPPED
        assert world.lab.processes(token) == []
        await until(lambda: world.lab.processes(other_token))
        assert world.rooms.statistics().live == 1
        world.rooms.stop("b")


async def test_a_command_of_an_earlier_turn_goes_on(tmp_path: Path) -> None:
    """What a finished turn left in the background is the user's: only the stopped turn is swept."""
    async with open_world(tmp_path) as world:
        kept, prompt, ready = world.tool(f"setsid sh -c {shlex.quote(DEAF)} >/dev/null 2>&1 & :")
        try:
            _, first = await world.ask("a", prompt)
            assert first.ending is Ending.FINISHED
            await until(ready.exists)
            token, prompt, ready = world.tool(KINDS["background"])
            async with world.rooms.turn("a", prompt) as turn:
                await until(ready.exists)
                turn.stop()
                await trio.sleep_forever()
            assert ended(turn) == STOPPED
            assert world.lab.processes(token) == []
            await until(lambda: world.lab.processes(kept))
        finally:
            while left := world.lab.processes(kept):
                for process in left:
                    process.kill()
                await trio.sleep(0.02)


async def test_a_stop_that_races_the_end_tells_the_truth(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        endings = set()
        for number in range(16):
            token, prompt = write_prompt(Behaviour("park"))
            async with world.rooms.turn("a", prompt) as turn:
                await world.lab.parked(token)
                world.lab.release(token)
                await trio.sleep(number * 0.002)
                turn.stop()
                await trio.sleep_forever()
            ending, proof, clean = ended(turn)
            assert (proof, clean) == (Proof.EVENT, True)
            endings.add(ending)
            assert world.lab.open_requests(token) == []
        assert endings <= {Ending.STOPPED, Ending.FINISHED}
        await world.answers("a")


async def test_a_killed_codex_loses_its_turns_and_comes_back(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.answers("a")
        token, prompt, ready = world.tool("touch $READY; sleep 300")
        turn = world.rooms.turn("a", prompt)
        with pytest.raises(BackendLost, match="signal 9") as caught:
            await kill_codex_in(world, turn, ready)
        assert caught.value.gone
        assert turn.ending is Ending.FAILED
        for process in world.lab.processes(token):
            process.kill()
        await world.answers("a")
        assert len(world.lab.exchanges[-1].json()["input"]) > 4


async def kill_codex_in(world: World, turn: Turn, ready: Path) -> None:
    async with turn:
        await until(ready.exists)
        for pid in world.codex_pids():
            os.kill(pid, signal.SIGKILL)
        await trio.sleep_forever()


async def test_a_codex_that_dies_while_it_is_stopped_is_gone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt, ready = world.tool(KINDS["TERM-ignoring"])
        async with world.rooms.turn("a", prompt) as turn:
            await until(ready.exists)
            (pid,) = world.codex_pids()
            os.kill(pid, signal.SIGSTOP)
            turn.stop()
            os.kill(pid, signal.SIGKILL)
            await trio.sleep_forever()
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.proof) == (Ending.STOPPED, Proof.PROCESS)
        assert turn.settlement.clean
        assert world.lab.processes(token) == []
        await world.answers("a")


async def test_a_codex_that_hangs_holds_nobody_beyond_the_budget(tmp_path: Path) -> None:
    async with open_world(tmp_path, StopBudget(0.5, 2.0)) as world:
        token, prompt, ready = world.tool(KINDS["setsid"])
        async with world.rooms.turn("a", prompt) as turn:
            await until(ready.exists)
            (pid,) = world.codex_pids()
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
        await world.answers("a")


async def test_a_cancellation_around_everything_still_stops_for_real(tmp_path: Path) -> None:
    turn: Turn | None = None
    with trio.CancelScope() as app:
        async with open_world(tmp_path) as world:
            _, prompt, ready = world.tool(KINDS["loop"])
            turn = world.rooms.turn("a", prompt)
            async with turn:
                await until(ready.exists)
                app.cancel()
                await trio.sleep_forever()
    assert turn is not None
    assert ended(turn) == STOPPED
    assert world.commands() == world.codex_pids() == []


async def test_a_busy_thread_is_refused_and_its_turn_untouched(tmp_path: Path) -> None:
    async with open_lab() as lab:
        env = program_env("codex", lab.url, tmp_path)
        async with open_codex(PROGRAM, cwd=tmp_path, env=env) as codex:
            token, prompt = write_prompt(Behaviour("park"))
            turn = await codex.start(Request("a", "1", prompt))
            await lab.parked(token)
            with pytest.raises(BackendRefused, match="busy"):
                await codex.start(Request("a", "2", "and this", turn.session))
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
        await world.ask("a", other)
        await world.lab.parked(parked)
        async with world.rooms.turn("a", nested) as turn:
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
        made = tmp_path / "made"
        token, prompt, _ = world.tool(f"touch {shlex.quote(str(made))}")
        async with world.rooms.turn("a", prompt) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    assert "accept" in event.choices
                    turn.stop()
        assert ended(turn) == STOPPED
        assert not made.exists()
        assert world.lab.processes(token) == []
        await world.answers("a")


async def test_an_approval_that_is_given_lets_the_command_run(tmp_path: Path) -> None:
    async with open_world(tmp_path, approval="untrusted", sandbox="read-only") as world:
        _, prompt, _ = world.tool("echo 'from the shell'")
        outputs = []
        async with world.rooms.turn("a", prompt) as turn:
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
            await world.ask("a", write_prompt(Behaviour("refuse"))[1])
        await world.answers("a")


async def test_nothing_of_codex_is_left_when_it_is_closed(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        token, prompt, ready = world.tool(KINDS["TERM-ignoring"])
        with trio.CancelScope() as scope:
            async with world.rooms.turn("a", prompt):
                await until(ready.exists)
                scope.cancel()
                await trio.sleep_forever()
        assert world.lab.processes(token) == []
        assert world.codex_pids()
    assert world.codex_pids() == world.commands() == []
