"""Turns of ACP agents whose owner is gone: where they are, who ends them, what their rooms get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from acping import LEAVES, agent, answered, asked, end_all, finished, lose, sleepers, write
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import BackendLost, BackendRefused, Ending, Proof, Settlement, StopBudget
from turnstop.abc import Request, Silenced
from turnstop.adapters.acp import PROFILES, open_acp
from turnstop.events import Event, Other
from turnstop.journal import open_journal
from turnstop.testing._notebook import Notebook
from turnstop.testing.recording.acp import QUIRKS, RecordingAcp, open_recorded
from turnstop.transports.orphans import ProcessAddress
from turnstop.transports.proctable import find_marked

BUDGET = StopBudget(cancel_within=5.0, kill_within=2.0)


async def nothing(address: str) -> None:
    pass


async def refuse(address: str) -> None:
    raise BackendRefused("it was stopped before it was sent")


# In memory: what is announced, and who takes up what.


async def test_where_a_turn_is_is_announced_before_anything_is_sent(
    autojump_clock: MockClock,
) -> None:
    acp, announced = agent(), list[str]()

    async def note(address: str) -> None:
        assert acp.told("session/new")
        await wait_all_tasks_blocked()
        assert not acp.told("session/prompt")
        announced.append(address)

    async with open_recorded(acp) as backend:
        assert getattr(backend, "announces", False)
        turn: Any = await backend.start(Request("kitchen", "1", "first", announce=note))
    assert announced == [turn.address]
    assert ProcessAddress.parse(turn.address).session == turn.session == "session-1"


async def test_a_turn_that_is_stopped_while_it_is_announced_leaves_no_process_to_nobody(
    autojump_clock: MockClock,
) -> None:
    acp = agent()
    async with open_recorded(acp) as backend:
        with pytest.raises(BackendRefused, match="before it was sent"):
            await backend.start(Request("kitchen", "1", "first", announce=refuse))
        await wait_all_tasks_blocked()
        assert [one.ended for one in acp.processes] == [True]
        turn: Any = await backend.start(Request("kitchen", "2", "second", announce=nothing))
        assert turn.session == "session-2"
        assert [one.ended for one in acp.processes] == [True, False]
    assert not acp.told("session/prompt")


async def test_a_session_that_was_taken_up_for_nothing_is_not_taken_up_again(
    autojump_clock: MockClock,
) -> None:
    """Copilot refuses that: the room would go on in a fresh one."""
    acp = agent("copilot")
    async with open_recorded(acp, "copilot") as backend:
        first: Any = await backend.start(Request("kitchen", "1", "first"))
        await lose(acp)
        again = Request("kitchen", "2", "second", first.session, announce=refuse)
        with pytest.raises(BackendRefused):
            await backend.start(again)
        third: Any = await backend.start(attrs.evolve(again, announce=nothing))
    assert third.session == first.session
    assert [one["params"]["sessionId"] for one in acp.told("session/load")] == ["session-1"]
    assert len(acp.told("session/new")) == 1


async def test_a_session_that_was_replaced_for_nothing_is_replaced_again(
    autojump_clock: MockClock,
) -> None:
    acp = agent("gemini")
    async with open_recorded(acp, "gemini") as backend:
        first: Any = await backend.start(Request("kitchen", "1", "first"))
        await lose(acp)
        again = Request("kitchen", "2", "second", first.session, announce=refuse)
        with pytest.raises(BackendRefused):
            await backend.start(again)
        third: Any = await backend.start(attrs.evolve(again, announce=nothing))
    assert (third.session, third.session.replaces) == ("session-3", "session-1")


@pytest.mark.parametrize("profile", sorted(PROFILES))
async def test_a_journal_knows_agents_by_their_profile(
    profile: str, autojump_clock: MockClock
) -> None:
    async with open_recorded(agent(profile), profile) as backend:
        name = getattr(backend, "name", None)
    assert name == ("acp agent" if profile == "generic" else f"acp {profile}")


async def test_a_journal_knows_an_agent_of_no_profile_by_its_own_name(
    autojump_clock: MockClock,
) -> None:
    acp = RecordingAcp(attrs.evolve(QUIRKS["generic"], name="crab"))
    async with open_recorded(acp) as backend:
        assert getattr(backend, "name", None) == "acp crab"


@asynccontextmanager
async def taken_up(
    acp: RecordingAcp, profile: str, address: str, found: list[Settlement], **more: Any
) -> AsyncGenerator[turnstop.Rooms[Any], None]:
    """The rooms of the next owner, which has found a turn of the kitchen."""
    notes = Notebook([("kitchen", "left", address)])
    async with open_recorded(acp, profile, **more) as backend:
        async with turnstop.open_rooms(
            backend, budget=BUDGET, journal=notes, observers=[found.append]
        ) as rooms:
            yield rooms


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("profile", sorted(PROFILES))
async def test_what_was_left_is_ended_and_its_room_goes_on_with_the_session(
    profile: str, shared: bool, autojump_clock: MockClock
) -> None:
    acp, found = agent(profile), list[Settlement]()
    async with open_recorded(acp, profile, shared=shared) as gone:
        left: Any = await gone.start(Request("kitchen", "left", "first"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, left)
            work = await asked(acp)
            acp.end_late(0.5)
            async with taken_up(acp, profile, left.address, found, shared=shared) as rooms:
                assert work.runs
                heard = await finished(acp, rooms)
            nursery.cancel_scope.cancel()
    assert (found[0].ending, found[0].proof, found[0].clean) == (
        Ending.STOPPED,
        Proof.PROCESS,
        True,
    )
    assert acp.works[1].asked_at >= found[0].settled_at >= (work.ended_at or 1e9)
    resumes = PROFILES[profile].resumes
    assert (acp.works[1].session == work.session) is resumes
    replaced = [one for one in heard if isinstance(one, Other) and one.kind == "session_replaced"]
    assert bool(replaced) is not resumes


async def follow(turn: Any) -> None:
    with pytest.raises(BackendLost):
        await turn.follow(Unheard())


class Unheard:
    def __call__(self, event: Event) -> None:
        pass

    async def ask(self, ask: object) -> object:
        raise Silenced


@pytest.mark.parametrize("address", ["", "null", "process:[1]", "process:{}", '["a", "b"]'])
async def test_another_kind_of_address_is_not_taken_up(address: str, tmp_path: Path) -> None:
    async with open_acp(write(tmp_path, ""), cwd=tmp_path) as backend:
        with pytest.raises(BackendLost, match="no address of a process"):
            await backend.attach(address)  # type: ignore[attr-defined]


# With processes: their owner is killed.

OWNER = """
import sys, trio, turnstop
from pathlib import Path
from turnstop.adapters.acp import open_acp
from turnstop.events import Text
from turnstop.journal import open_journal

