"""What a client of HTTPX is helped with: told when a request has left, and read to an end."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio

from turnstop import BackendMisbehaved
from turnstop.transports.sse import ServerEvent

try:
    import httpx

    from turnstop.transports.httpcalls import Departures, bare_url, read_events
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

URL = "http://far.test/"


class Chunks(httpx.AsyncByteStream):
    def __init__(self, *chunks: bytes | Exception) -> None:
        self._chunks = list(chunks)
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await trio.lowlevel.checkpoint()
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


async def heard(*chunks: bytes | Exception, fail_at: str = "") -> tuple[list[str], Chunks]:
    body, found = Chunks(*chunks), []

    def hear(event: ServerEvent) -> None:
        found.append(event.data)
        if event.data == fail_at:
            raise ZeroDivisionError(fail_at)

    response = httpx.Response(200, stream=body, request=httpx.Request("GET", URL))
    try:
        await read_events(response, hear)
    finally:
        await response.aclose()
        gc.collect()
        assert body.closed
    return found, body


async def test_events_are_heard_in_order_to_the_end_wherever_they_are_cut() -> None:
    found, _ = await heard(b"data: on", b"e\n\ndata: two\n", b"\ndata: three\n\n")
    assert found == ["one", "two", "three"]


async def test_reading_ends_where_hearing_fails_and_nothing_is_left_half_read() -> None:
    with pytest.raises(ZeroDivisionError, match="two"):
        await heard(b"data: one\n\ndata: two\n\n", b"data: three\n\n", fail_at="two")


async def test_nothing_is_heard_after_what_failed_though_more_is_in_hand() -> None:
    class Full(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for data in (b"one", b"two", b"three"):
                yield b"data: %b\n\n" % data

    found: list[str] = []

    def hear(event: ServerEvent) -> None:
        found.append(event.data)
        if event.data == "two":
            raise ZeroDivisionError(event.data)

    response = httpx.Response(200, stream=Full(), request=httpx.Request("GET", URL))
    with pytest.raises(ZeroDivisionError):
        await read_events(response, hear)
    await response.aclose()
    assert found == ["one", "two"]


async def test_a_failed_hearing_does_not_wait_for_what_the_server_says_next() -> None:
    class Silent(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"data: one\n\n"
            await trio.sleep_forever()

    def hear(event: ServerEvent) -> None:
        raise ZeroDivisionError(event.data)

    response = httpx.Response(200, stream=Silent(), request=httpx.Request("GET", URL))
    with trio.fail_after(5), pytest.raises(ZeroDivisionError):
        await read_events(response, hear)
    await response.aclose()


async def test_a_connection_that_breaks_says_so() -> None:
    with pytest.raises(httpx.ReadError, match="pulled"):
        await heard(b"data: one\n\n", httpx.ReadError("pulled"))


async def test_an_endless_line_is_misbehaviour() -> None:
    with pytest.raises(BackendMisbehaved, match="line"):
        await heard(b"data: ", *[b"x" * 2**20] * 80)


class Far(httpx.AsyncBaseTransport):
    """Takes a request as a connection does: the headers, then the body, and tells of both."""

    def __init__(self) -> None:
        self.headers: list[httpx.Headers] = []
        self.bodies: list[bytes] = []
        self.reached: Sequence[bool] = ()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.headers.append(request.headers)
        trace: Any = request.extensions.get("trace")
        if trace is not None:
            await trace("http11.send_request_headers.complete", {})
        assert isinstance(request.stream, httpx.AsyncByteStream)
        self.bodies.append(b"".join([part async for part in request.stream]))
        if trace is not None:
            await trace("http11.send_request_body.complete", {})
        return httpx.Response(200, text="done")


async def test_the_mark_says_when_its_request_has_left_and_does_not_leave_with_it() -> None:
    far, left = Far(), []
    async with httpx.AsyncClient(transport=far) as http:
        departures = Departures(http)
        with departures.awaited(lambda: left.append(len(far.bodies))) as headers:
            await http.post(URL, json={"a": 1})
            assert left == []
            await http.post(URL, json={"b": 2}, headers=headers)
        assert left == [2]
        # One that is awaited no longer tells nobody.
        await http.get(URL, headers=headers)
    assert left == [2]
    assert far.bodies == [b'{"a":1}', b'{"b":2}', b""]
    assert not any(name.startswith("turnstop") for one in far.headers for name in one)


async def test_a_mark_whose_block_was_left_before_its_request_tells_nobody() -> None:
    left: list[str] = []
    async with httpx.AsyncClient(transport=Far()) as http:
        departures = Departures(http)
        with departures.awaited(lambda: left.append("left")) as unused:
            pass
        await http.post(URL, headers=unused)
        with (
            pytest.raises(ZeroDivisionError),
            departures.awaited(lambda: left.append("failed")) as cut,
        ):
            raise ZeroDivisionError
        await http.post(URL, headers=cut)
    assert left == []


async def test_a_body_that_is_cut_off_while_it_is_sent_leaves_nothing_half_read() -> None:
    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            assert isinstance(request.stream, httpx.AsyncByteStream)
            async for _ in request.stream:
                await trio.sleep_forever()
            raise AssertionError("unreachable")

    async with httpx.AsyncClient(transport=Slow()) as http:
        Departures(http)
        with trio.move_on_after(0.01):
            await http.post(URL, json={"a": 1})
    gc.collect()


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("http://far.test", "http://far.test"),
        ("https://far.test:8283/a2a/", "https://far.test:8283/a2a"),
        ("http://cook:s3cret@far.test/a2a?token=s3cret#s3cret", "http://far.test/a2a"),
        ("http://s3cret@[::1]:80", "http://[::1]:80"),
        ("http://cook:s3@cret@far.test", "http://far.test"),
        ("http://far.test:port", "http://far.test:port"),
        ("http://cook:s3cret@[", "what is no address"),
        ("far.test:80", "far.test:80"),
    ],
)
def test_what_lets_one_in_is_told_nobody(url: str, bare: str) -> None:
    assert bare_url(url) == bare
