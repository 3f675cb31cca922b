"""The adapter on the real opencode, whose model is the lab's: what a stop leaves.

One server serves a whole module's tests, each in rooms of its own, as it does an application.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendLost, BackendRefused, Ending, StopBudget, Turn
from turnstop.events import Ask, Event, Text, ToolCall
from turnstop.lab import Behaviour, Lab, open_lab, program_env, write_prompt

from . import REQUIRED, real_program
from .labworld import BUDGET, DEAF, LEFT_BEHIND, PATIENCE, STOPPED, ended, prompt_for_tool, until

try:
    from turnstop.adapters.opencode import open_opencode
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

PROGRAM = real_program("opencode").path
KINDS = {
    "plain": "touch $READY; sleep 300",
    "TERM-ignoring": DEAF,
    "setsid": f"setsid sh -c {shlex.quote(DEAF)} & sleep 300",
    "left behind": LEFT_BEHIND,
}


@attrs.define
class World:
    lab: Lab
    backend: object
    home: Path

    def rooms(self, budget: StopBudget = BUDGET) -> object:
        return turnstop.open_rooms(self.backend, budget=budget)

    @property
    def server(self) -> object:
        return self.backend._servers.current

    @property
    def password(self) -> str:
        """What its process was given, which nobody but its own user can read."""
        pid = self.server.program.process.pid
        pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
        return next(one for one in pairs if "SERVER_PASSWORD" in one).partition("=")[2]

    async def answers(self, rooms: turnstop.Rooms[str], room: str = "kitchen") -> Turn:
        """The room's next turn answers, and every history the model was given is valid."""
        token, prompt = write_prompt(Behaviour("answer"))
        async with rooms.turn(room, prompt) as turn:
            said = "".join([one.delta async for one in turn if isinstance(one, Text)])
        assert said == f"answer to {token}"
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.FINISHED
        assert self.lab.faults == []
        return turn

    def tool(self, command: str, then: str = "answer") -> tuple[str, str, Path]:
        return prompt_for_tool(self.home, command, then)


def environment(lab: Lab, home: Path, permission: str = "allow") -> dict[str, str]:
    env = program_env("opencode", lab.url, home)
    return {**env, "OPENCODE_PERMISSION": json.dumps({"bash": permission})}


def holding_up(env: dict[str, str], home: Path) -> dict[str, str]:
    """With a plugin that keeps each message for four seconds before opencode has it."""
    plugin = home / "slow.js"
    plugin.write_text(
        "export const Slow = async () => ({\n"
        '  "chat.message": async () => { await new Promise((go) => setTimeout(go, 4000)) },\n'
        "})\n"
    )
    given = json.loads(env.get("OPENCODE_CONFIG_CONTENT") or "{}")
    return {**env, "OPENCODE_CONFIG_CONTENT": json.dumps({**given, "plugin": [plugin.as_uri()]})}


@asynccontextmanager
async def open_world(home: Path, permission: str = "allow") -> AsyncGenerator[World, None]:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = environment(lab, home, permission)
            async with open_opencode(command=PROGRAM, directory=home, env=env) as backend:
                yield World(lab, backend, home)


