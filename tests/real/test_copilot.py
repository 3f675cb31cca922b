"""The adapter on the real Copilot, whose model is the lab's: what a stop leaves.

A command that ignores signals says when it does, by a file: a stop in between would prove nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendError, BackendLost, BackendRefused, Ending, Proof, StopBudget
from turnstop.abc import End, Request
from turnstop.events import Text
from turnstop.lab import Behaviour, copilot_session, open_lab, program_env, write_prompt

from . import REQUIRED, labworld, real_program
from .labworld import BUDGET, DEAF, LEFT_BEHIND, PATIENCE, STOPPED, Deaf, ended, until

try:
    from turnstop.adapters.copilot import _sdk, open_copilot
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

PROGRAM = real_program("copilot").path
KINDS = {
    "plain": "touch $READY; sleep 300",
    "TERM-ignoring": DEAF,
    "nohup": "touch $READY; nohup sleep 300",
    "setsid": f"setsid sh -c {shlex.quote(DEAF)} & sleep 300",
    "left behind": LEFT_BEHIND,
}


@attrs.define
class World(labworld.World):
    copilot: Any
    variable: ClassVar = "HOME={}"
    itself: ClassVar = b"--headless"

    def remembered(self) -> list[str]:
        """What was said to the model in the conversation that it was last given."""
        messages = self.lab.exchanges[-1].json()["messages"]
        return [str(message["content"]) for message in messages if message["role"] == "user"]


@asynccontextmanager
async def open_world(
    home: Path, budget: StopBudget = BUDGET, *, asks: bool = False, thread: bool = False
) -> AsyncGenerator[World, None]:
    with trio.fail_after(3 * PATIENCE):
        async with open_lab() as lab:
            async with open_copilot(
                PROGRAM,
                cwd=home,
                env=program_env("copilot", lab.url, home),
                approve_all=not asks,
                thread=thread,
                **copilot_session(lab.url),
            ) as copilot:
                async with turnstop.open_rooms(copilot, budget=budget) as rooms:
                    yield World(lab, rooms, home, copilot)


@pytest.mark.parametrize("thread", [False, True])
async def test_a_turn_is_answered_and_the_next_continues(tmp_path: Path, thread: bool) -> None:
    async with open_world(tmp_path, thread=thread) as world:
        first = await world.answers()
        assert first.settlement is not None
        assert first.settlement.usage is not None
        assert first.settlement.usage.output_tokens
        await world.answers()
        assert len(world.remembered()) == 2
        await world.answers("garden")
        assert len(world.remembered()) == 1


async def test_the_sdk_has_heard_of_the_end_before_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, readers = _sdk.disconnect, []

    async def disconnect(client: Any) -> None:
        reader = client._client._read_thread
        # Nobody else does anything meanwhile: this is Trio's thread.
        reader.join(5)
        readers.append(reader.is_alive())
        await let_go(client)

    async with open_world(tmp_path) as world:
        monkeypatch.setattr(_sdk, "disconnect", disconnect)
        await world.answers()
    # One that still reads what is closed under it writes a traceback to stderr.
    assert readers == [False]


@pytest.mark.parametrize("thread", [False, True])
async def test_a_stop_in_the_middle_of_the_answer(tmp_path: Path, thread: bool) -> None:
    async with open_world(tmp_path, thread=thread) as world:
        for _ in range(3):
            token, prompt = write_prompt(Behaviour("park"))
            said = ""
            async with world.rooms.turn("kitchen", prompt) as turn:
                async for event in turn:
                    said += event.delta if isinstance(event, Text) else ""
                    if "piece 2" in said:
                        turn.stop()
            assert ended(turn) == STOPPED
            assert world.lab.alive(token) == []
            await world.answers()
        # F11: the session of a stopped turn is the next one's.
        assert len(world.remembered()) == 6


@pytest.mark.parametrize("word", ["headers", "hold", "drip"])
async def test_a_stop_of_every_kind_of_model_call(tmp_path: Path, word: str) -> None:
    async with open_world(tmp_path) as world:
        token, prompt = write_prompt(Behaviour(word))
        async with world.rooms.turn("kitchen", prompt) as turn:
            await (world.lab.arrived(token) if word == "drip" else world.lab.parked(token))
            turn.stop()
        assert ended(turn) == STOPPED
        assert world.lab.alive(token) == []
        await world.answers()


@pytest.mark.parametrize("warm", [True, False])
async def test_stops_around_the_start_are_never_lost(tmp_path: Path, warm: bool) -> None:
    """F17: at every moment from the message's answer on, also of a first turn."""
    async with open_world(tmp_path) as world:
        session = None
        for number in range(16 if warm else 6):
            token, prompt = write_prompt(Behaviour("park"))
            turn: Any = await world.copilot.start(Request("kitchen", "1", prompt, session))
            await trio.sleep(number * 0.002)
            ends: list[End] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow, turn, ends)
                await turn.cancel(lambda: None)
            assert ends[0].how.name == "CANCELLED"
            assert world.lab.open_requests(token) == []
            session = turn.session if warm else None
        # Nothing comes after the end.
        count = len(world.lab.exchanges)
        await trio.sleep(0.3)
        assert len(world.lab.exchanges) == count
        await world.answers("garden")


async def follow(turn: Any, ends: list[End]) -> None:
    ends.append(await turn.follow(Deaf()))


