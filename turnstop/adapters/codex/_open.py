"""Opening codex: which program, how it is greeted, and the backend that starts its turns."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, ClassVar, final

import attrs
import trio

from ..._errors import BackendError, BackendMisbehaved, BackendRefused
from ...abc import Backend, RemoteTurn, Request
from ...transports.dialect import JsonRpc, to_blocks
from ...transports.jsonrpc import Connection, Incoming, RpcError, Topic
from ...transports.orphans import ProcessAddress, attach_process
from ...transports.peer import Peer, open_peer
from ...transports.proctable import find_marked, ticks_now
from ...transports.restart import Restarting, open_restarting
from ._asks import decline
from ._commands import OUTER, ROOT, Look
from ._interrupt import interrupt
from ._orphan import Attach, take_up
from ._session import CodexSession, is_idle, known_calls, may_have_agents
from ._turn import CodexContent, CodexTurn

_INSTALL = "python -m pip install openai-codex-cli-bin==0.163.0"
_UNDO_ROUNDS = 10
_UNDO_TRIES = 20
# With a goal, codex goes on to begin turns of its own, which belong to no room: no stop reaches
# them, and the room's next turn would find its thread busy.
_CONFIG = {"features.goals": False}
_PATIENCE = 60.0
_UNLOAD_WITHIN = 0.1


@attrs.frozen
class _Settings:
    """What a thread is started and resumed with; None leaves it to codex's configuration."""

    cwd: str | None
    model: str | None
    sandbox: str | None
    approval: str | None
    tools: Sequence[Mapping[str, Any]]

    def to_params(self) -> dict[str, Any]:
        params = {
            "cwd": self.cwd,
            "model": self.model,
            "sandbox": self.sandbox,
            "approvalPolicy": self.approval,
        }
        given = {name: value for name, value in params.items() if value is not None}
        return {**given, "config": dict(_CONFIG)}


@final
class _Backend:
    name: ClassVar[str] = "codex"
    announces: ClassVar[bool] = True

    def __init__(
        self,
        codex: Restarting[Peer],
        settings: _Settings,
        look: Look = find_marked,
        attach: Attach = attach_process,
    ) -> None:
        self._codex = codex
        self._settings = settings
        self._look = look
        self._attach = attach

    async def start(self, request: Request[CodexContent]) -> RemoteTurn:
        content = to_blocks(request.content)
        peer = await self._codex.get()
        rpc = peer.rpc
        try:
            session = await self._session(rpc, request)
            where = attrs.evolve(
                peer.process.address,
                session=str(session),
                tool={ROOT: str(session)},
                since=ticks_now(),
            )
            await self._announce(rpc, request, where)
            topic = rpc.subscribe(session)
            turn = await self._start(rpc, topic, session, content)
        except RpcError as error:
            raise BackendRefused(f"codex did not start the turn: {error}") from error
        return CodexTurn(rpc, topic, session, turn, where, self._look)

    async def _session(self, rpc: Connection, request: Request[CodexContent]) -> CodexSession:
        if request.session is None or request.previous is not None:
            return CodexSession(await self._begin(rpc), None, agents=False)
        return await self._continue(rpc, request.session)

    async def _announce(
        self, rpc: Connection, request: Request[CodexContent], where: ProcessAddress
    ) -> None:
        try:
            await request.announce(str(where))
        except BackendRefused:
            if where.session != request.session:
                # Nobody will know of the thread. Whatever codex says to that, nothing has begun.
                with suppress(BackendError, RpcError):
                    params = {"threadId": where.session}
                    await rpc.call_within(_UNLOAD_WITHIN, "thread/unsubscribe", params)
            raise

    async def attach(self, address: str) -> RemoteTurn:
        return await take_up(address, self._codex, self._look, self._attach)

    async def _start(
        self, rpc: Connection, topic: Topic, thread: str, content: str | list[Any]
    ) -> str:
        items = [{"type": "text", "text": content}] if isinstance(content, str) else content
        params = {"threadId": thread, "input": items}
        started = False
        try:
            undo = partial(self._undo_turn, rpc, thread)
            result = await rpc.call_within(_PATIENCE, "turn/start", params, late=undo)
            turn = _named(result, "turn")
            started = True
        finally:
            if not started:
                topic.close()
        return turn

    async def _begin(self, rpc: Connection) -> str:
        params = self._settings.to_params()
        if self._settings.tools:
            params["dynamicTools"] = [dict(tool) for tool in self._settings.tools]
        undo = partial(self._undo_thread, rpc)
        result = await rpc.call_within(_PATIENCE, "thread/start", params, late=undo)
        return _named(result, "thread")

    async def _continue(self, rpc: Connection, session: object) -> CodexSession:
        """Make sure that the thread is there and idle: codex would steer a busy one."""
        thread = str(session)
        agents, calls = may_have_agents(session), known_calls(session)
        kept = CodexSession(thread, None, agents=agents, calls=calls)
        if is_idle(session, rpc):
            return kept
        status = await _status(rpc, thread)
        if status == "active":
            raise BackendRefused(
                f"codex is busy with something else in thread {thread}; try again when it is done, "
                "or retire the room to begin a new conversation"
            )
        if status == "notLoaded":
            params = {"threadId": thread, "excludeTurns": True, **self._settings.to_params()}
            try:
                await rpc.call_within(_PATIENCE, "thread/resume", params)
            except RpcError as error:
                raise BackendRefused(
                    f"codex cannot resume the room's thread: {error}; "
                    "retire the room to begin a new conversation"
                ) from error
        return kept

    async def _undo_turn(self, rpc: Connection, thread: str, result: object) -> None:
        turn, begun = _named(result, "turn"), trio.Event()
        for _ in range(_UNDO_ROUNDS):
            if await interrupt(rpc, thread, turn, begun, lambda: None, tries=_UNDO_TRIES):
                return
            # Nobody hears of its end, which an interrupt that comes too late does not tell from
            # one that comes too early.
            if await _status(rpc, thread) != "active":
                return

    async def _undo_thread(self, rpc: Connection, result: object) -> None:
        await self._unload(rpc, _named(result, "thread"))

    async def _unload(self, rpc: Connection, thread: str) -> None:
        await rpc.call("thread/unsubscribe", {"threadId": thread})

    async def forget(self, session: object) -> None:
        """Unload the room's thread; its history stays with codex. No process is started for it."""
        codex = self._codex.current
        if codex is not None and not codex.broken.is_set():
            with suppress(RpcError):  # codex does not know it: there is nothing to let go of
                await self._unload(codex.rpc, str(session))


