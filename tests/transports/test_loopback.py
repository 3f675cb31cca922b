"""A program's pipes at a port: for one client of ours, and to the end of either."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from turnstop.transports import loopback as transport
from turnstop.transports.framed import MessageSplitter, frame
from turnstop.transports.loopback import Loopback, open_loopback
from turnstop.transports.process import ChildProcess, Grace, open_process

GRACE = Grace(close=0.2, terminate=0.5, kill=1.0)
# Says each message again, until one tells it what else to do.
ECHO = """
import json, os, sys
while True:
    length = int(sys.stdin.buffer.readline().split(b":")[1])
    sys.stdin.buffer.readline()
    body = sys.stdin.buffer.read(length)
    do = json.loads(body).get("do")
    if do == "babble":
        os.write(1, b"Segmentation fault\\n")
    elif do == "close":
        import time
        os.close(1)
        time.sleep(300)
    elif do == "exit":
        sys.stderr.write("no more memory")
        sys.exit(3)
    elif do == "fork" and os.fork() == 0:
        import time
        time.sleep(300)
    elif do == "fork":
        os._exit(0)
    elif do == "leave a word" and os.fork() == 0:
        import time
        time.sleep(0.1)
        os.write(1, b'Content-Length: 14\\r\\n\\r\\n{"last": true}')
        os._exit(0)
    elif do == "leave a word":
        os._exit(0)
    else:
        os.write(1, b"Content-Length: %d\\r\\n\\r\\n%b" % (length, body))
"""


class Client:
    """Somebody at the port."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.splitter = MessageSplitter()

    async def say(self, message: dict[str, Any], *, apart: bool = False) -> None:
        data = frame(message)
        cut = data.index(b"{") if apart else 0
        for part in (data[:cut], data[cut:]):
            if part:
                await self.stream.send_all(part)

    async def hear(self) -> dict[str, Any] | None:
        with suppress(trio.BrokenResourceError):
            while chunk := await self.stream.receive_some():
                for message in self.splitter.feed(chunk):
                    return message
        return None


@asynccontextmanager
async def loopback(tap: Any = None) -> AsyncGenerator[tuple[Loopback, ChildProcess], None]:
    with trio.fail_after(15.0):
        async with open_process([sys.executable, "-c", ECHO], name="echo", grace=GRACE) as process:
            async with open_loopback(process, *([tap] if tap else [])) as found:
                yield found, process


async def connected(found: Loopback, token: str | None = None) -> Client:
    client = Client(await trio.open_tcp_stream("127.0.0.1", found.port))
    params = {"token": found.token if token is None else token, "other": 1}
    await client.say({"method": "connect", "params": params})
    return client


async def test_what_is_said_goes_by_and_the_token_stays_here() -> None:
    seen: list[tuple[str, object]] = []
    async with loopback(lambda direction, message: seen.append((direction, message))) as (found, _):
        client = await connected(found)
        greeting = {"method": "connect", "params": {"other": 1}}
        assert await client.hear() == greeting
        await client.say({"id": 1}, apart=True)
        assert await client.hear() == {"id": 1}
        assert seen == [("->", greeting), ("<-", greeting), ("->", {"id": 1}), ("<-", {"id": 1})]
        assert not found.broken.is_set()
        await client.stream.aclose()


async def test_a_header_and_a_body_apart_take_no_time() -> None:
    """Held back until the header was acknowledged, each of these would take 40 ms."""
    async with loopback() as (found, _):
        client = await connected(found)
        await client.hear()
        client.stream.setsockopt(6, 1, 0)  # TCP_NODELAY, which the SDK leaves as it is
        took = []
        for number in range(20):
            begin = trio.current_time()
            await client.say({"id": number}, apart=True)
            assert await client.hear() == {"id": number}
            took.append(trio.current_time() - begin)
        if sys.platform == "linux":
            assert sorted(took)[10] < 0.02
        await client.stream.aclose()