async def test_a_stop_while_the_message_is_on_its_way_waits_for_its_answer(tmp_path: Path) -> None:
    """F16: an abort that overtakes it would be lost, and nobody would be told."""
    async with open_world(tmp_path) as world:
        for number in range(12):
            token, prompt = write_prompt(Behaviour("park"))
            async with world.rooms.turn("kitchen", prompt) as turn:
                await trio.sleep(number * 0.001)
                turn.stop()
            assert ended(turn) in (STOPPED, (Ending.UNSTARTED, None, True))
            assert world.lab.alive(token) == []
            await world.answers()


async def test_a_stop_that_races_the_end_tells_the_truth(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await labworld.a_stop_that_races_the_end_tells_the_truth(world)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_command_outlives_its_turns_stop(tmp_path: Path, kind: str) -> None:
    async with open_world(tmp_path) as world:
        await labworld.no_command_outlives_a_stop(world, KINDS[kind])


async def test_a_second_rooms_turn_and_command_go_on(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await labworld.a_neighbour_goes_on(world, KINDS["TERM-ignoring"], KINDS["setsid"])
        await world.answers()


@pytest.mark.parametrize(("reply", "state"), [("allow", "completed"), ("deny", "failed")])
async def test_a_permission_is_asked_for(tmp_path: Path, reply: str, state: str) -> None:
    async with open_world(tmp_path, asks=True) as world:
        await labworld.a_permission_is_asked_for(world, reply, state)


async def test_a_stop_takes_an_open_permission_back(tmp_path: Path) -> None:
    async with open_world(tmp_path, asks=True) as world:
        await labworld.a_stop_takes_an_open_permission_back(world)


async def test_a_failed_turns_conversation_goes_on(tmp_path: Path) -> None:
    """F23: its session is resumed by its id."""
    async with open_world(tmp_path) as world:
        await world.answers()
        with pytest.raises(BackendError, match="asked to fail") as caught:
            await world.ask("kitchen", write_prompt(Behaviour("fail"))[1])
        assert not isinstance(caught.value, BackendLost | BackendRefused)
        await world.answers()
        assert len(world.remembered()) == 3


@pytest.mark.parametrize("stops", [False, True])
async def test_a_killed_copilot_is_noticed_and_comes_back(tmp_path: Path, stops: bool) -> None:
    """F12, F24: the SDK itself would wait on for its whole timeout."""
    async with open_world(tmp_path) as world:
        first = await world.answers()
        token, prompt, ready = world.tool(KINDS["setsid"], "park")
        turn = world.rooms.turn("kitchen", prompt)
        with trio.fail_after(PATIENCE):
            if stops:
                async with turn:
                    await until(ready.exists)
                    kill(world)
                    turn.stop()
                    await trio.sleep_forever()
                assert turn.ending in (Ending.STOPPED, Ending.KILLED)
            else:
                with pytest.raises(BackendLost, match="signal 9") as caught:
                    async with turn:
                        await until(ready.exists)
                        kill(world)
                        await trio.sleep_forever()
                assert caught.value.gone
                assert turn.ending is Ending.FAILED
        assert world.lab.processes(token) == []
        again = await world.answers()
        assert str(session_of(again)) == str(session_of(first))
        assert len(world.remembered()) >= 2


def kill(world: World) -> None:
    for pid in world.pids():
        os.kill(pid, signal.SIGKILL)


def session_of(turn: Any) -> object:
    return turn._life._remote.session


async def test_a_copilot_that_hangs_is_told_of(tmp_path: Path) -> None:
    """H3: it serves other rooms too, so that it is not killed: its turn is unconfirmed, in time."""
    async with open_world(tmp_path, StopBudget(0.5, 0.5)) as world:
        token, prompt = write_prompt(Behaviour("park"))
        (pid,) = world.pids()
        try:
            async with world.rooms.turn("kitchen", prompt) as turn:
                await world.lab.parked(token)
                os.kill(pid, signal.SIGSTOP)
                turn.stop()
                await trio.sleep_forever()
        finally:
            os.kill(pid, signal.SIGCONT)
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.gone) == (Ending.UNCONFIRMED, False)
        assert settlement.asked_at is not None
        assert settlement.settled_at - settlement.asked_at < 3.0
        # Its room goes on in a fresh session.
        await world.answers()
        assert len(world.remembered()) == 1


async def test_one_that_dies_while_it_is_told_to_stop(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.answers()
        token, prompt = write_prompt(Behaviour("park"))
        (pid,) = world.pids()
        async with world.rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            os.kill(pid, signal.SIGSTOP)
            turn.stop()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.3)
                os.kill(pid, signal.SIGKILL)
        settlement = turn.settlement
        assert settlement is not None
        assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.PROCESS)
        assert settlement.gone
        await world.answers()
        assert len(world.remembered()) >= 2


async def test_a_cancellation_around_everything_still_stops_for_real(tmp_path: Path) -> None:
    opened = open_world(tmp_path)
    await labworld.a_cancellation_around_everything_stops_for_real(opened, DEAF)


async def test_a_retired_rooms_session_is_unloaded_and_still_on_disk(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        turn = await world.answers()
        number = str(session_of(turn))
        await world.rooms.retire("kitchen")
        token, prompt = write_prompt(Behaviour("answer"))
        again: Any = await world.copilot.start(Request("kitchen", "9", prompt, number))
        assert (await again.follow(Deaf())).how.name == "COMPLETED"
        assert len(world.remembered()) == 2
        history = json.dumps(world.lab.exchanges[-1].json()["messages"])
        assert token in history


async def test_a_session_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        request = Request("kitchen", "1", "hi", "11111111-2222-3333-4444-555555555555")
        with pytest.raises(BackendRefused, match="not found"):
            await world.copilot.start(request)