async def test_stops_of_every_moment_each_with_a_next_turn(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        lab = world.lab
        # A server that has just been begun: an abort now would be lost, or spoil its setting up.
        for delay in (0.0, 0.005, 0.02, 0.05, 0.2):
            token, prompt = write_prompt(Behaviour("park"))
            turn = rooms.turn("kitchen", prompt)
            async with turn:
                await until(lambda turn=turn: turn.state == "live")
                await trio.sleep(delay)
                turn.stop()
            assert ended(turn) in (STOPPED, (Ending.UNSTARTED, None, True))
            assert lab.alive(token) == []
            await world.answers(rooms)
        for word in ("park", "headers", "hold"):
            token, prompt = write_prompt(Behaviour(word))
            async with rooms.turn("kitchen", prompt) as turn:
                await lab.parked(token)
                turn.stop()
            assert ended(turn) == STOPPED
            assert lab.alive(token) == []
            await world.answers(rooms)
        await trio.sleep(0.5)
        assert lab.open_requests(token) == []


async def test_tools_are_ended_and_no_neighbours(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        other, theirs, ready = world.tool(KINDS["setsid"], "park")
        async with rooms.turn("garden", theirs) as neighbour:
            await until(ready.exists)
            for kind in KINDS.values():
                token, prompt, ready = world.tool(kind, "park")
                async with rooms.turn("kitchen", prompt) as turn:
                    await until(ready.exists)
                    if kind == KINDS["left behind"]:
                        await world.lab.parked(token)
                    turn.stop()
                assert ended(turn) == STOPPED
                assert world.lab.alive(token) == []
                assert len(world.lab.processes(other)) >= 2
                await world.answers(rooms)
            neighbour.stop()
        assert ended(neighbour) == STOPPED
        assert world.lab.processes(other) == []


async def test_what_a_finished_turn_left_is_no_later_ones_and_goes_with_the_server(
    tmp_path: Path,
) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        first, prompt, ready = world.tool(KINDS["left behind"])
        async with rooms.turn("kitchen", prompt) as turn:
            events = [event async for event in turn]
        await until(ready.exists)
        calls = [one for one in events if isinstance(one, ToolCall)]
        assert {one.state for one in calls} >= {"started", "completed"}
        token, prompt = write_prompt(Behaviour("park"))
        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            turn.stop()
        assert ended(turn) == STOPPED
        assert world.lab.processes(first) != []
        lab = world.lab
    assert lab.processes(first) == []


async def test_permissions(tmp_path: Path) -> None:
    async with open_world(tmp_path, "ask") as world, world.rooms() as rooms:
        token, prompt, ready = world.tool(KINDS["plain"], "park")
        async with rooms.turn("kitchen", prompt) as turn:
            async for event in turn:
                if isinstance(event, Ask):
                    assert event.choices == ("once", "always", "reject")
                    turn.stop()
        assert ended(turn) == STOPPED
        await trio.sleep(0.2)
        assert await world.server.wire.get("/permission") == []
        assert len(world.lab.requests(token)) == 1
        assert not ready.exists()
        await world.answers(rooms)
        for reply, states in (("reject", "failed"), ("once", "completed")):
            _, prompt = write_prompt(Behaviour("tool", None, "true", "answer"))
            seen: list[Event] = []
            async with rooms.turn("kitchen", prompt) as turn:
                async for event in turn:
                    seen.append(event)
                    if isinstance(event, Ask):
                        turn.answer(event, reply)
            assert states in [one.state for one in seen if isinstance(one, ToolCall)]
            assert turn.settlement is not None
            assert turn.settlement.ending is Ending.FINISHED
            await world.answers(rooms)


async def begin_agent(world: World, turn: str) -> tuple[str, Path]:
    """Have the turn's model begin a sub-agent, which runs a command."""
    await world.lab.parked(turn)
    child, prompt, ready = world.tool(KINDS["TERM-ignoring"], "park")
    given = {"description": "bake", "prompt": prompt, "subagent_type": "general"}
    world.lab.order(turn, "call", "task", given)
    await until(ready.exists)
    return child, ready


async def test_a_sub_agent_and_its_tools_end_with_the_turn(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        other, theirs, ready = world.tool(KINDS["setsid"], "park")
        async with rooms.turn("garden", theirs) as neighbour:
            await until(ready.exists)
            token, prompt = write_prompt(Behaviour("park"))
            async with rooms.turn("kitchen", prompt) as turn:
                child, _ = await begin_agent(world, token)
                assert world.lab.processes(child) != []
                turn.stop()
            assert ended(turn) == STOPPED
            assert world.lab.alive(token) == []
            assert world.lab.alive(child) == []
            assert len(world.lab.processes(other)) >= 2
            await world.answers(rooms)
            assert list(await world.server.wire.get("/session/status")) != []
            neighbour.stop()
        assert ended(neighbour) == STOPPED
        assert await world.server.wire.get("/session/status") == {}


async def ask(world: World, turn: str) -> None:
    """Have the turn's model ask a person."""
    await world.lab.parked(turn)
    options = [{"label": one, "description": f"a {one} one"} for one in ("red", "blue")]
    question = {"question": "Which one?", "header": "Colour", "options": options}
    world.lab.order(turn, "call", "question", {"questions": [question]})


@pytest.mark.parametrize("answers", [True, False])
async def test_a_question_is_answered_or_refused_by_a_stop(tmp_path: Path, answers: bool) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour("park"))
        async with rooms.turn("kitchen", prompt) as turn:
            await ask(world, token)
            async for event in turn:
                if isinstance(event, Ask):
                    assert (event.kind, event.choices) == ("question", ("red", "blue"))
                    assert event.text == "Which one?"
                    if not answers:
                        turn.stop()
                        continue
                    turn.answer(event, "blue")
                    await world.lab.until(lambda: len(world.lab.requests(token)) == 2)
                    world.lab.order(token, "end")
        assert turn.settlement is not None
        assert turn.settlement.ending is (Ending.FINISHED if answers else Ending.STOPPED)
        assert turn.settlement.clean
        assert await world.server.wire.get("/question") == []
        assert world.lab.alive(token) == []
        await world.answers(rooms)


async def test_a_stop_ends_what_a_deleted_session_may_still_work_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour("park"))
        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            session = turn._life._remote.session
            await world.server.wire.delete(f"/session/{session}")
            turn.stop()
        assert ended(turn) == STOPPED
        assert world.lab.alive(token) == []


async def test_a_server_that_dies_is_brought_back_and_its_sessions_go_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        await world.answers(rooms)
        token, prompt, ready = world.tool(KINDS["setsid"], "park")
        with pytest.raises(BackendLost, match="ended by signal 9"):
            async with rooms.turn("kitchen", prompt) as turn:
                await until(ready.exists)
                os.kill(world.server.program.process.pid, signal.SIGKILL)
                async for _ in turn:
                    pass
        # Its tools outlive it, and are ended before its loss is told.
        assert world.lab.processes(token) == []
        assert turn.settlement is not None
        assert turn.settlement.gone
        await world.answers(rooms)
        assert [one["title"] for one in await world.server.wire.get("/session")] == ["kitchen"]


async def test_a_fork_goes_on_with_the_conversation(tmp_path: Path) -> None:
    """Where an abort of before may still come: the next turn's history is the same, and valid."""
    async with open_world(tmp_path) as world, world.rooms() as rooms:
        first = await world.answers(rooms)
        session = first._life._remote.session
        made = await world.server.wire.post(f"/session/{session}/fork", {})
        assert made["id"] != session
        messages = await world.server.wire.get(f"/session/{made['id']}/message")
        assert [one["info"]["role"] for one in messages] == ["user", "assistant"]


async def test_one_at_a_url_wants_its_password_and_is_left_alone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        url = world.server.wire.url
        with pytest.raises(BackendRefused, match="OPENCODE_SERVER_PASSWORD"):
            async with open_opencode(url, directory=tmp_path):
                raise AssertionError("unreachable")
        given = {"directory": tmp_path, "password": world.password}
        async with open_opencode(url, **given) as backend:
            async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
                await world.answers(rooms)
                token, prompt, ready = world.tool(KINDS["setsid"], "park")
                async with rooms.turn("kitchen", prompt) as turn:
                    await until(ready.exists)
                    turn.stop()
                # Whose processes are on its machine is not for a stranger to say.
                assert ended(turn) == STOPPED
                assert len(world.lab.processes(token)) >= 1
                await world.answers(rooms)


async def test_a_message_that_a_plugin_holds_up_is_stopped_when_it_comes(tmp_path: Path) -> None:
    with trio.fail_after(4 * PATIENCE):
        async with open_lab() as lab:
            env = holding_up(environment(lab, tmp_path), tmp_path)
            async with open_opencode(command=PROGRAM, directory=tmp_path, env=env) as backend:
                token, prompt = write_prompt(Behaviour("park"))
                async with World(lab, backend, tmp_path).rooms(StopBudget(10.0, 2.0)) as rooms:
                    with trio.move_on_after(0.5):
                        async with rooms.turn("kitchen", prompt) as turn:
                            await trio.sleep_forever()
                    assert turn.ending is Ending.STOPPED
                    # It was held up for so long: by then it would be there.
                    await trio.sleep(4.0)
                    assert lab.open_requests(token) == []
