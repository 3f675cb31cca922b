"""One stream of events for many listeners: who hears what, and what a break looks like."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio

from turnstop import BackendLost, BackendMisbehaved, BackendRefused
from turnstop.transports.backlog import MAX_UNREAD
from turnstop.transports.eventstream import Gap, Patience, open_event_stream
from turnstop.transports.sse import ServerEvent

PATIENCE = Patience(first=0.1, longest=1.0, total=10.0, silence=30.0)


class Chunks:
    def __init__(self, channel: trio.MemoryReceiveChannel[bytes | Exception]) -> None:
        self.channel = channel

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            found = await self.channel.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(found, Exception):
            raise found
        return found


@attrs.define
class Server:
    """Each connection greets, and says what it is given."""

    opened: list[float] = attrs.field(factory=list)
    fails: Exception | None = None
    silent: bool = False
    opens: bool = True
    falls: bool = False
    sides: list[trio.MemorySendChannel[bytes | Exception]] = attrs.field(factory=list)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[AsyncIterable[bytes], None]:
        await trio.lowlevel.checkpoint()
        self.opened.append(trio.current_time())
        if self.fails is not None:
            raise self.fails
        if not self.opens:
            await trio.sleep_forever()
        send, receive = trio.open_memory_channel[bytes | Exception](math.inf)
        self.sides.append(send)
        if not self.silent:
            self.say("", "hello")
        if self.falls:
            send.send_nowait(BackendLost("broken"))
        with send, receive:
            yield Chunks(receive)

    def say(self, key: str, what: Any) -> None:
        self.sides[-1].send_nowait(b"data: " + json.dumps([key, what]).encode() + b"\n\n")

    def raw(self, what: bytes | Exception) -> None:
        self.sides[-1].send_nowait(what)


def sort(event: ServerEvent) -> tuple[list[str], Any]:
    key, what = json.loads(event.data)
    return [key.strip()], what


async def test_each_listener_hears_of_its_keys_in_order_and_once(autojump_clock: object) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        one, two = stream.listen("one"), stream.listen("two")
        one.also("both")
        two.also("both")
        for key, what in (("one", 1), ("two", 2), ("both", 3), ("nobody", 4), ("one", 5)):
            server.say(key, what)
        assert [await one.receive() for _ in range(3)] == [1, 3, 5]
        assert [await two.receive() for _ in range(2)] == [2, 3]
        assert await two.receive_within(1.0) is None


async def test_a_closed_listener_hears_no_more_and_keeps_what_it_has(
    autojump_clock: object,
) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        listener, other = stream.listen("one"), stream.listen("one")
        listener.also("both")
        server.say("one", 1)
        await trio.sleep(0.1)
        listener.close()
        listener.close()
        for key in ("both", "one"):
            server.say(key, 2)
        assert [await other.receive() for _ in range(2)] == [1, 2]
        assert await listener.receive() == 1
        with pytest.raises(BackendLost, match="listener is closed"):
            await listener.receive()
        other.close()
        assert not stream._listeners


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("end", "stream of events ended"),
        ("break", "broken"),
        ("garbage", "no event: 'lorem ipsum'"),
        ("nonsense", "no event: '7'"),
        ("shape", "no event: '{}'"),
        ("nested", "no event: '[[[["),
        ("attribute", "no event: '[7, 7]'"),
        ("silence", "stream of events was silent for 30 s"),
    ],
)
async def test_a_stream_that_breaks_is_taken_up_and_everybody_is_told(
    how: str, why: str, autojump_clock: object
) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        listeners = [stream.listen("one"), stream.listen("two")]
        server.say("one", "before")
        breaks: dict[str, Callable[[], None]] = {
            "end": lambda: server.sides[-1].close(),
            "break": lambda: server.raw(BackendLost("broken")),
            "garbage": lambda: server.raw(b"data: lorem ipsum\n\n"),
            "nonsense": lambda: server.raw(b"data: 7\n\n"),
            "shape": lambda: server.raw(b"data: {}\n\n"),
            "nested": lambda: server.raw(b"data: " + b"[" * 100_000 + b"\n\n"),
            "attribute": lambda: server.raw(b"data: [7, 7]\n\n"),
            "silence": lambda: None,
        }
        breaks[how]()
        await trio.sleep(35.0 if how == "silence" else 1.0)
        server.say("one", "after")
        heard = [await listeners[0].receive() for _ in range(3)]
        assert heard == ["before", Gap(), "after"]
        assert await listeners[1].receive() == Gap()
        assert not stream.broken.is_set()
        assert why in str(stream.why)


async def test_a_heartbeat_is_no_silence(autojump_clock: object) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        for _ in range(10):
            await trio.sleep(20.0)
            server.raw(b": still here\n\n")
        assert len(server.opened) == 1
        assert stream.why is None


async def test_one_that_does_not_open_again_is_lost(autojump_clock: object) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        server.opens = False
        server.raw(BackendLost("broken"))
        began = trio.current_time()
        await stream.broken.wait()
        assert trio.current_time() - began == pytest.approx(30.1)
        assert "silent for 30 s" in str(stream.why)


async def test_the_first_declaration_of_a_loss_stands(autojump_clock: object) -> None:
    async with open_event_stream(Server().connect, sort, patience=PATIENCE) as stream:
        listener = stream.listen("one")
        for why in ("first", "second"):
            stream.declare_lost(lambda why=why: BackendLost(why))
            assert stream.broken.is_set()
        with pytest.raises(BackendLost, match="first"):
            await listener.receive()


async def test_the_gap_is_told_when_the_next_stream_speaks_and_not_before(
    autojump_clock: object,
) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        listener = stream.listen("one")
        server.silent = True
        server.raw(BackendLost("broken"))
        await trio.sleep(5.0)
        assert len(server.opened) == 2
        assert await listener.receive_within(1.0) is None
        server.say("", "hello")
        assert await listener.receive_within(1.0) == Gap()


async def test_a_server_that_stays_away_is_tried_less_and_less_and_then_lost(
    autojump_clock: object,
) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        listener = stream.listen("one")
        server.fails = BackendRefused("nobody there")
        server.raw(BackendLost("broken"))
        await stream.broken.wait()
        tries = [later - sooner for sooner, later in pairwise(server.opened)]
        assert tries[1:5] == pytest.approx([0.2, 0.4, 0.8, 1.0])
        assert 10.0 <= server.opened[-1] - server.opened[0] <= 11.1
        # Its owner may know more: until then nobody is told.
        assert await listener.receive_within(1.0) is None
        stream.declare_lost(lambda: BackendLost("it is gone", gone=True))
        with pytest.raises(BackendLost, match="it is gone"):
            await listener.receive()
        with pytest.raises(BackendLost, match="it is gone"):
            await stream.listen("late").receive()


async def test_patience_begins_anew_with_each_stream_that_speaks(autojump_clock: object) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        for _ in range(30):
            await trio.sleep(1.1)
            server.raw(BackendLost("broken"))
        await trio.sleep(1.0)
        assert not stream.broken.is_set()
        assert len(server.opened) == 31


async def test_streams_that_greet_and_fall_are_tried_less_and_less_and_then_lost(
    autojump_clock: object,
) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        server.falls = True
        server.raw(BackendLost("broken"))
        with trio.fail_after(60.0):
            await stream.broken.wait()
        assert len(server.opened) <= 16
        assert 10.0 <= server.opened[-1] - server.opened[0] <= 12.0


async def test_what_nobody_reads_is_kept_up_to_a_bound_and_then_a_gap(
    autojump_clock: object,
) -> None:
    server = Server()
    async with open_event_stream(server.connect, sort, patience=PATIENCE) as stream:
        listener = stream.listen("one")
        for number in range(MAX_UNREAD):
            server.say("one", number)
        await trio.sleep(0.1)
        assert len(listener._unread) == MAX_UNREAD
        server.say("one", "next")
        await trio.sleep(0.1)
        assert [await listener.receive() for _ in range(2)] == [Gap(), "next"]
        assert await listener.receive_within(1.0) is None
        assert stream.why is None


async def test_a_first_stream_that_cannot_be_opened_is_told_at_once(
    autojump_clock: object,
) -> None:
    server = Server(fails=BackendRefused("nobody there"))
    with pytest.raises(BackendRefused, match="nobody there"):
        async with open_event_stream(server.connect, sort):
            raise AssertionError("unreachable")
    assert len(server.opened) == 1


async def test_a_first_stream_that_says_nothing_is_told(autojump_clock: object) -> None:
    began = trio.current_time()
    with pytest.raises(BackendLost, match="said nothing for 5 s"):
        async with open_event_stream(Server(silent=True).connect, sort, within=5.0):
            raise AssertionError("unreachable")
    assert trio.current_time() - began == pytest.approx(5.0)


async def test_a_first_stream_of_garbage_is_told(autojump_clock: object) -> None:
    server = Server(silent=True)

    async def babble() -> None:
        await trio.sleep(0.1)
        server.raw(b"data: lorem ipsum\n\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(babble)
        with pytest.raises(BackendMisbehaved, match="lorem ipsum"):
            async with open_event_stream(server.connect, sort):
                raise AssertionError("unreachable")


async def test_it_is_read_until_the_body_has_left(autojump_clock: object) -> None:
    server = Server()
    with trio.move_on_after(1.0):
        async with open_event_stream(server.connect, sort) as stream:
            listener = stream.listen("one")
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    server.say("one", "late")
                    assert await listener.receive() == "late"
