"""Opening Claude: the backend that gives each room a process, and starts its turns there."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import ClassVar, TypeAlias, final
from uuid import uuid4

import attrs

from ...abc import Backend, RemoteTurn, Request
from ...transports.dialect import Dialect, to_blocks
from ...transports.offspring import Look, Offspring
from ...transports.orphans import OrphanedTurn, ProcessAddress, attach_process
from ...transports.peer import Peer, open_peer
from ...transports.process import Grace
from ...transports.proctable import find_marked, ticks_now
from ...transports.restart import Restartings, open_restartings
from ...transports.version import check_version
from ._orphan import find_home, tell
from ._program import FLOOR, INSTALL, TOOL, Command, Settings, find_command, mark_of
from ._session import ClaudeSession, OpenProcess, add_process
from ._turn import ClaudeContent, ClaudeTurn
from ._wire import TOPIC, StreamJson, Unasked, topic_of

_DIALECT = StreamJson()
_READY_WITHIN = 60.0
# It does not leave on a closed stdin while a turn runs. On SIGTERM, it ends its tools first.
_GRACE = Grace(close=0.5, terminate=1.5, kill=1.0)

Attach: TypeAlias = Callable[[str], OrphanedTurn]
"""Takes up the turn at an address."""


@final
class _Backend:
    name: ClassVar[str] = "claude"
    announces: ClassVar[bool] = True

    def __init__(
        self,
        processes: Restartings,
        open_process: OpenProcess,
        attach: Attach,
        look: Look = find_marked,
    ) -> None:
        self._processes = processes
        self._open_process = open_process
        self._attach = attach
        self._look = look

    async def start(self, request: Request[ClaudeContent]) -> RemoteTurn:
        # First of all, for here nothing is there yet that an error could leave.
        body = {"role": "user", "content": to_blocks(request.content)}
        session = await self._session(request)
        peer = await self._process(session)
        began, message = ticks_now(), str(uuid4())
        where = attrs.evolve(
            peer.process.address, session=session.number, turn=message, tool=TOOL, since=began
        )
        await self._announce(request, session, where)
        offspring = Offspring(mark_of(session.mark), TOOL, began, self._look)
        topic = peer.rpc.subscribe(TOPIC)
        session.asked = True
        # It is not waited for: an interrupt that comes next is written, and read, after it.
        peer.rpc.notify(
            "user",
            {"message": body, "parent_tool_use_id": None, "session_id": "", "uuid": message},
        )
        return ClaudeTurn(peer, topic, session, where, offspring)

    async def _announce(
        self, request: Request[ClaudeContent], session: ClaudeSession, where: ProcessAddress
    ) -> None:
        announced = False
        try:
            await request.announce(str(where))
            announced = True
        finally:
            if not announced and not session.asked:
                # Nobody will know of its process, and nobody shall wait for its end.
                session.process.end_soon()

    async def attach(self, address: str) -> RemoteTurn:
        turn = self._attach(address)
        await turn.look()
        return turn

    async def _session(self, request: Request[ClaudeContent]) -> ClaudeSession:
        kept = request.session
        if kept is None or request.previous is not None:
            if isinstance(kept, ClaudeSession):
                # Its last turn may still be at work, and nobody will ever continue it.
                await kept.process.end()
            return self._add(ClaudeSession(str(uuid4())))
        if isinstance(kept, ClaudeSession):
            return kept
        return self._add(ClaudeSession(str(kept), asked=True, answered=True))

    def _add(self, session: ClaudeSession) -> ClaudeSession:
        return add_process(session, self._processes, self._open_process)

    async def _process(self, session: ClaudeSession) -> Peer:
        peer = None
        try:
            peer = await session.process.get()
            return peer
        finally:
            if peer is None and not session.asked:
                # Nobody will know of it: it is ended, also where this task has no time to wait.
                await session.process.end()

    async def forget(self, session: object) -> None:
        """End the room's process; Claude keeps the conversation on disk."""
        if isinstance(session, ClaudeSession):
            await session.process.end()


@asynccontextmanager
async def open_claude(
    command: Command | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    model: str | None = None,
    permission_mode: str | None = None,
    allowed_tools: Sequence[str] = (),
    disallowed_tools: Sequence[str] = (),
    setting_sources: Sequence[str] | None = None,
    background: bool = False,
    args: Sequence[str] = (),
) -> AsyncGenerator[Backend[ClaudeContent], None]:
    """Start turns on Claude Code, each room in a process of its own.

    Args:
        command: the program, or the beginning of a command line; by default the claude on PATH,
            else the one that the package claude-agent-sdk brings.
        cwd: where Claude works.
        env: laid over this process's environment, which Claude needs for its own home, its keys
            and its proxies; None takes a variable away.
        model: as Claude's own setting; None leaves it to Claude's configuration, as the next.
        permission_mode: `"default"`, `"acceptEdits"`, `"plan"`, `"bypassPermissions"`, and what
            else Claude has.
        allowed_tools: what it may use without asking, as `"Bash(git log:*)"`.
        disallowed_tools: what it may not use.
        setting_sources: which settings it loads, of `"user"`, `"project"`, `"local"`; None: all,
            as the program does by itself.
        background: whether turns may leave background tasks, monitors and timers behind. They
            wake Claude, which then begins turns that no room has asked for: those are interrupted
            as soon as they begin.
        args: further options of the program.

    Raises:
        BackendRefused: claude is not installed, or too old; the text has the command that
            installs it.

    **Cancellation:** reaches Claude only after the body has left. Every process is then ended
    within about four seconds, whatever it does.
    """
    given = dict(env or {})
    settings = Settings(
        find_command(command, given),
        _absolute(cwd),
        given,
        model,
        permission_mode,
        tuple(allowed_tools),
        tuple(disallowed_tools),
        None if setting_sources is None else tuple(setting_sources),
        background,
        tuple(args),
    )
    await check_version(
        [*settings.command, "--version"],
        FLOOR,
        name="claude",
        env=settings.to_env("version"),
        install=INSTALL,
    )
    async with open_restartings() as processes:
        attach = partial(
            attach_process, grace=_GRACE.terminate, tell=partial(tell, find_home(given))
        )
        yield _Backend(processes, partial(_open_process, settings), attach)


def _absolute(cwd: str | os.PathLike[str] | None) -> str | None:
    return None if cwd is None else os.path.abspath(cwd)


def _open_process(
    settings: Settings, mark: str, session: str, resume: bool, dialect: Dialect = _DIALECT
) -> AbstractAsyncContextManager[Peer]:
    unasked = Unasked()
    return open_peer(
        settings.to_command(session, resume),
        topic_of=topic_of,
        fallback=unasked.hear,
        handshake=unasked.greet,
        patience=_READY_WITHIN,
        dialect=dialect,
        name="claude",
        cwd=settings.cwd,
        env=settings.to_env(mark),
        install=INSTALL,
        grace=_GRACE,
    )
