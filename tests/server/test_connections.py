"""Connections: whoever holds one, the server ends, answers others, and holds only so much."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import h2.connection
import httpx2
import pytest
import trio
from servers import HEADERS, SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work
from turnstop.events import ToolCall
from turnstop.server._connections import Connection


async def flood(work: Work) -> None:
    """Says far more than any connection holds."""
    for number in range(400):
        work.emit(ToolCall(str(number), "shell", "running", "x" * 10_000))
        await trio.lowlevel.checkpoint()


async def idle(work: Work) -> None:
    """Does nothing."""


def open_socket(served: Served) -> socket.socket:
    host, port = served.server.url.removeprefix("http://").split(":")
    one = socket.socket()
    # Little fits in between: what is not read soon stands still.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((host, int(port)))
    one.setblocking(False)
    return one


@attrs.define
class Silent:
    """Clients that ask, and never read an answer.

    They leave after some seconds, so that a server that waits for them is found to be at fault,
    instead of never.
    """

    late: bool = False
    sockets: list[socket.socket] = attrs.field(factory=list)

    async def ask(self, served: Served, path: str) -> socket.socket:
        one = open_socket(served)
        self.sockets.append(one)
        one.send(f"GET {path} HTTP/1.1\r\n{HEADERS}\r\n".encode())
        return one

    async def ask_without_token(self, served: Served) -> None:
        one = open_socket(served)
        self.sockets.append(one)
        for _ in range(40):
            with suppress(OSError):
                one.send(b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            await trio.sleep(0.02)

    def close(self) -> None:
        for one in self.sockets:
            one.close()

    async def give_up(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.late = True
        self.close()


@asynccontextmanager
async def silent_clients(seconds: float = 10) -> AsyncGenerator[Silent, None]:
    silent = Silent()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(silent.give_up, seconds)
            yield silent
            nursery.cancel_scope.cancel()
    finally:
        silent.close()
    assert not silent.late, "the server waited for who did not read"


async def fill(silent: Silent, served: Served) -> None:
    await served.say("kitchen", "go")
    await served.until("/rooms/kitchen/events", "settlement")
    await silent.ask(served, "/events")
    await silent.ask(served, "/rooms/kitchen/events")
    await silent.ask_without_token(served)
    await trio.sleep(0.5)  # for the connections to fill up


async def test_the_server_ends_in_its_time_though_clients_do_not_read() -> None:
    async with silent_clients() as silent:
        async with serving(flood, attrs.evolve(SETTINGS, close_within=0.5)) as served:
            await fill(silent, served)
            begun = trio.current_time()
        assert trio.current_time() - begun < 6


async def test_the_server_ends_in_its_time_though_a_stranger_does_not_read() -> None:
    async with silent_clients() as silent:
        async with serving(idle, attrs.evolve(SETTINGS, close_within=0.5)) as served:
            await silent.ask_without_token(served)
            begun = trio.current_time()
        assert trio.current_time() - begun < 6


async def test_a_cancelled_server_drops_its_connections_at_once() -> None:
    async with silent_clients() as silent:
        with trio.CancelScope() as scope:
            async with serving(flood, attrs.evolve(SETTINGS, close_within=50)) as served:
                await fill(silent, served)
                begun = trio.current_time()
                scope.cancel()
                await trio.sleep_forever()
        assert trio.current_time() - begun < 6


async def test_the_server_ends_in_its_time_though_a_client_of_http_2_opens_no_window() -> None:
    async with silent_clients() as silent:
        async with serving(flood, attrs.evolve(SETTINGS, close_within=0.5)) as served:
            await served.say("kitchen", "go")
            await served.until("/rooms/kitchen/events", "settlement")
            one = open_socket(served)
            silent.sockets.append(one)
            client = h2.connection.H2Connection()
            client.initiate_connection()
            asked = {":method": "GET", ":path": "/events", ":scheme": "http"}
            bears = {":authority": "localhost", "authorization": f"Bearer {TOKEN}"}
            client.send_headers(1, [*asked.items(), *bears.items()], end_stream=True)
            one.send(client.data_to_send())
            with trio.fail_after(10):
                await trio.lowlevel.wait_readable(one)
            await trio.sleep(0.3)
            begun = trio.current_time()
        assert trio.current_time() - begun < 6


async def test_whoever_takes_nothing_for_too_long_is_dropped() -> None:
    settings = attrs.evolve(SETTINGS, silence=0.5, streams=2)
    async with silent_clients(20) as silent, serving(flood, settings) as served:
        await fill(silent, served)
        with trio.fail_after(10):
            while True:
                async with served.http.stream("GET", "/events") as response:
                    if response.status_code == 200:
                        return
                await trio.sleep(0.05)


async def test_whoever_takes_nothing_has_no_connection_any_more() -> None:
    ours, theirs = trio.socket.socketpair()
    connection = Connection(trio.SocketStream(ours), 0.1)
    with theirs, trio.fail_after(10):
        with pytest.raises(trio.BrokenResourceError, match="does not read"):
            await connection.send_all(b"x" * 10_000_000)
        assert ours.fileno() == -1


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving(idle, attrs.evolve(SETTINGS, silence=0.3)) as served:
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"POST /rooms/kitchen/messages HTTP/1.1\r\n{HEADERS}Content-Length: 9\r\n\r\n"
            await stream.send_all(head.encode() + b"{")
            with trio.fail_after(10):
                raw = b"".join([chunk async for chunk in stream])
        assert raw.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in raw.lower()


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with serving(idle, attrs.evolve(SETTINGS, silence=0.3)) as served:
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: local")
            # Hypercorn's own is 5 seconds.
            with trio.fail_after(4):
                async for _ in stream:
                    pass


async def test_an_answer_comes_in_one_piece_and_one_without_a_body_comes_too() -> None:
    async with serving(idle) as served:
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            for method in ("GET", "HEAD", "GET"):
                await stream.send_all(f"{method} /health HTTP/1.1\r\n{HEADERS}\r\n".encode())
                with trio.fail_after(5):
                    raw = await stream.receive_some()
                assert raw.endswith(b"}" if method == "GET" else b"\r\n\r\n")


async def test_whoever_waits_to_be_told_to_go_on_is_told_at_once() -> None:
    async with serving(idle) as served:
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"POST /rooms/kitchen/messages HTTP/1.1\r\n{HEADERS}Content-Length: 15\r\n"
            await stream.send_all(f"{head}Expect: 100-continue\r\n\r\n".encode())
            with trio.fail_after(5):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
                await stream.send_all(b'{"content":"x"}')
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 202 ")


async def open_known(served: Served) -> socket.socket:
    """One that has borne the token."""
    one = open_socket(served)
    one.send(f"GET /health HTTP/1.1\r\n{HEADERS}\r\n".encode())
    with trio.fail_after(5):
        await trio.lowlevel.wait_readable(one)
    return one


async def test_there_are_only_so_many_connections_and_one_that_ends_makes_place() -> None:
    async with serving(idle, attrs.evolve(SETTINGS, connections=3)) as served:
        assert (await served.http.get("/health")).status_code == 200
        others = [await open_known(served), await open_known(served)]
        host, port = served.server.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(f"GET /health HTTP/1.1\r\n{HEADERS}\r\n".encode())
            with trio.move_on_after(0.5):
                raise AssertionError(await stream.receive_some())
            others.pop().close()
            # Less than Hypercorn waits for another request.
            with trio.fail_after(4):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        others.pop().close()


async def hold_on(served: Served, line: bytes) -> None:
    """A stranger, who asks often enough to keep a connection, and comes again."""
    host, port = served.server.url.removeprefix("http://").split(":")
    while True:
        with suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                while True:
                    await stream.send_all(line + b"\r\nHost: localhost\r\n\r\n")
                    if not await stream.receive_some():
                        break
                    await trio.sleep(0.5)
        await trio.sleep(0.05)


@pytest.mark.parametrize(
    "line", [b"GET /health HTTP/1.1", b"GET /rooms HTTP/1.1"], ids=["open", "refused"]
)
async def test_strangers_who_hold_on_keep_no_stop_out(line: bytes) -> None:
    async with serving(idle, attrs.evolve(SETTINGS, connections=10)) as served:
        async with served.events("/events") as events, trio.open_nursery() as nursery:
            await served.say("kitchen", "x")
            for _ in range(12):
                nursery.start_soon(hold_on, served, line)
            await trio.sleep(0.5)
            for _ in range(10):
                headers = {"Authorization": f"Bearer {TOKEN}"}
                url = f"{served.server.url}/rooms/kitchen/stop"
                async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
                    with trio.fail_after(3):
                        assert (await http.post(url)).status_code == 202
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
        # Who bears the token has kept its place.
        kinds = []
        while events.statistics().current_buffer_used:
            kinds.append(events.receive_nowait()[1])
        assert "paused" in kinds
        assert (await served.http.get("/health")).status_code == 200


async def test_a_connection_that_goes_wrong_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hypercorn.protocol.h11 import H11Protocol

    handle = H11Protocol._create_stream

    async def fails(self: H11Protocol, request: object) -> None:
        if b"/bad" in request.target:
            raise ValueError("prompt-secret")
        await handle(self, request)

    monkeypatch.setattr(H11Protocol, "_create_stream", fails)
    async with serving(idle) as served:
        async with served.events("/events") as events:
            one = open_socket(served)
            one.send(b"GET /bad HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with trio.fail_after(10):
                await trio.lowlevel.wait_readable(one)
            assert one.recv(1) == b""
            one.close()
            await served.say("kitchen", "x")
            await events.receive()
    (record,) = [one for one in caplog.records if one.name == "turnstop.server"]
    assert record.levelno == logging.ERROR
    assert "ValueError" in record.getMessage()
    assert "secret" not in f"{record.getMessage()}{record.exc_info}"
