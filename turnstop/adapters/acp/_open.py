"""Opening an agent: which program, whose processes, and the backend that starts its turns."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias, final

import trio

from ..._errors import BackendError
from ...abc import Backend, RemoteTurn, Request
from ...transports.dialect import to_blocks
from ...transports.jsonrpc import RpcError
from ...transports.offspring import Look
from ...transports.orphans import OrphanedTurn, attach_process
from ...transports.proctable import find_marked
from ...transports.reading import Reader, Reading, open_reading
from ...transports.restart import Restarting, Restartings, open_restarting, open_restartings
from ._agent import Agent, Launch, open_agent
from ._own import OwnAcpTurn
from ._profiles import find_profile
from ._session import AcpSession, Settings, take_up
from ._turn import AcpContent, AcpTurn

Connect = Callable[[], AbstractAsyncContextManager[Agent]]
Attach: TypeAlias = Callable[[str], OrphanedTurn]


class _Processes(Protocol):
    """Whose the agent's processes are."""

    turn: type[AcpTurn]

    def take(self) -> Restarting[Agent]:
        """One for a room that has none."""
        ...

    async def give_back(self, process: Restarting[Agent]) -> None:
        """It was taken, and the room's session did not begin."""
        ...

    async def drop(self, process: Restarting[Agent]) -> None:
        """The room that had it has no use for it any more."""
        ...


@final
class _OneEach:
    """A process a room. One that no room has is kept for the next that needs one."""

    turn: type[AcpTurn] = OwnAcpTurn

    def __init__(self, restartings: Restartings, connect: Connect) -> None:
        self._restartings = restartings
        self._connect = connect
        self._spare: list[Restarting[Agent]] = []

    def take(self) -> Restarting[Agent]:
        return self._spare.pop() if self._spare else self._restartings.add(self._connect)

    async def give_back(self, process: Restarting[Agent]) -> None:
        # It is kept for how often it was lost, which is to bound how often it is started.
        await process.end()
        self.keep(process)

    def keep(self, process: Restarting[Agent]) -> None:
        self._spare.append(process)

    async def drop(self, process: Restarting[Agent]) -> None:
        await process.end()


@final
class _OneForAll:
    """One process that all rooms share."""

    turn: type[AcpTurn] = AcpTurn

    def __init__(self, process: Restarting[Agent]) -> None:
        self._process = process

    def take(self) -> Restarting[Agent]:
        return self._process

    async def give_back(self, process: Restarting[Agent]) -> None:
        await trio.lowlevel.checkpoint()

    async def drop(self, process: Restarting[Agent]) -> None:
        await trio.lowlevel.checkpoint()


@final
class _Backend:
    announces: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        processes: _Processes,
        settings: Settings,
        reading: Reading,
        look: Look,
        attach: Attach,
    ) -> None:
        self.name = name
        self._processes = processes
        self._settings = settings
        self._reading = reading
        self._look = look
        self._attach = attach

    async def start(self, request: Request[AcpContent]) -> RemoteTurn:
        content = to_blocks(request.content)
        kept = request.session
        process = kept.process if isinstance(kept, AcpSession) else None
        if request.previous is not None:
            # Its work may be alive, so that neither it nor its process is of any use.
            if process is not None:
                self._soon(self._processes.drop, process)
            kept = process = None
        fresh = process is None
        process = process or self._processes.take()
        ready = False
        try:
            agent = await process.get()
            session = await take_up(agent, process, kept, self._settings)
            if isinstance(kept, AcpSession):
                # The room has this one still, should the turn be stopped before it is sent.
                kept.note_taken_up(session)
            turn = self._processes.turn(agent, session, content, self._reading, self._look)
            await request.announce(turn.address)
            ready = True
        finally:
            if fresh and not ready:
                self._soon(self._processes.give_back, process)
        return turn

    def _soon(
        self, work: Callable[[Restarting[Agent]], Awaitable[None]], process: Restarting[Agent]
    ) -> None:
        self._reading.start(
            Reader[None](), partial(work, process), name="ACP process that no room has"
        )

    async def attach(self, address: str) -> RemoteTurn:
        """Take up a turn whose agent was left by its owner: it ends with its process."""
        turn = self._attach(address)
        await turn.look()
        return turn

    async def forget(self, session: object) -> None:
        """Close the room's session where the agent can, and end a process of the room's own."""
        process = session.process if isinstance(session, AcpSession) else None
        if process is None:
            return
        if not isinstance(self._processes, _OneForAll):
            # Also one that is only being brought back: nobody else will ever end it.
            await self._processes.drop(process)
        elif (agent := process.current) is not None and agent.can_close:
            with suppress(RpcError, BackendError):
                await agent.rpc.call("session/close", {"sessionId": str(session)})


