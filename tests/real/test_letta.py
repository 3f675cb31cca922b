"""The adapter on a real Letta server, whose agents ask the lab: what a stop ends, and what it says.

One server serves all tests of a process, each with agents of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio

import turnstop
from turnstop import BackendError, BackendRefused, Ending, Proof, StopBudget, Turn
from turnstop.events import Ask, Text, ToolCall
from turnstop.lab import Behaviour, Lab, open_lab, write_prompt
from turnstop.lab.behaviours import Word

from . import REQUIRED, real_letta

try:
    from turnstop.adapters.letta import open_letta
    from turnstop.lab.letta import make_agent, start_letta, stop_letta
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_letta()

PATIENCE = 300.0
BUDGET = StopBudget(6.0, 1.0)
# Nothing but a bound: a model that is silent holds its call open for ever.
IMPATIENT = StopBudget(1.5, 0.5)
CANCELLED_WITHIN = 1.0
SEEN_WITHIN = 0.1
STARTER = """
import time, trio
from turnstop.lab.letta import start_letta
trio.run(start_letta)
print("it runs", flush=True)
time.sleep(600)
"""
PLACES = pytest.mark.parametrize("conversations", [True, False], ids=["conversation", "agent"])


@attrs.define
class World:
    lab: Lab
    url: str
    backend: Any

    def rooms(self, budget: StopBudget = BUDGET) -> Any:
        return turnstop.open_rooms(self.backend, budget=budget)

    async def answers(self, rooms: turnstop.Rooms[Any], room: str = "kitchen") -> str:
        """The room's next turn answers, and every history the model was given is valid.

        What it answers is returned.
        """
        token, prompt = write_prompt(Behaviour("answer"))
        async with rooms.turn(room, prompt) as turn:
            said = "".join([one.delta async for one in turn if isinstance(one, Text)])
        assert said == f"answer to {token}"
        assert ended(turn) == (Ending.FINISHED, Proof.EVENT, True)
        assert self.lab.faults == []
        return said

    async def is_honest(self, turn: Turn, token: str) -> None:
        """What is called gone is gone."""
        with trio.move_on_after(SEEN_WITHIN):
            await self.lab.gone(token)
        assert turn.settlement is not None
        assert not (turn.settlement.gone and self.lab.alive(token))


@attrs.define
class Losing(httpx.AsyncBaseTransport):
    """Loses answers to questions: on their way there, or what the server says to them."""

    loses: str = ""
    _inner: httpx.AsyncHTTPTransport = attrs.field(factory=httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.loses or b'"approval"' not in await request.aread():
            return await self._inner.handle_async_request(request)
        if self.loses == "nobody listens":
            raise httpx.ConnectError(self.loses)
        if self.loses == "what is said to it":
            response = await self._inner.handle_async_request(request)
            await response.aread()
        raise httpx.ReadError(self.loses)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def open_world(
    conversations: bool = True,
    asks: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncGenerator[World, None]:
    with trio.fail_after(PATIENCE):
        url = await start_letta()
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:

            async def agent_of(room: str) -> str:
                return await make_agent(url, lab.url, asks=asks)

            agent = await agent_of("all") if conversations else agent_of
            async with open_letta(
                url, agent_id=agent, conversations=conversations, transport=transport
            ) as backend:
                yield World(lab, url, backend)


def processes_of(folder: str) -> list[str]:
    """What lives with the folder as its temporary one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the turn's state gives no event
        await trio.sleep(0.005)


def ended(turn: Turn) -> tuple[Ending, Proof | None, bool]:
    settlement = turn.settlement
    assert settlement is not None
    assert settlement.errors == ()
    return settlement.ending, settlement.proof, settlement.clean


@pytest.fixture(scope="session", autouse=True)
def server_of_the_session() -> Iterator[None]:
    yield
    stop_letta()


@PLACES
async def test_stops_of_every_moment_each_with_a_next_turn(conversations: bool) -> None:
    async with open_world(conversations) as world, world.rooms() as rooms:
        for delay in (0.0, 0.01, 0.1, 0.2):
            token, prompt = write_prompt(Behaviour("drip", 10))
            turn = rooms.turn("kitchen", prompt)
            async with turn:
                await until(lambda turn=turn: turn.state == "live")
                await trio.sleep(delay)
                turn.stop()
            assert ended(turn)[0] in (Ending.STOPPED, Ending.UNCONFIRMED, Ending.UNSTARTED)
            await world.is_honest(turn, token)
            await world.answers(rooms)
            world.lab.release(token)


@PLACES
@pytest.mark.parametrize("word", ["park", "headers", "hold"])
async def test_a_silent_models_call_is_never_called_gone(conversations: bool, word: Word) -> None:
    async with open_world(conversations) as world, world.rooms(IMPATIENT) as rooms:
        before = await world.answers(rooms)
        token, prompt = write_prompt(Behaviour(word))
        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            turn.stop()
        assert ended(turn) == (Ending.UNCONFIRMED, None, False)
        # The server has said that it is cancelled, and its call goes on.
        assert turn.settlement is not None
        assert turn.settlement.acked_at is not None
        assert world.lab.open_requests(token) != []
        # The room goes on all the same, beside it, and knows what was said before.
        await world.answers(rooms)
        assert before.encode() in world.lab.exchanges[-1].body
        assert world.lab.open_requests(token) != []
        world.lab.release(token)
        await world.lab.gone(token)
        await world.answers(rooms)


async def test_a_model_that_answers_after_the_cancel_finishes_nothing(
    nursery: trio.Nursery,
) -> None:
    async with open_world() as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour("park"))

        async def answer_later() -> None:
            await trio.sleep(CANCELLED_WITHIN)
            world.lab.release(token)

        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            nursery.start_soon(answer_later)
            turn.stop()
        # The server may trace the call, or never: it is over in any case.
        assert ended(turn)[0] in (Ending.STOPPED, Ending.UNCONFIRMED)
        assert world.lab.alive(token) == []
        await world.answers(rooms)


