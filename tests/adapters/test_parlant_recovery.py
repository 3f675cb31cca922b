"""Turns of an engine whose process is gone: they are over with it, and their rooms may go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import BackendLost, BackendRefused
from turnstop.abc import End, How, Proof, Request, current_turn
from turnstop.adapters.parlant import ParlantSession, open_parlant
from turnstop.events import Event
from turnstop.testing.recording.parlant import RecordingParlant
from turnstop.transports.owners import OwnerAddress

if os.environ.get("TURNSTOP_REAL") != "require":
    pytest.importorskip("trio_asyncio", reason="pip install 'turnstop[aio]'")


class Reader:
    def __call__(self, event: Event) -> None: ...

    async def ask(self, ask: object) -> object:
        raise AssertionError


@pytest.fixture(autouse=True)
def turn_id() -> Iterator[None]:
    token = current_turn.set("1")
    yield
    current_turn.reset(token)


def opened(engine: RecordingParlant) -> Any:
    return open_parlant(engine.prepare, library=engine.library)


async def left(engine: RecordingParlant) -> str:
    """The address of a turn, in a process that is gone now."""
    async with opened(engine) as parlant:
        turn = await parlant.start(Request("kitchen", "1", "bake"))
        await wait_all_tasks_blocked()
    here = OwnerAddress.parse(turn.address)
    # As if its pid had been given to this process since.
    return str(attrs.evolve(here, started=here.started - 1))


async def test_where_it_works_is_told_before_it_is_sent(autojump_clock: MockClock) -> None:
    engine, announced = RecordingParlant(), list[str]()

    async def announce(address: str) -> None:
        assert engine.works == []
        announced.append(address)

    async with opened(engine) as parlant:
        turn = await parlant.start(Request("kitchen", "1", "bake", announce=announce))
        other = await parlant.start(Request("garden", "1", "dig"))
    assert announced == [turn.address]
    address, another = OwnerAddress.parse(turn.address), OwnerAddress.parse(other.address)
    assert (address.pid, address.session) == (os.getpid(), turn.session.id)
    assert address.mark != another.mark


async def test_what_is_not_announced_is_not_sent(autojump_clock: MockClock) -> None:
    async def announce(address: str) -> None:
        raise BackendRefused("stopped")

    engine = RecordingParlant()
    async with opened(engine) as parlant:
        with pytest.raises(BackendRefused, match="stopped"):
            await parlant.start(Request("kitchen", "1", "bake", announce=announce))
        await trio.sleep(1)
    assert engine.works == []


async def test_it_is_over_and_its_room_goes_on_where_the_session_was_kept(
    autojump_clock: MockClock,
) -> None:
    address = await left(engine := RecordingParlant())
    async with opened(engine) as parlant:
        turn = await parlant.attach(address)
        assert await turn.follow(Reader()) == End(How.CANCELLED, Proof.PROCESS)
        assert isinstance(turn.session, ParlantSession)
        following = await parlant.start(Request("kitchen", "2", "clean", session=turn.session))
        await wait_all_tasks_blocked()
        first, second = engine.works
        assert first.session == second.session
        # The tools that are called there are the turn's, as in a session that began here.
        before = await following.leftovers()
        engine.call_tool(second)
        await wait_all_tasks_blocked()
        assert len(await following.leftovers()) == len(before) + 1


@pytest.mark.parametrize("gone", ["session", "agent"])
async def test_a_session_that_nobody_answers_in_is_not_gone_on_with(
    autojump_clock: MockClock, gone: str
) -> None:
    address = await left(engine := RecordingParlant())
    if gone == "session":
        engine.store._sessions.clear()
    async with opened(engine) as parlant:
        if gone == "agent":
            engine.agents.clear()
        turn = await parlant.attach(address)
        assert turn.session is None
        assert await turn.follow(Reader()) == End(How.CANCELLED, Proof.PROCESS)


async def test_the_address_of_something_else(autojump_clock: MockClock) -> None:
    async with opened(RecordingParlant()) as parlant:
        with pytest.raises(BackendLost, match="no address of work"):
            await parlant.attach("http://127.0.0.1")
