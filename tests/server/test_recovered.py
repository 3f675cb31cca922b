"""What a killed server has left is told of in its room: on the page, and to who listens."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
from browsers import find_chromium, open_page
from servers import SETTINGS, TOKEN, Served

from turnstop import StopBudget
from turnstop._house import Orphan
from turnstop.abc import Emit, End, How, Proof, Request
from turnstop.cli.client.listing import _standing
from turnstop.cli.client.showing import Shower
from turnstop.events import Text
from turnstop.feeds import MemoryFeed
from turnstop.server import open_server


class Entry:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


class Left:
    """A journal in which a process that is gone has left one turn."""

    def __init__(self) -> None:
        self.left = [Orphan("kitchen", "bread", "there", Entry())]

    def admit(self, backend: str, room: str, turn_id: str) -> Any:
        return Entry()

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        found, self.left = self.left, []
        return found


@attrs.define(eq=False)
class Turn:
    """It goes on until it is told to end; and tells of its end, or does not."""

    tells: bool
    text: str | None = None
    session: object | None = None
    told: trio.Event = attrs.field(factory=trio.Event)

    async def follow(self, emit: Emit) -> End:
        if self.text is not None:
            emit(Text(self.text))
            return End(How.COMPLETED)
        await self.told.wait()
        return End(How.CANCELLED, Proof.PROCESS if self.tells else Proof.CLAIMED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        self.told.set()


@attrs.frozen
class Agent:
    tells: bool = True

    async def start(self, request: Request[Any]) -> Turn:
        return Turn(self.tells, str(request.content))

    async def attach(self, address: str) -> Turn:
        return Turn(self.tells)


@asynccontextmanager
async def recovering(*, tells: bool = True) -> AsyncGenerator[Served, None]:
    feed, budget = MemoryFeed(), StopBudget(0.2, 0.2)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    journal = Left()
    async with (
        open_server(Agent(tells), feed, SETTINGS, budget=budget, journal=journal) as server,
        httpx2.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http,
    ):
        with trio.fail_after(60):
            yield Served(server, feed, http)


async def test_how_an_old_turn_has_settled_is_told_in_its_room() -> None:
    async with recovering() as served:
        told = await served.until("/events", "settlement")
        assert (told["room"], told["turn_id"], told["ending"]) == ("kitchen", "bread", "stopped")
        assert told["request"]["kind"] == "recovery"
        assert (await served.http.get("/rooms/kitchen/settlements")).json() == [told]
        assert await served.until("/rooms/kitchen/events", "settlement") == told


async def test_a_list_of_rooms_has_old_turns_until_the_room_has_one_of_its_own() -> None:
    async with recovering() as served:
        await served.until("/events", "settlement")
        state = await served.state("kitchen")
        assert state["recovered"] == [{"turn_id": "bread", "ending": "stopped"}]
        assert _standing(state) == "idle, bread of a process that is gone: STOPPED"
        await served.say("kitchen", "and now?")
        await served.until("/rooms/kitchen/events", "message", state="handled")
        assert (await served.state("kitchen"))["recovered"] == []


async def test_a_terminal_that_watches_is_told_whose_turn_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with recovering() as served:
        told = await served.until("/events", "settlement")
    Shower().show("settlement", told)
    line = capsys.readouterr().out
    assert line.startswith("kitchen: settlement bread of a process that is gone: STOPPED sent ")


@pytest.mark.parametrize(("tells", "warnings"), [(True, 0), (False, 1)])
async def test_only_of_work_that_may_be_alive_an_operator_is_warned(
    tells: bool, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnstop.server")
    async with recovering(tells=tells) as served:
        await served.until("/events", "settlement", turn_id="bread")
    records = [one for one in caplog.records if one.name == "turnstop.server"]
    assert sum(one.levelno == logging.WARNING for one in records) == warnings
    assert any("bread of a process that is gone has settled" in one.message for one in records)


async def test_the_page_shows_an_old_turn_and_how_it_has_settled(tmp_path: Path) -> None:
    find_chromium()
    async with recovering(tells=False) as served:
        await served.until("/events", "settlement")
        url = f"{served.server.url}/#token={TOKEN}"
        async with open_page(url, tmp_path) as page:
            await page.until("document.querySelector('.ending.unconfirmed')")
            turn = await page.text(".turn")
            assert "bread" in turn
            assert "left by a process that is gone" in turn
            assert await page.text("#title") == "kitchen"
            assert page.logs == []