async def test_where_the_system_acknowledges_when_it_likes_it_goes_by_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_QUICK", None)
    async with loopback() as (found, _):
        client = await connected(found)
        assert await client.hear() == {"method": "connect", "params": {"other": 1}}
        await client.stream.aclose()


async def test_nobody_else_is_let_in() -> None:
    async with loopback() as (found, _):
        for token in ("", "guess", "naïve"):
            stranger = await connected(found, token)
            assert await stranger.hear() is None
            await stranger.stream.aclose()
        mute = await trio.open_tcp_stream("127.0.0.1", found.port)
        await mute.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert await mute.receive_some() == b""
        await mute.aclose()
        greeting = frame({"method": "connect", "params": {"token": found.token}})
        for more in (greeting, b"Content-"):
            hasty = Client(await trio.open_tcp_stream("127.0.0.1", found.port))
            await hasty.stream.send_all(greeting + more)
            assert await hasty.hear() is None
            await hasty.stream.aclose()
        client = await connected(found)
        assert await client.hear() is not None
        with pytest.raises(OSError, match=r"refused|connect"):
            await trio.open_tcp_stream("127.0.0.1", found.port)
        await client.stream.aclose()


async def test_no_stranger_ends_it() -> None:
    """Any user of the machine reaches the port."""
    async with loopback() as (found, _):
        stranger = await trio.open_tcp_stream("127.0.0.1", found.port)
        nested = b"[" * 60_000
        await stranger.send_all(b"Content-Length: %d\r\n\r\n%b" % (len(nested), nested))
        assert await stranger.receive_some() == b""
        await stranger.aclose()
        talker = await trio.open_tcp_stream("127.0.0.1", found.port)
        await talker.send_all(b"Content-Length: 100000000\r\n\r\n")
        assert await talker.receive_some() == b""
        await talker.aclose()
        client = await connected(found)
        assert await client.hear() is not None
        assert not found.broken.is_set()
        await client.stream.aclose()


async def test_strangers_who_say_nothing_hold_nobody_up() -> None:
    async with loopback() as (found, _):
        mute = [await trio.open_tcp_stream("127.0.0.1", found.port) for _ in range(40)]
        begin = trio.current_time()
        client = await connected(found)
        assert await client.hear() is not None
        assert trio.current_time() - begin < 2.0
        for stranger in mute:
            with suppress(trio.BrokenResourceError):
                assert await stranger.receive_some() == b""
            await stranger.aclose()
        await client.stream.aclose()


async def test_of_many_strangers_the_first_are_turned_away_whoever_was_before() -> None:
    async with loopback() as (found, _):
        for _number in range(33):
            stranger = await trio.open_tcp_stream("127.0.0.1", found.port)
            await stranger.send_all(b"GET / HTTP/1.1\r\n\r\n")
            assert await stranger.receive_some() == b""
            await stranger.aclose()
        mute = [await trio.open_tcp_stream("127.0.0.1", found.port) for _ in range(40)]
        # Before their time is over, which is later.
        with trio.fail_after(3.0):
            for stranger in mute[:8]:
                assert await stranger.receive_some() == b""
        for stranger in mute:
            await stranger.aclose()


async def test_one_that_is_turned_away_while_it_proves_itself_is_not_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive, late, held = transport._receive, trio.Event(), trio.Event()

    async def slow(stream: trio.SocketStream) -> bytes:
        chunk = await receive(stream)
        if chunk and not held.is_set():
            held.set()
            await late.wait()
        return chunk

    monkeypatch.setattr(transport, "_receive", slow)
    async with loopback() as (found, _):
        first = await connected(found)
        await held.wait()
        mute = [await trio.open_tcp_stream("127.0.0.1", found.port) for _ in range(32)]
        assert await first.hear() is None
        late.set()
        client = await connected(found)
        assert await client.hear() is not None
        assert not found.broken.is_set()
        for stream in (*mute, first.stream, client.stream):
            await stream.aclose()


