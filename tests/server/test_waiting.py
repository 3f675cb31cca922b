"""A command waits until turns are settled, whatever else a server has to do."""

from __future__ import annotations

import json
import socket
import threading
from functools import partial
from typing import Any

import attrs
import click
import httpx2
import pytest
import trio
from servers import SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work
from turnstop.cli.client.following import wait_settled
from turnstop.cli.client.remote import Remote, Unreachable
from turnstop.events import Text


async def talk(work: Work) -> None:
    """Says so many words, and ends where it is told so."""
    count, _, end = str(work.content).partition(" ")
    for number in range(int(count)):
        work.emit(Text(f"{number} "))
    if not end:
        await trio.sleep_forever()


async def waited(served: Served, found: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=served.server.url, headers=headers, trust_env=False) as http:
        wait = partial(wait_settled, Remote(http), found)
        return await trio.to_thread.run_sync(wait, abandon_on_cancel=True)


async def test_whoever_waits_is_given_each_settlement_once() -> None:
    async with serving(talk) as served:
        for number in range(5):
            await served.say(f"r{number}", "1")
            await served.until(f"/rooms/r{number}/events", "text")
        found = (await served.post("/stop")).json()
        settled = await waited(served, found)
        assert sorted(one["turn_id"] for one in settled) == sorted(found["turn_ids"])
        assert {one["ending"] for one in settled} == {"stopped"}
        assert sorted(one["room"] for one in settled) == [f"r{number}" for number in range(5)]


async def test_rooms_that_do_nothing_are_not_asked() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, rate=1.0, burst=250)) as served:
        for number in range(200):
            await served.say(f"r{number}", "1 end")
        await served.say("kitchen", "1")
        await served.until("/rooms/kitchen/events", "text")
        found = (await served.post("/stop")).json()
        assert len(found["rooms"]) == 201
        settled = await waited(served, found)
        assert "kitchen" in [one["room"] for one in settled]


async def test_a_settlement_that_is_not_in_the_stream_any_more_is_asked_for() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, all_events=3)) as served:
        await served.say("kitchen", "1")
        await served.until("/rooms/kitchen/events", "text")
        found = await served.press("kitchen", "stop")
        await served.until("/rooms/kitchen/events", "settlement")
        await served.say("other", "1 end")
        await served.until("/rooms/other/events", "message", state="handled")
        (one,) = await waited(served, found)
        assert (one["turn_id"], one["ending"]) == (found["turn_ids"][0], "stopped")


async def test_what_is_not_known_any_more_is_said_and_not_waited_for() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, all_events=3, rooms=1)) as served:
        await served.say("kitchen", "1")
        await served.until("/rooms/kitchen/events", "text")
        found = await served.press("kitchen", "interrupt")
        await served.until("/rooms/kitchen/events", "message", state="handled")
        with trio.fail_after(10):
            while True:
                response = await served.post("/rooms/other/messages", content="1 end")
                if response.status_code == 202:
                    break
                await trio.sleep(0.01)
        await served.until("/rooms/other/events", "message", state="handled")
        with pytest.raises(click.ClickException, match="is not known here"):
            await waited(served, found)


async def test_who_is_told_to_try_again_later_does() -> None:
    settings = attrs.evolve(SETTINGS, rate=2.0, burst=4)
    async with serving(talk, settings) as served:
        await served.say("kitchen", "1")
        await served.until("/events", "text")
        found = await served.press("kitchen", "stop")
        while (await served.http.get("/rooms")).status_code == 200:
            pass
        (one,) = await waited(served, found)
        assert one["ending"] == "stopped"


async def test_a_server_that_ends_first_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            stream, _ = listener.accept()
            with stream:
                stream.recv(10_000)
                data = json.dumps({"turn_id": "other"}).encode()
                event = b"id: e-2\nevent: settlement\ndata: " + data + b"\n\n"
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(event)
                stream.sendall(head + event)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        found = {"turn_ids": ["t1"], "rooms": ["kitchen"], "last_event_id": "e-1"}
        with httpx2.Client(base_url=url, trust_env=False) as http:
            with pytest.raises(Unreachable, match="ended before t1"):
                await trio.to_thread.run_sync(wait_settled, Remote(http), found)
        thread.join()