@asynccontextmanager
async def open_backend(
    connect: Connect,
    settings: Settings,
    *,
    shared: bool = False,
    look: Look = find_marked,
    attach: Attach | None = None,
) -> AsyncGenerator[_Backend, None]:
    """Open the backend over agents that `connect` brings. The first is brought now.

    **Cancellation:** as `open_acp`.
    """
    async with AsyncExitStack() as stack:
        processes: _OneEach | _OneForAll
        if shared:
            one = await stack.enter_async_context(open_restarting(connect))
            processes = _OneForAll(one)
        else:
            each = await stack.enter_async_context(open_restartings())
            processes = _OneEach(each, connect)
            one = processes.take()
            processes.keep(one)
        reading = await stack.enter_async_context(open_reading())
        agent = await one.get()
        attach = attach or partial(attach_process, grace=agent.profile.grace.terminate)
        name = f"acp {agent.kind}"
        yield _Backend(name, processes, settings, reading, look, attach)


@asynccontextmanager
async def open_acp(
    command: str | os.PathLike[str] | Sequence[str],
    *,
    profile: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    mode: str | None = None,
    mcp_servers: Sequence[Mapping[str, Any]] = (),
    authenticate: str | None = None,
    shared: bool = False,
) -> AsyncGenerator[Backend[AcpContent], None]:
    """Run an agent that speaks the Agent Client Protocol, and start turns on it.

    Args:
        command: the program, or a whole command line: `["gemini", "--experimental-acp"]`.
        profile: what is known of the agent: `"copilot"`, `"omp"`, `"cursor"`, `"codex"`,
            `"claude"`, `"opencode"`, `"gemini"`, `"qwen"` or `"generic"`. By default the one that
            the command line, or what the agent says of itself, is sure to mean; else `"generic"`.
        cwd: where sessions work; by default the current folder.
        env: laid over this process's environment, which agents need for their own homes, keys and
            proxies; None takes a variable away.
        mode: the mode of each session, as the agent names it; None leaves its own.
        mcp_servers: of each session, as the protocol declares them.
        authenticate: the id of the method by which the agent is authenticated once it is started;
            None where it was logged in before.
        shared: whether one process serves all rooms. No turn can then be killed, and where an
            agent does not obey, its room waits for the bound and goes on in a fresh session.

    Raises:
        BackendRefused: the agent is not installed, speaks another version of the protocol, or is
            one whose stop cannot be told the end of; the text has what to take.
        BackendLost: the agent was lost before it was ready, again and again.
        ValueError: there is no such profile; the text lists those that there are. Or the command is
            a whole line in one text.

    **Cancellation:** reaches the agent only after the body has left. Its processes are then ended
    all at once, within the graces of its profile, which are three seconds at most.
    """
    words = [os.fspath(command)] if isinstance(command, str | os.PathLike) else list(command)
    _check_words(words)
    folder = _absolute(cwd)
    launch = Launch(
        words,
        find_profile(profile, words),
        recognise=profile is None,
        cwd=folder,
        env=env or {},
        authenticate=authenticate,
    )
    settings = Settings(folder, tuple(mcp_servers), mode)
    async with open_backend(partial(open_agent, launch), settings, shared=shared) as backend:
        yield backend


def _check_words(words: Sequence[str]) -> None:
    if not words:
        raise ValueError("command is empty: name the agent's program")
    if len(words) == 1 and len(line := words[0].split()) > 1 and not os.path.exists(words[0]):
        raise ValueError(f"command is a program, or a list of words: {line}")


def _absolute(cwd: str | os.PathLike[str] | None) -> str:
    return os.path.abspath(os.getcwd() if cwd is None else cwd)
