"""Streams of events: taken up again, bounded, and in nobody's way."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from servers import HEADERS, SETTINGS, serving

from turnstop import StopBudget
from turnstop.adapters.local import Work
from turnstop.events import Text, ToolCall
from turnstop.feeds import MemoryFeed
from turnstop.server._ring import Record, Ring
from turnstop.server._stream import EventResponse, Streams, place_of


async def count(work: Work) -> None:
    """Counts as far as it is told to, and then does nothing more."""
    for number in range(int(str(work.content))):
        work.emit(ToolCall(str(number), "count", "running"))
        await trio.lowlevel.checkpoint()
    await trio.sleep_forever()


async def flood(work: Work) -> None:
    """Says far more than any connection holds, until it is stopped."""
    while True:
        work.emit(ToolCall("t", "shell", "running", "x" * 10_000))
        await trio.sleep(0.0005)


async def test_a_stream_goes_on_behind_the_event_that_was_heard_last() -> None:
    async with serving(count) as served:
        await served.say("kitchen", "20")
        heard = []
        async with served.events("/rooms/kitchen/events") as events:
            async for id, kind, data in events:
                heard.append((id, data.get("id")))
                if kind == "tool_call" and data["id"] == "9":
                    break
        async with served.events("/rooms/kitchen/events", after=heard[-1][0]) as events:
            async for id, kind, data in events:
                heard.append((id, data.get("id")))
                if kind == "tool_call" and data["id"] == "19":
                    break
        assert len({id for id, _ in heard}) == len(heard)
        assert [name for _, name in heard][-20:] == [str(number) for number in range(20)]


async def test_whoever_missed_what_is_not_kept_is_told_of_a_gap() -> None:
    async with serving(count, attrs.evolve(SETTINGS, room_events=5)) as served:
        await served.say("kitchen", "3")
        first = ""
        async with served.events("/rooms/kitchen/events") as events:
            first, _, _ = await events.receive()
        await served.say("kitchen", "30")
        await served.press("kitchen", "interrupt")
        await served.until("/rooms/kitchen/events", "tool_call", id="29")
        async with served.events("/rooms/kitchen/events", after=first) as events:
            kinds = [(await events.receive())[1] for _ in range(6)]
        assert kinds == ["gap", *["tool_call"] * 5]


async def test_an_id_of_another_server_is_a_gap_and_then_all_that_is_kept() -> None:
    async with serving(count) as served:
        await served.say("kitchen", "1")
        await served.until("/events", "tool_call")
        for stranger in ("0badf00d-1", "nonsense", "-", "-1"):
            async with served.events("/events", after=stranger) as events:
                kinds = [(await events.receive())[1] for _ in range(3)]
            assert kinds == ["gap", "message", "message"]


async def test_an_id_from_before_all_that_is_kept_and_one_from_the_future_are_gaps() -> None:
    async with serving(count, attrs.evolve(SETTINGS, room_events=3)) as served:
        await served.say("kitchen", "5")
        await served.until("/rooms/kitchen/events", "tool_call", id="4")
        async with served.events("/rooms/kitchen/events") as events:
            id, kind, _ = await events.receive()
            assert kind == "tool_call"
        epoch = id.rpartition("-")[0]
        for place in ("0", "1", "999999"):
            async with served.events("/rooms/kitchen/events", after=f"{epoch}-{place}") as events:
                with trio.fail_after(5):
                    kinds = [(await events.receive())[1] for _ in range(4)]
            assert kinds == ["gap", *["tool_call"] * 3]


async def test_where_nothing_was_lost_yet_the_beginning_is_no_gap() -> None:
    ring, sent = Ring(most=10, most_bytes=1000), list[bytes]()
    ring.add(Record(1, "text", "{}"))
    ring.close()
    await respond(EventResponse(ring, "e", 0, 15, Streams()), sent)
    assert b"".join(sent) == b": turnstop\n\nid: e-1\nevent: text\ndata: {}\n\n"


async def respond(response: EventResponse, sent: list[bytes], pause: float = 0) -> None:
    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"])
            await trio.sleep(pause)

    await response({"type": "http", "method": "GET"}, trio.sleep_forever, send)


async def test_whoever_does_not_read_is_held_a_little_of_the_ring_and_not_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ring, sent = Ring(most=1000, most_bytes=4 * 2**20), list[bytes]()
    for number in range(1, 401):
        ring.add(Record(number, "text", "x" * 10_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond, EventResponse(ring, "e", None, 15, Streams()), sent, 1.0)
        await trio.sleep(3.5)
        # What is not taken yet is lost for it, as for one that comes later.
        for number in range(401, 1401):
            ring.add(Record(number, "text", "y"))
        ring.close()
    assert max(map(len, sent)) < 80_000
    assert sum(chunk.count(b"event: gap") for chunk in sent) == 1
    assert b"".join(sent).count(b"data: y") == 1000


@pytest.mark.parametrize("path", ["/events", "/rooms/kitchen/events"])
async def test_head_of_a_stream_is_answered_and_its_connection_goes_on(path: str) -> None:
    async with serving(count, attrs.evolve(SETTINGS, streams=1)) as served:
        await served.say("kitchen", "1")
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            for head in (f"HEAD {path}", f"HEAD {path}", "GET /rooms"):
                await stream.send_all(f"{head} HTTP/1.1\r\n{HEADERS}\r\n".encode())
                with trio.fail_after(5):
                    raw = await stream.receive_some()
                assert raw.startswith(b"HTTP/1.1 200")
                if "HEAD" in head:
                    assert b"text/event-stream" in raw
                    assert b"turnstop" not in raw


def test_a_place_is_only_taken_from_an_id_of_this_server() -> None:
    assert place_of("", "e", 9) is None
    assert place_of("e-0", "e", 9) == 0
    assert place_of("e-9", "e", 9) == 9
    for stranger in ("e-10", "f-7", "e-\u0667", "e-", "-7", "7", "e-" + "9" * 5000):
        assert place_of(stranger, "e", 9) == -1


def test_a_ring_keeps_the_latest_and_knows_what_it_lost() -> None:
    ring = Ring(most=3, most_bytes=1000)
    for number in range(1, 6):
        ring.add(Record(number, "text", "{}"))
    assert [one.number for one in ring.after(0, 1000)] == [3, 4, 5]
    assert (ring.lost, ring.latest) == (2, 5)
    assert [one.number for one in ring.after(4, 1000)] == [5]
    ring.add(Record(6, "text", "x" * 5000))
    assert [one.number for one in ring.after(0, 1000)] == [6]
    assert (ring.lost, ring.latest) == (5, 6)
    assert (Ring(3, 1000).latest, Ring(3, 1000, lost=7).latest) == (0, 7)


def test_a_ring_is_read_a_little_at_a_time() -> None:
    ring, heard = Ring(most=100, most_bytes=100_000), list[list[int]]()
    for number, size in enumerate((10, 10, 10, 500, 10), 1):
        ring.add(Record(number, "text", "x" * size))
    while found := ring.after(heard[-1][-1] if heard else 0, 25):
        heard.append([one.number for one in found])
    assert heard == [[1, 2], [3], [4], [5]]


async def test_whoever_does_not_read_slows_no_stop_and_holds_only_so_much() -> None:
    settings = attrs.evolve(SETTINGS, room_bytes=100_000, all_bytes=200_000)
    async with serving(flood, settings) as served:
        await served.say("kitchen", "go")
        await served.until("/events", "tool_call")
        host, port = served.server.url.removeprefix("http://").split(":")
        silent = []
        for path in ("/events", "/rooms/kitchen/events") * 5:
            stream = await trio.open_tcp_stream(host, int(port))
            head = f"GET {path} HTTP/1.1\r\n{HEADERS}\r\n"
            await stream.send_all(head.encode())
            silent.append(stream)
        await trio.sleep(1)  # for the connections to fill up
        begun = trio.current_time()
        await served.press("kitchen", "stop")
        took = trio.current_time() - begun
        (settlement,) = (await served.http.get("/rooms/kitchen/settlements")).json() or [
            await served.until("/rooms/kitchen/events", "settlement")
        ]
        assert settlement["ending"] == "stopped"
        assert settlement["sent_at"] - settlement["asked_at"] < 0.25
        assert took < 1
        for stream in silent:
            await stream.aclose()


async def test_there_are_only_so_many_streams_and_one_that_is_left_makes_place() -> None:
    async with serving(count, attrs.evolve(SETTINGS, streams=1)) as served:
        async with served.events("/events"):
            assert (await served.http.get("/events")).status_code == 429
        with trio.fail_after(10):
            while True:
                async with served.http.stream("GET", "/events") as response:
                    if response.status_code == 200:
                        return
                await trio.sleep(0.01)


async def test_a_silent_stream_says_that_it_is_there() -> None:
    async with serving(count, attrs.evolve(SETTINGS, heartbeat=0.05)) as served:
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"GET /events HTTP/1.1\r\n{HEADERS}\r\n"
            await stream.send_all(head.encode())
            raw = b""
            while raw.count(b": \n\n") < 3:
                raw += await stream.receive_some()


async def test_at_the_end_who_listens_hears_how_the_turns_ended_and_messages_stay() -> None:
    feed, kinds = MemoryFeed(), []
    with trio.fail_after(20):
        await hear_the_end(feed, kinds)
    assert ("settlement", "stopped") in kinds
    assert kinds[-1] == ("message", "waiting")
    assert [message.content for message in feed.unfinished("kitchen")] == ["2", "3"]


async def hear_the_end(feed: MemoryFeed, kinds: list[tuple[str, str]]) -> None:
    async with trio.open_nursery() as nursery:
        closing = trio.Event()

        async def serve(task_status: trio.TaskStatus) -> None:
            settings = attrs.evolve(SETTINGS, close_within=50)
            async with serving(count, settings, feed) as served:
                task_status.started(served)
                await closing.wait()

        served = await nursery.start(serve)
        await served.say("kitchen", "2")
        await served.say("kitchen", "3")
        # A client of its own: the other is closed before its server.
        async with type(served.http)(
            base_url=served.server.url, headers=served.http.headers, trust_env=False
        ) as http:
            async with attrs.evolve(served, http=http).events("/events") as events:
                async for _, kind, data in events:
                    kinds.append((kind, data.get("state") or data.get("ending")))
                    if kind == "tool_call" and data["id"] == "1":
                        closing.set()


async def test_a_turn_that_does_not_end_is_settled_within_the_budget_and_said_so() -> None:
    async def refuses(work: Work) -> None:
        work.emit(Text("no"))
        with trio.CancelScope(shield=True):
            await trio.sleep(1.5)

    async with serving(refuses, budget=StopBudget(cancel_within=0.2, kill_within=0.2)) as served:
        await served.say("kitchen", "x")
        await served.until("/events", "text")
        await served.press("kitchen", "stop")
        settlement = await served.until("/events", "settlement")
        assert settlement["ending"] == "unconfirmed"
        assert not settlement["clean"]
        assert (await served.http.get("/health")).json()["stragglers"] >= 1