async def _status(rpc: Connection, thread: str) -> str:
    try:
        result = await rpc.call_within(_PATIENCE, "thread/read", {"threadId": thread})
    except RpcError:
        return "notLoaded"  # The resume that follows says what is wrong, if anything is.
    try:
        return str(result["thread"]["status"]["type"])
    except (KeyError, TypeError):
        raise BackendMisbehaved(f"codex told no status of thread {thread}") from None


def _named(result: object, kind: str) -> str:
    """The id of the thread or turn in an answer."""
    found = result.get(kind) if isinstance(result, dict) else None
    number = found.get("id") if isinstance(found, dict) else None
    if not isinstance(number, str) or not number:
        raise BackendMisbehaved(f"codex started a {kind} and did not tell its id")
    return number


@asynccontextmanager
async def open_codex(
    command: str | os.PathLike[str] | Sequence[str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    model: str | None = None,
    sandbox: str | None = None,
    approval: str | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> AsyncGenerator[Backend[CodexContent], None]:
    """Run codex's app server, and start turns on it.

    Args:
        command: the program, or a whole command line; by default the codex on PATH, else the one
            that the package openai-codex-cli-bin brings.
        cwd: where codex and its shell commands work.
        env: laid over this process's environment, which codex needs for its own home, its keys
            and its proxies; None takes a variable away.
        model: as codex's own setting; None leaves it to codex's configuration, as the next two.
        sandbox: `"read-only"`, `"workspace-write"` or `"danger-full-access"`.
        approval: when codex asks before it acts: `"untrusted"`, `"on-request"` or `"never"`.
        tools: dynamic tools of every new thread, as codex declares them.

    Raises:
        BackendRefused: codex is not installed; the text has the command that installs it.
        BackendLost: codex was lost before it was ready, again and again.

    **Cancellation:** reaches codex only after the body has left. It is then ended within about
    four seconds, whatever it does.
    """
    settings = _Settings(_absolute(cwd), model, sandbox, approval, tuple(tools))
    connect = partial(
        open_peer,
        _command(command, env),
        topic_of=_topic_of,
        fallback=decline,
        handshake=_greet,
        dialect=JsonRpc(version=False),
        name="codex",
        cwd=settings.cwd,
        env={**dict.fromkeys(OUTER), **(env or {})},
        install=_INSTALL,
    )
    async with open_restarting(connect) as codex:
        await codex.get()
        yield _Backend(codex, settings)


def _absolute(cwd: str | os.PathLike[str] | None) -> str | None:
    return None if cwd is None else os.path.abspath(cwd)


def _command(
    command: str | os.PathLike[str] | Sequence[str] | None, env: Mapping[str, str | None] | None
) -> list[str]:
    if command is None:
        return [_find_program(env), "app-server"]
    if isinstance(command, str | os.PathLike):
        return [os.fspath(command), "app-server"]
    if not command:
        raise ValueError("command is empty: name a program, or leave it out")
    return list(command)


def _find_program(env: Mapping[str, str | None] | None) -> str:
    path = (env or {}).get("PATH")
    if found := shutil.which("codex", path=path):
        return found
    try:
        from codex_cli_bin import bundled_codex_path  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise BackendRefused(f"codex is not installed; install it with: {_INSTALL}") from None
    return str(bundled_codex_path())


def _topic_of(incoming: Incoming) -> str | None:
    thread = incoming.params.get("threadId")
    return thread if isinstance(thread, str) else None


async def _greet(rpc: Connection) -> None:
    client = {"name": "turnstop", "title": "turnstop", "version": "0.1"}
    # The list of terminals is only told to clients that ask for experimental methods.
    capabilities = {"experimentalApi": True}
    await rpc.call("initialize", {"clientInfo": client, "capabilities": capabilities})
    rpc.notify("initialized")