async def main(folder, profile, *words):
    command = [sys.executable, str(Path(folder) / "agent.py")]
    env = {"TURNSTOP_TEST_FOLDER": folder}
    async with (
        open_journal(Path(folder) / "turns.db") as journal,
        open_acp(command, cwd=folder, profile=profile, env=env) as acp,
        turnstop.open_rooms(acp, journal=journal) as rooms,
    ):
        for word in words:
            async with rooms.turn("kitchen", word) as turn:
                async for event in turn:
                    if isinstance(event, Text) and "left" in event.delta:
                        print(word, flush=True)
            # The process table counts in ticks.
            await trio.sleep(0.05)

trio.run(main, *sys.argv[1:])
"""
# It goes on when its owner is gone, and does not end when it is told to.
STUBBORN = f"""
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(300,)).start()
def on_hello(number):
    can = {{"loadSession": True}}
    say(id=number, result={{"protocolVersion": 1, "agentCapabilities": can}})
{LEAVES}
"""


async def leave(folder: Path, profile: str, *words: str) -> None:
    """Have an owner work on these, and kill it in the midst of the last."""
    command = [sys.executable, "-c", OWNER, str(folder), profile, *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = await trio.lowlevel.open_process(command, env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with process.stdout:
            said = b""
            while said.split() != [word.encode() for word in words]:
                piece = await process.stdout.receive_some()
                assert piece, said
                said += piece
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def agents(folder: Path) -> list[int]:
    found = await find_marked({"TURNSTOP_TEST_FOLDER": str(folder)})
    return [one.process.pid for one in found if "agent.py" in one.process.command]


@pytest.mark.parametrize(("profile", "kept"), [("qwen", 1), ("generic", 0)])
async def test_a_stubborn_agent_and_what_its_turn_has_begun_are_ended(
    profile: str, kept: int, tmp_path: Path
) -> None:
    """What an earlier turn has left goes on, where tools are known."""
    command, found = write(tmp_path, STUBBORN), list[Settlement]()
    env = {"TURNSTOP_TEST_FOLDER": str(tmp_path)}
    try:
        with trio.fail_after(60):
            await leave(tmp_path, profile, "done", "tool")
            assert await sleepers(tmp_path) == 2
            (before,) = await agents(tmp_path)
            async with (
                open_journal(tmp_path / "turns.db") as journal,
                open_acp(command, cwd=tmp_path, profile=profile, env=env) as acp,
                turnstop.open_rooms(
                    acp, budget=BUDGET, journal=journal, observers=[found.append]
                ) as rooms,
            ):
                assert rooms.statistics().stopping == 1
                await answered(rooms, "kitchen")
                left = found[0]
                assert (left.ending, left.proof, left.clean) == (
                    Ending.STOPPED,
                    Proof.PROCESS,
                    True,
                )
                assert left.request is not None
                assert left.request.kind == "recovery"
                assert await sleepers(tmp_path) == kept
                # The new owner's own is no other's to end.
                now = await agents(tmp_path)
                assert now
                assert before not in now
    finally:
        await end_all(tmp_path)
