"""Opening opencode, and the backend that starts its turns."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Final, final
from urllib.parse import unquote, urlsplit

import attrs
import httpx2
import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...abc import Backend, RemoteTurn, Request
from ...transports.dialect import to_blocks
from ...transports.offspring import Look
from ...transports.orphans import PROCESS, attach_process
from ...transports.pace import wait_at_most
from ...transports.proctable import find_marked, ticks_now
from ...transports.reading import Reader
from ...transports.restart import Restarting, open_restarting
from ._address import parse, to_address
from ._checking import INSTALL
from ._server import Server, Settings, attach, run
from ._session import OpenCodeSession, recall
from ._turn import OpenCodeContent, OpenCodeTurn
from ._wire import NotThere

_ANSWERS_WITHIN: Final = 0.2
_counter: Final = itertools.count()


@attrs.frozen
class _Prompts:
    """What every prompt asks for; None leaves it to opencode's configuration."""

    model: str | None = None
    agent: str | None = None

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {} if self.agent is None else {"agent": self.agent}
        if self.model is not None:
            provider, _, model = self.model.partition("/")
            body["model"] = {"providerID": provider, "modelID": model}
        return body


@final
class _Beginning:
    """A start: in a task of its own, since what it has begun must be undone if nobody waits."""

    def __init__(
        self, server: Server, prompts: _Prompts, request: Request[OpenCodeContent], look: Look
    ) -> None:
        self.reader: Reader[OpenCodeTurn | Exception] = Reader()
        self._server = server
        self._prompts = prompts
        self._request = request
        self._look = look
        self._fresh: str | None = None
        self._outcome: OpenCodeTurn | Exception | None = None
        self._abandoned = False

    async def reveal(self) -> OpenCodeTurn:
        """Return the turn once opencode has taken its message; raise what came instead."""
        try:
            outcome = await self.reader.receive()
        except trio.Cancelled:
            self._abandoned = True
            if self._outcome is not None:
                self._server.reading.start(Reader(), self._undo, name="opencode undo")
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def run(self) -> None:
        """The task."""
        try:
            self._outcome = await self._begin()
        except trio.Cancelled:
            self.reader.post(BackendLost("opencode was lost, or closed, while the turn began"))
            raise
        except NotThere as error:
            self._outcome = BackendRefused(
                f"opencode has no session {self._request.session} any more ({error}); "
                "retire the room to begin a new one"
            )
        except Exception as error:
            self._outcome = error
        self.reader.post(self._outcome)
        if self._abandoned or isinstance(self._outcome, BackendRefused):
            await self._undo()

    async def _begin(self) -> OpenCodeTurn:
        # First: what cannot be sent shall leave no session behind, and none in doubt.
        parts = _to_parts(self._request.content)
        session = await self._session()
        message, began = _new_message(), ticks_now()
        body = {"messageID": message, "parts": parts, **self._prompts.to_body()}
        await self._request.announce(to_address(self._server, session, message))
        listener = self._server.events.listen(session)
        taken = False
        try:
            await self._server.wire.post(f"/session/{session}/prompt_async", body)
            taken = True
        finally:
            if not taken:
                listener.close()
        return OpenCodeTurn(self._server, listener, session, message, began, self._look)

    async def _session(self) -> OpenCodeSession:
        kept = self._request.session
        if kept is None or self._request.previous is not None:
            return await self._make("/session", {"title": self._request.room})
        if await _may_be_hit(kept):
            # The same conversation, where no abort of before reaches it.
            return await self._make(f"/session/{kept}/fork", {})
        session = recall(kept)
        # opencode would queue the message behind what the session works on, and an abort would
        # end that and drop the message.
        if session.idle_on is not self._server and await self._server.is_busy(session):
            raise BackendRefused(
                f"session {session} is busy with something else; try again when it is done, or "
                "retire the room to begin a new conversation"
            )
        return session

    async def _make(self, path: str, body: dict[str, Any]) -> OpenCodeSession:
        made = await self._server.wire.post(path, body)
        number = made.get("id") if isinstance(made, dict) else None
        if not isinstance(number, str):
            raise BackendMisbehaved("opencode made a session and did not tell its id")
        self._fresh = number
        return OpenCodeSession(number, self._server)

    async def _undo(self) -> None:
        # There is nobody left to tell, and none of these waits for another to succeed.
        if isinstance(self._outcome, OpenCodeTurn):
            with suppress(BackendError, NotThere):
                await self._outcome.undo()
        if self._fresh is not None:
            for end in (self._server.delete, self._server.abort_deleted):
                with suppress(BackendError):
                    await end(self._fresh)


