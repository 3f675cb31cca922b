"""A server in this process, with an agent that does what a test says."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import attrs
import httpx2
import trio

from turnstop import StopBudget
from turnstop._house import Orphan
from turnstop.abc import Emit, End, How, Proof, Request
from turnstop.adapters.local import Work, open_local
from turnstop.events import Text
from turnstop.feeds import MemoryFeed
from turnstop.server import Server, Settings, open_server
from turnstop.transports.sse import EventParser

Heard: TypeAlias = tuple[str, str, dict[str, Any]]
TOKEN = "a-token-that-nobody-may-log"
SETTINGS = Settings(token=TOKEN)
HEADERS = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
"""Of a request that is written by hand."""


@attrs.frozen
class Served:
    """A server and a client that bears its token."""

    server: Server
    feed: MemoryFeed
    http: httpx2.AsyncClient

    async def post(self, path: str, **body: Any) -> httpx2.Response:
        return await self.http.post(path, json=body)

    async def say(self, room: str, content: str, **more: Any) -> str:
        response = await self.post(f"/rooms/{room}/messages", content=content, **more)
        assert response.status_code == 202, response.text
        return response.json()["id"]

    async def press(self, room: str, kind: str, **body: Any) -> dict[str, Any]:
        response = await self.post(f"/rooms/{room}/{kind}", **body)
        assert response.status_code == 202, response.text
        return response.json()

    async def state(self, room: str) -> dict[str, Any]:
        return (await self.http.get(f"/rooms/{room}")).json()

    @asynccontextmanager
    async def events(
        self, path: str, after: str = ""
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[Heard], None]:
        """What happens: id, type and data of each event."""
        headers = {"Last-Event-ID": after} if after else {}
        send, receive = trio.open_memory_channel[Heard](math.inf)
        async with (
            self.http.stream("GET", path, headers=headers) as response,
            trio.open_nursery() as nursery,
        ):
            assert response.status_code == 200
            # A generator is left by whoever is cancelled in it, and by nobody who breaks.
            nursery.start_soon(_read, response, send)
            yield receive
            nursery.cancel_scope.cancel()

    async def until(self, path: str, kind: str, after: str = "", **wanted: Any) -> dict[str, Any]:
        """Read until there is an event of this type, with these fields; return its data."""
        async with self.events(path, after) as events:
            async for _, found, data in events:
                if found == kind and wanted.items() <= data.items():
                    return data
        raise AssertionError(f"the stream ended before {kind} {wanted}")


async def _read(response: httpx2.Response, send: trio.MemorySendChannel[Heard]) -> None:
    parser = EventParser()
    async with send:
        async for chunk in response.aiter_raw():
            for event in parser.feed(chunk):
                send.send_nowait((event.id, event.kind, json.loads(event.data)))


@asynccontextmanager
async def serving(
    agent: Callable[[Work], Awaitable[object]],
    settings: Settings = SETTINGS,
    feed: Any = None,
    budget: StopBudget | None = None,
) -> AsyncGenerator[Served, None]:
    kept = feed or MemoryFeed()
    headers = {"Authorization": f"Bearer {settings.token}"}
    async with (
        open_local(agent) as backend,
        open_server(backend, kept, settings, budget=budget) as server,
        httpx2.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http,
    ):
        with trio.fail_after(60):
            yield Served(server, kept, http)


# A server that finds a turn which another has left.


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
