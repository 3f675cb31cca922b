"""What the tools of an agent's turn have started: found by what they carry in their environment."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, final

import attrs
import trio

from .._errors import BackendLost
from .proctable import Marked, TableEntry, end_processes, find_marked

__all__ = ["Look", "Offspring", "make_mark", "open_clearing"]

_CLEARED_WITHIN = 1.5

Look: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Sequence[Marked]]]


def make_mark(name: str, value: str = "") -> tuple[str, str]:
    """A variable and its value, for the environment of a process that is about to be started.

    Each has a name of its own. What a turnstop within an agent of another one starts has its mark
    besides the outer one, and so the outer one still finds it when nothing is left in between.
    Not where both agents are of one kind, and the inner one takes away what tells a tool.

    Args:
        name: what its name begins with.
        value: what tells it from others; by default, nobody else has it.
    """
    # A shell drops a variable that it could not name, and a value may be anything.
    own = hashlib.sha256(value.encode()).hexdigest()[:32] if value else secrets.token_hex(16)
    return f"{name}_{own}", "1"


@final
@attrs.frozen
class Offspring:
    """The processes of one turn's tools, wherever they went: setsid and nohup do not hide them.

    An agent's process is begun with a mark in its environment, which all that it starts inherits.
    What its tools start carries more: that tells them from the agent's own helpers. What an earlier
    turn has left goes on to start others, such as a server its workers: they are not this turn's.

    Attributes:
        mark: a variable that only this agent process was begun with, and its value.
        tool: what the agent adds for its tools; None in place of a value: whatever it is.
        since: when the turn began, in `proctable.ticks_now`.
        look: how the process table is read.
    """

    mark: tuple[str, str]
    tool: Mapping[str, str | None]
    since: int
    look: Look = find_marked

    async def find(self) -> list[TableEntry]:
        """Those that are alive.

        **Cancellation:** leaves the looking thread to end by itself; nothing else is left.
        """
        found = await self.look(dict([self.mark]))
        tools = [one.process for one in found if self._is_tools(one)]
        earlier = self._earlier(tools, [one.process for one in found])
        return [one for one in tools if one.pid not in earlier]

    async def end(self, found: Sequence[TableEntry]) -> list[TableEntry]:
        """End these, and what they start on their way out. Return what is still alive.

        **Cancellation:** what was signalled stays signalled; what had only SIGTERM may live on.
        """
        return await end_processes(self.find, found)

    def _is_tools(self, found: Marked) -> bool:
        carried = found.environment
        return all(
            name in carried and value in (None, carried[name]) for name, value in self.tool.items()
        )

    def _earlier(self, tools: Sequence[TableEntry], found: Sequence[TableEntry]) -> set[int]:
        """The tools' processes from before the turn, what they descend to and their sessions."""
        pids = {one.pid for one in tools if one.started < self.since}
        # A tool may be begun in the agent's own session, which is no tool's.
        agents = {one.session for one in found if one not in tools}
        sessions = {one.session for one in tools if one.pid in pids} - agents
        while more := {
            one.pid
            for one in found
            if one.pid not in pids and (one.parent in pids or one.session in sessions)
        }:
            pids |= more
        return pids


@asynccontextmanager
async def open_clearing(mark: tuple[str, str]) -> AsyncGenerator[None, None]:
    """End what carries this mark, wherever it went, when the body has left.

    **Cancellation:** the same; it takes a second and a half at most.
    """

    async def find() -> list[TableEntry]:
        return [one.process for one in await find_marked(dict([mark]))]

    try:
        yield
    finally:
        with trio.move_on_after(_CLEARED_WITHIN, shield=True), suppress(BackendLost):
            await end_processes(find, grace=0.2, patience=1.0)
