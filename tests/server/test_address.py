"""Where a server listens, by which names it is asked, and what it finds out before it begins."""

from __future__ import annotations

import socket

import attrs
import pytest
import trio
from servers import SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work, open_local
from turnstop.feeds import MemoryFeed
from turnstop.server import Settings, open_server
from turnstop.server._address import listening

PATHS = ("/", "/app.js", "/health", "/openapi.json", "/rooms", "/events", "/nothing")


async def idle(work: Work) -> None:
    """Does nothing."""


async def ask(served: Served, path: str, host: str) -> int:
    response = await served.http.get(path, headers={"Host": host})
    return response.status_code


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil", "", "[::2]"])
async def test_a_name_that_was_pointed_here_reads_nothing_from_a_loopback_address(
    host: str,
) -> None:
    async with serving(idle) as served:
        for path in PATHS:
            assert await ask(served, path, host) == 421
        await served.http.post("/rooms/kitchen/messages", json={"content": "x"})
        refused = await served.http.post("/rooms/kitchen/stop", headers={"Host": host})
        assert refused.status_code == 421
        assert "evil" not in refused.text


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8", "named.x"]
)
async def test_a_loopback_address_is_asked_by_the_names_of_this_machine_and_those_given(
    host: str,
) -> None:
    async with serving(idle, attrs.evolve(SETTINGS, hosts=("Named.X",))) as served:
        assert await ask(served, "/health", host) == 200
        assert await ask(served, "/rooms", host) == 200


async def test_elsewhere_any_name_will_do_unless_some_are_given() -> None:
    for hosts, wanted in ((), 200), (("named.x",), 421):
        settings = attrs.evolve(SETTINGS, host="0.0.0.0", hosts=hosts)
        async with serving(idle, settings) as served:
            assert await ask(served, "/health", "any.example") == wanted
            assert await ask(served, "/health", "localhost") == 200


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n", "=", "é", "a,b", "a\0", None, b"a"])
def test_a_token_that_no_request_can_bear_is_refused_when_it_is_set(token: str) -> None:
    with pytest.raises(ValueError, match="a token is"):
        Settings(token=token)


async def test_a_token_may_have_all_that_a_bearer_may() -> None:
    async with serving(idle, Settings(token="aZ09-._~+/==")) as served:
        assert (await served.http.get("/rooms")).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_address_that_is_taken_is_found_before_any_turn_begins(host: str) -> None:
    begun = trio.Event()

    async def agent(work: Work) -> None:
        begun.set()

    feed = MemoryFeed()
    feed.post("kitchen", "x")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(token=TOKEN, host=host, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            async with open_local(agent) as backend, open_server(backend, feed, settings):
                pass
    assert not begun.is_set()
    assert [message.attempt for message in feed.unfinished("kitchen")] == [0]


async def test_all_addresses_of_a_host_have_one_port() -> None:
    found = await trio.socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
    async with listening(Settings(token=TOKEN, host="localhost")) as address:
        names = [one.socket.getsockname() for one in address.listeners]
        assert {name[0] for name in names} == {one[4][0] for one in found}
        assert {name[1] for name in names} == {int(address.url.rpartition(":")[2])}
    assert all(one.socket.fileno() == -1 for one in address.listeners)


async def test_addresses_that_cannot_have_one_port_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listen, asked = trio.open_tcp_listeners, list[tuple[int, str]]()

    async def two(port: int, *, host: str) -> list[trio.SocketListener]:
        asked.append((port, host))
        if host == "two.names":
            return [*await listen(0, host="127.0.0.1"), *await listen(0, host="127.0.0.1")]
        if len(asked) == 2:
            raise OSError("taken meanwhile")
        return await listen(0, host=host)

    monkeypatch.setattr(trio, "open_tcp_listeners", two)
    async with listening(Settings(token=TOKEN, host="two.names")) as address:
        assert [host for _, host in asked] == ["two.names", "127.0.0.1"] * 2
        assert address.url == f"http://two.names:{asked[-1][0]}"


async def test_strangers_have_a_rate_and_use_up_nobody_elses() -> None:
    async with serving(idle, attrs.evolve(SETTINGS, rate=0.1, burst=3)) as served:
        bearer = served.http.headers.pop("Authorization")
        found = [(await served.http.get(path)).status_code for path in ("/", "/rooms", "/health")]
        assert found == [200, 401, 200]
        for path in ("/", "/rooms", "/health", "/openapi.json"):
            refused = await served.http.get(path)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
        served.http.headers["Authorization"] = bearer
        assert (await served.http.get("/health")).status_code == 200
        assert (await served.http.get("/rooms")).status_code == 200
