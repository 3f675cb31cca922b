"""What a killed server has left is told of in its room, and to who listens."""

from __future__ import annotations

import logging

import pytest
from servers import recovering

from turnstop.cli.client.listing import _standing
from turnstop.cli.client.showing import Shower


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