async def test_the_door_survives_that_no_file_may_be_opened(
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    accept, failed, full = trio.SocketListener.accept, list[int](), True

    async def no_more(listener: trio.SocketListener) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        if full:
            failed.append(errno.EMFILE)
            raise OSError(errno.EMFILE, "no more files")
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", no_more)
    async with loopback() as (found, _):
        while not failed:
            await trio.lowlevel.checkpoint()
        # It takes a breath before it tries again.
        for _pass in range(20):
            await trio.lowlevel.checkpoint()
        assert len(failed) == 1
        full = False
        mock_clock.jump(1.0)
        client = await connected(found)
        assert await client.hear() is not None
        await client.stream.aclose()


async def test_garbage_is_told_and_ends_it() -> None:
    async with loopback() as (found, _):
        client = await connected(found)
        await client.hear()
        await client.say({"do": "babble"})
        await found.broken.wait()
        assert "it wrote what is no message: 'Segmentation fault'" in str(found.loss())
        assert found.loss().__cause__ is found.why
        assert await client.hear() is None
        await client.stream.aclose()


async def test_the_programs_end_is_told_with_its_last_words() -> None:
    async with loopback() as (found, process):
        client = await connected(found)
        await client.hear()
        await client.say({"do": "exit"})
        await found.broken.wait()
        await process.wait()
        loss = found.loss()
        assert loss.gone
        assert str(loss).endswith("exited with status 3; its stderr ends: no more memory")
        assert await client.hear() is None
        await client.stream.aclose()


async def test_a_program_that_only_closes_its_stdout_is_lost() -> None:
    async with loopback() as (found, process):
        client = await connected(found)
        await client.hear()
        await client.say({"do": "close"})
        await found.broken.wait()
        assert process.returncode is None
        await client.stream.aclose()
    assert found.loss().gone
    assert "it had closed its stdout and went on" in str(found.loss())


async def test_an_exit_is_seen_behind_a_child_that_holds_the_pipes() -> None:
    async with loopback() as (found, process):
        client = await connected(found)
        await client.hear()
        await client.say({"do": "fork"})
        await found.broken.wait()
        assert process.returncode == 0
        await client.stream.aclose()
        if sys.platform == "linux":
            return
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def slow_clock() -> MockClock:
    """So that what may take a moment may take it on a busy machine too."""
    return MockClock(rate=0.02)


async def test_what_is_said_a_moment_after_the_exit_is_handed_on_before_the_end_is_told(
    slow_clock: MockClock,
) -> None:
    seen: list[tuple[str, object]] = []
    async with loopback(lambda direction, message: seen.append((direction, message))) as (found, _):
        client = await connected(found)
        await client.hear()
        await client.say({"do": "leave a word"})
        await found.broken.wait()
        assert seen[-1] == ("<-", {"last": True})
        assert await client.hear() == {"last": True}
        await client.stream.aclose()


async def test_it_lasts_while_the_program_runs(mock_clock: MockClock) -> None:
    async with loopback() as (found, _):
        client = await connected(found)
        await client.hear()
        mock_clock.jump(10.0)
        await client.say({"id": 1})
        assert await client.hear() == {"id": 1}
        assert not found.broken.is_set()
        await client.stream.aclose()


async def test_what_the_program_does_not_take_has_not_gone_by() -> None:
    seen: list[object] = []
    async with open_process([sys.executable, "-c", ""], name="none", grace=GRACE) as process:
        await process.wait()
        async with open_loopback(process, lambda *said: seen.append(said)) as found:
            client = await connected(found)
            assert await client.hear() is None
            await client.stream.aclose()
    assert seen == []


async def test_a_client_that_leaves_is_told() -> None:
    async with loopback() as (found, process):
        client = await connected(found)
        await client.stream.aclose()
        await found.broken.wait()
        assert process.returncode is None
        assert not found.loss().gone