@final
class _Backend:
    announces: ClassVar[bool] = True

    def __init__(
        self,
        servers: Restarting[Server],
        prompts: _Prompts,
        look: Look = find_marked,
        name: str = "opencode",
    ) -> None:
        self.name = name
        self._servers = servers
        self._prompts = prompts
        self._look = look

    async def start(self, request: Request[OpenCodeContent]) -> RemoteTurn:
        server = await self._servers.get()
        beginning = _Beginning(server, self._prompts, request, self._look)
        name = f"opencode turn {request.turn_id}"
        server.reading.start(beginning.reader, beginning.run, name=name)
        return await beginning.reveal()

    async def attach(self, address: str) -> RemoteTurn:
        if address.startswith(PROCESS):
            return attach_process(address)
        session, message = parse(address)
        try:
            turn = await self._take_up(OpenCodeSession(session), message)
        except BackendRefused as error:
            # It did not refuse the turn, which may be at work there.
            raise BackendLost(str(error)) from error
        if turn is None:
            raise BackendRefused(f"session {session} has no message {message}: nothing was begun")
        return turn

    async def _take_up(self, session: OpenCodeSession, message: str) -> OpenCodeTurn | None:
        server = await self._servers.get()
        listener = server.events.listen(session)
        turn = OpenCodeTurn(server, listener, session, message, ticks_now(), self._look)
        is_there = False
        try:
            is_there = await turn.take_up()
        finally:
            if not is_there:
                listener.close()
        return turn if is_there else None


async def _may_be_hit(session: object) -> bool:
    """Whether an abort of an earlier turn may still end the session's next one."""
    abort = session.abort if isinstance(session, OpenCodeSession) else None
    if abort is None:
        return False
    if not abort.hit:
        await wait_at_most(abort.over, _ANSWERS_WITHIN)
    return abort.may_come()


def _to_parts(content: object) -> list[Any]:
    parts = to_blocks(content)
    return [{"type": "text", "text": parts}] if isinstance(parts, str) else parts


def _new_message() -> str:
    """An id as opencode makes them: they sort by time, as messages of a history do."""
    stamp = (int(time.time() * 1000) * 0x1000 + next(_counter) % 0x1000) & (2**48 - 1)
    return f"msg_{stamp:012x}{secrets.token_hex(7)}"


@asynccontextmanager
async def open_opencode(
    url: str | None = None,
    *,
    command: str | os.PathLike[str] | Sequence[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    model: str | None = None,
    agent: str | None = None,
    username: str = "opencode",
    password: str | None = None,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncGenerator[Backend[OpenCodeContent], None]:
    """Start turns on an opencode server: one that is run here, or the one at `url`.

    A server that is run here listens on 127.0.0.1, on a port and with a password of its own. What
    its tools leave behind is found and ended; of a server at `url` nothing is known but what it
    tells, and the processes of its tools are left alone.

    Args:
        url: where a server is, as `http://host:port`; None runs one. A name and a password in it
            are as the arguments for these.
        command: the program, or a whole command line without host and port; by default the
            opencode on PATH, as `opencode serve`. Not with `url`.
        directory: what the sessions work in: here, or with `url` on the server's machine. None
            leaves it to the server, and is this process's where it runs here.
        env: laid over this process's environment, which opencode needs for its own home and its
            keys; None takes a variable away. Not with `url`.
        model: as `provider/model`; None leaves it to opencode's configuration, as the next one.
        agent: which of opencode's agents works.
        username: whom the server at `url` lets in.
        password: with which password.
        transport: how requests are made, for a client certificate or a proxy of your own.

    Raises:
        BackendRefused: opencode is not installed: the text has the command that installs it; or
            nothing listens at `url`, or it is too old, or wants another password.
        BackendLost: opencode was lost before it was ready, again and again.
        BackendMisbehaved: what answers there is no opencode.

    **Cancellation:** reaches the server only after the body has left. What it works on is then
    aborted, and the server that runs here ended with all that it has started, within about eight
    seconds, whatever it does.
    """
    if url is not None and (command is not None or env is not None):
        raise ValueError("a server at a url is there already: leave out command and env")
    if model is not None and "/" not in model:
        raise ValueError(f"model is provider/model, as `opencode models` lists them: {model!r}")
    if url is not None:
        place = None if directory is None else os.fspath(directory)
        where, user, word = _split(url)
        settings = Settings(place, user or username, password or word, transport)
        name = f"opencode {where}"
        connect = partial(attach, where, settings)
    else:
        settings = Settings(_absolute(directory), transport=transport)
        name = "opencode"
        connect = partial(run, _command(command, env), settings, env)
    async with open_restarting(connect) as servers:
        await servers.get()
        yield _Backend(servers, _Prompts(model, agent), name=name)


def _split(url: str) -> tuple[str, str | None, str | None]:
    """Where a server is, and whom it lets in with which password: no error text tells these."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError("url says where a server is, as http://127.0.0.1:4096, and no more")
    user, word = (None if one is None else unquote(one) for one in (parts.username, parts.password))
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}", user, word


def _absolute(directory: str | os.PathLike[str] | None) -> str:
    return os.path.abspath(os.getcwd() if directory is None else directory)


def _command(
    command: str | os.PathLike[str] | Sequence[str] | None, env: Mapping[str, str | None] | None
) -> list[str]:
    if command is None:
        found = shutil.which("opencode", path=(env or {}).get("PATH"))
        if found is None:
            raise BackendRefused(f"opencode is not installed; install it with: {INSTALL}")
        return [found, "serve"]
    if isinstance(command, str | os.PathLike):
        return [os.fspath(command), "serve"]
    if not command:
        raise ValueError("command is empty: name a program, or leave it out")
    return list(command)
