"""What a room keeps of Claude: its conversation, and the process that has it in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias, final

import attrs

from ..._errors import BackendLost, BackendRefused
from ...transports.peer import Peer
from ...transports.restart import Restarting, Restartings

OpenProcess: TypeAlias = Callable[[str, str, bool], AbstractAsyncContextManager[Peer]]
"""Runs Claude with a mark and a session's id; whether the session is to be resumed."""

_UNKNOWN = "No conversation found"
# How it tells of what stands on its command line.
_WRONG = ("error: option", "error: unknown option", "Error processing --")


@final
@attrs.define(eq=False, repr=False)
class ClaudeSession:
    """A conversation, in a process of its own, which is begun anew when it is needed again.

    Attributes:
        number: Claude's id of the session, which a command such as `/clear` replaces.
        mark: what its processes carry in their environment; it stays.
        process: the process.
        asked: whether it was ever sent a message.
        answered: whether a turn of it has ended: Claude has it on disk then.
        lifecycle: whether it tells of each message what becomes of it, and cancels one that still
            waits; None as long as it has not said so.
    """

    number: str
    asked: bool = False
    answered: bool = False
    lifecycle: bool | None = None
    mark: str = attrs.field(init=False)
    process: Restarting[Peer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.mark = self.number

    def __str__(self) -> str:
        return self.number

    def __repr__(self) -> str:
        return f"<ClaudeSession {self.number}>"


def add_process(
    session: ClaudeSession, processes: Restartings, open_process: OpenProcess
) -> ClaudeSession:
    """Give the session its process, which does not run yet."""

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Peer, None]:
        async with AsyncExitStack() as stack:
            try:
                peer = await stack.enter_async_context(
                    open_process(session.mark, session.number, session.asked)
                )
            except BackendLost as lost:
                if any(words in str(lost) for words in _WRONG):
                    # It will say so each time.
                    raise BackendRefused(f"claude does not take its options: {lost}") from lost
                if _UNKNOWN not in str(lost):
                    raise
                if session.answered:
                    raise BackendRefused(
                        f"claude cannot resume the room's session: {lost}; "
                        "retire the room to begin a new conversation"
                    ) from lost
                # It was lost before Claude had written anything down: there is nothing to resume.
                peer = await stack.enter_async_context(
                    open_process(session.mark, session.number, False)
                )
            yield peer

    session.process = processes.add(connect)
    return session