async def test_a_stop_hurts_no_other_room_of_the_agent() -> None:
    async with open_world() as world, world.rooms(IMPATIENT) as rooms:
        other, theirs = write_prompt(Behaviour("drip", 50))
        async with rooms.turn("garden", theirs) as neighbour:
            await world.lab.parked(other)
            token, prompt = write_prompt(Behaviour("drip", 10))
            async with rooms.turn("kitchen", prompt) as turn:
                await world.lab.parked(token)
                turn.stop()
            await world.is_honest(turn, token)
            world.lab.release(token)
            await world.answers(rooms)
            assert world.lab.open_requests(other) != []
            world.lab.release(other)
            said = "".join([one.delta async for one in neighbour if isinstance(one, Text)])
        assert said.endswith(f"answer to {other}")
        assert ended(neighbour) == (Ending.FINISHED, Proof.EVENT, True)


@PLACES
async def test_a_stop_that_comes_too_late_finds_it_finished(conversations: bool) -> None:
    async with open_world(conversations) as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour("park", 1))
        async with rooms.turn("kitchen", prompt) as turn:
            request = await world.lab.parked(token)
            world.lab.release(token)
            await world.lab.until(lambda: request.ended_at is not None)
            turn.stop()
        ending, _, clean = ended(turn)
        # The server may have looked whether it is cancelled just before the last of it.
        assert ending in (Ending.FINISHED, Ending.STOPPED)
        assert clean
        await world.answers(rooms)


@pytest.mark.parametrize(("reply", "states"), [("approve", "completed"), ("deny", None)])
async def test_a_tool_is_asked_for(reply: str, states: str | None) -> None:
    async with open_world(asks=True) as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour("park", 1))
        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            world.lab.order(token, "call", "ring_bell", {"times": 2})
            calls = []
            async for event in turn:
                if isinstance(event, Ask):
                    turn.answer(event, reply)
                    await world.lab.until(lambda: len(world.lab.requests(token)) == 2)
                    await world.lab.parked(token)
                    world.lab.release(token)
                elif isinstance(event, ToolCall):
                    calls.append(event.state)
        assert ended(turn) == (Ending.FINISHED, Proof.EVENT, True)
        assert states is None or states in calls
        await world.answers(rooms)


@PLACES
async def test_a_stop_while_a_person_is_asked_leaves_no_question(conversations: bool) -> None:
    async with open_world(conversations, asks=True) as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour("park", 1))
        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            world.lab.order(token, "call", "ring_bell", {"times": 2})
            async for event in turn:
                if isinstance(event, Ask):
                    turn.stop()
        await world.is_honest(turn, token)
        world.lab.release(token)
        await world.answers(rooms)


@PLACES
@pytest.mark.parametrize(
    ("loses", "ending"),
    [
        ("nobody listens", Ending.STOPPED),
        ("it", Ending.UNCONFIRMED),
        ("what is said to it", Ending.UNCONFIRMED),
    ],
)
async def test_a_denial_that_is_lost_is_said_by_the_next_turn(
    conversations: bool, loses: str, ending: Ending, nursery: trio.Nursery
) -> None:
    losing = Losing()

    async def release_next(lab: Lab, token: str) -> None:
        await lab.until(lambda: len(lab.requests(token)) == 2)
        await lab.parked(token)
        lab.release(token)

    async with (
        open_world(conversations, asks=True, transport=losing) as world,
        world.rooms() as rooms,
    ):
        token, prompt = write_prompt(Behaviour("park", 1))
        async with rooms.turn("kitchen", prompt) as turn:
            await world.lab.parked(token)
            world.lab.order(token, "call", "ring_bell", {"times": 2})
            async for event in turn:
                if isinstance(event, Ask):
                    losing.loses = loses
                    if loses == "what is said to it":
                        nursery.start_soon(release_next, world.lab, token)
                    turn.stop()
        assert turn.ending is ending
        losing.loses = ""
        for _ in range(2):
            await world.answers(rooms)


@PLACES
@pytest.mark.parametrize("word", ["refuse", "fail"])
async def test_a_model_that_fails_fails_its_turn(conversations: bool, word: Word) -> None:
    async with open_world(conversations) as world, world.rooms() as rooms:
        token, prompt = write_prompt(Behaviour(word))
        with pytest.raises(BackendError, match="the lab was asked to"):
            async with rooms.turn("kitchen", prompt) as turn:
                async for _ in turn:
                    pass
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.FAILED
        assert world.lab.alive(token) == []
        await world.answers(rooms)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_process_that_is_killed_leaves_no_server() -> None:
    # Short, for a socket; and whoever runs the database has to get there.
    with trio.fail_after(PATIENCE), tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", STARTER],
            env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert (await process.stdout.receive_some()).startswith(b"it runs")
            assert len(processes_of(folder)) >= 4
        finally:
            process.kill()
        await process.wait()
        await until(lambda: not processes_of(folder))
        assert os.listdir(folder) == []


async def test_what_is_not_there_is_refused() -> None:
    nobody = "agent-00000000-0000-4000-8000-000000000000"
    async with open_world() as world:
        async with open_letta(world.url, agent_id=nobody) as letta:
            async with turnstop.open_rooms(letta) as rooms:
                with pytest.raises(BackendRefused, match=r"404.*not found"):
                    async with rooms.turn("kitchen", "bake") as turn:
                        async for _ in turn:
                            pass
    assert turn.settlement is not None
    assert turn.settlement.gone
