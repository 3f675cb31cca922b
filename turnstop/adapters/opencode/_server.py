"""A connection to an opencode server: one that is ours, in a process, or one that is there."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, final

import attrs
import httpx2
import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved
from ...transports.dialect import shorten
from ...transports.eventstream import EventStream, open_event_stream
from ...transports.listening import Listening, open_listening
from ...transports.pace import wait_at_most
from ...transports.reading import Reader, Reading, open_reading
from ...transports.sse import ServerEvent
from ._checking import INSTALL, check
from ._plugin import PASSWORD, with_plugin
from ._wire import NotThere, Wire

Heard: TypeAlias = Mapping[str, Any]

MARK: Final = "TURNSTOP_OPENCODE"
_USERNAME: Final = "opencode"
_FAREWELL: Final = 3.0
_READY: Final = r"listening on (http://\S+)"


@final
@attrs.define(eq=False, repr=False)
class Server:
    """A server that answers, and its stream of events.

    Attributes:
        wire: the calls.
        events: what it says.
        reading: for tasks that outlive the calls which start them.
        program: its process; None where it is not ours.
    """

    wire: Wire
    events: EventStream[Heard]
    reading: Reading
    program: Listening | None = None

    @property
    def broken(self) -> Any:
        """Set when it can no longer be heard."""
        return self.events.broken

    @property
    def mark(self) -> tuple[str, str] | None:
        """What all that it starts carries in its environment; None where it is not ours."""
        return None if self.program is None else self.program.mark

    def loss(self) -> BackendLost:
        """A new error: how it was lost, and whether it is gone."""
        if self.program is not None:
            process = self.program.process
            error = BackendLost(process.describe(), gone=process.returncode is not None)
        else:
            error = BackendLost(
                f"opencode at {self.wire.url} is not heard any more ({self.events.why}): look "
                "whether it runs; the next turn tries again"
            )
        error.__cause__ = self.events.why
        return error

    def post_aside(self, path: str, body: Any, left: trio.Event) -> None:
        """Have it do something in a task that outlives the turn.

        `left` is set once it is told, or cannot be.
        """
        if self.broken.is_set():
            left.set()
            return

        async def post() -> None:
            try:
                await self.wire.post(path, body, sent=left.set)
            except (BackendError, NotThere):
                left.set()

        self.reading.start(Reader(), post, name=f"opencode {path}")

    async def is_busy(self, session: str) -> bool:
        """Whether the session works on something.

        **Cancellation:** changes nothing.
        """
        return session in await _busy(self.wire)

    async def delete(self, session: str) -> None:
        """Delete a session that was made for one message: it takes that no more.

        **Cancellation:** it may be deleted.
        """
        with suppress(NotThere):
            await self.wire.delete(f"/session/{session}")

    async def abort_deleted(self, session: str) -> None:
        """Abort what had begun when it was deleted: that goes on without its session, until then.

        **Cancellation:** it may be aborted.
        """
        with suppress(NotThere):
            await self.wire.post(f"/session/{session}/abort")


@attrs.frozen
class Settings:
    """How a server is reached, or begun.

    Attributes:
        directory: what its sessions work in.
        username: whom it lets in.
        password: with what; None: it lets everybody in.
        transport: how requests are made; None: as they are.
    """

    directory: str | None
    username: str = _USERNAME
    password: str | None = attrs.field(default=None, repr=False)
    transport: httpx2.AsyncBaseTransport | None = None

    def client(self) -> httpx2.AsyncClient:
        """A client that speaks to nobody but the server, whatever the environment says."""
        auth = None if self.password is None else (self.username, self.password)
        limits = httpx2.Limits(max_connections=None, keepalive_expiry=4.0)
        return httpx2.AsyncClient(
            auth=auth, limits=limits, trust_env=False, transport=self.transport
        )


@asynccontextmanager
async def attach(url: str, settings: Settings) -> AsyncGenerator[Server, None]:
    """Connect to a server that is there."""
    server: Server | None = None
    try:
        async with settings.client() as http:
            wire = Wire(http, settings.directory, url)
            await check(wire)
            async with open_event_stream(wire.events, _sort) as events, open_reading() as reading:
                server = Server(wire, events, reading)
                yield server
                if events.broken.is_set():
                    await _abort_heard(server)
    finally:
        if server is not None:
            server.events.declare_lost(server.loss)


@asynccontextmanager
async def run(
    command: Sequence[str], settings: Settings, env: Mapping[str, str | None] | None
) -> AsyncGenerator[Server, None]:
    """Run a server, and connect to it. No one else can: it has a password of its own."""
    server: Server | None = None
    settings = attrs.evolve(settings, username=_USERNAME, password=secrets.token_urlsafe(24))
    with tempfile.TemporaryDirectory(prefix="turnstop-opencode-") as folder:
        try:
            async with settings.client() as http:
                wire = Wire(http, settings.directory)
                async with open_listening(
                    [*command, "--hostname", "127.0.0.1", "--port", "0"],
                    ready=_READY,
                    mark=MARK,
                    farewell=lambda: _abort_all(wire),
                    name="opencode",
                    cwd=settings.directory,
                    env=_environment(settings, env, folder),
                    install=INSTALL,
                ) as program:
                    wire.url = program.address
                    await check(wire)
                    async with open_event_stream(
                        wire.events, _sort, broken=program.exited
                    ) as events:
                        async with open_reading() as reading:
                            server = Server(wire, events, reading, program)
                            yield server
        finally:
            if server is not None:
                server.events.declare_lost(server.loss)


def _environment(
    settings: Settings, env: Mapping[str, str | None] | None, folder: str
) -> dict[str, str | None]:
    return {
        **(env or {}),
        **with_plugin(folder, {**os.environ, **(env or {})}),
        PASSWORD: settings.password,
        "OPENCODE_SERVER_USERNAME": settings.username,
    }


async def _abort_all(wire: Wire) -> None:
    """Tell every session that works to stop: its tools outlive a server that is just ended."""
    with suppress(BackendError, NotThere):
        for session in await _busy(wire):
            await wire.post(f"/session/{session}/abort")


async def _abort_heard(server: Server) -> None:
    """Tell the sessions of the turns that are lost to stop, where only the stream is out of reach.

    Nobody hears what they do, and once this connection has closed nobody can tell them.
    """
    told = trio.Event()

    async def tell() -> None:
        for session in server.events.keys:
            with suppress(BackendError, NotThere):
                await server.wire.post(f"/session/{session}/abort")
        told.set()

    server.reading.start(Reader(), tell, name="opencode aborts")
    await wait_at_most(told, _FAREWELL)


async def _busy(wire: Wire) -> Mapping[str, Any]:
    """The sessions that work on something."""
    status = await wire.get("/session/status")
    if not isinstance(status, dict):
        raise BackendMisbehaved(f"opencode told no status of its sessions: {shorten(status)}")
    return status


def _sort(event: ServerEvent) -> tuple[list[str], Heard]:
    """Who is to hear of an event; what is none is refused here, for all who read it later."""
    heard = json.loads(event.data)
    properties = heard.get("properties") if isinstance(heard, dict) else None
    if not isinstance(properties, dict) or not isinstance(heard.get("type"), str):
        raise ValueError("an event has a type, and properties")
    # A sub-agent's session is news of its parent's.
    info = properties.get("info") if heard["type"] == "session.created" else None
    parent = info.get("parentID") if isinstance(info, dict) else None
    return [str(one) for one in (properties.get("sessionID"), parent) if one], heard
