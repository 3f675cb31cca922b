"""What a turn of opencode leaves at work: its sub-agents, and the processes of its shell tool.

A sub-agent is a session of its own, whose parent is the turn's. The shell tool's processes run in
sessions of the system's that no signal to the server reaches; the server marks the environment of
each with the session and the call that it belongs to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias, final

import attrs
import trio

from ..._errors import BackendError
from ...transports.offspring import Look
from ...transports.proctable import TableEntry, end_processes
from ._events import Frame
from ._plugin import CALL, SESSION
from ._wire import NotThere, Wire

Left: TypeAlias = "SubAgent | UnknownAgents | TableEntry"

_ROUNDS = 20
_PAUSE = 0.05


@attrs.frozen
class SubAgent:
    """A sub-agent that still works: its session, and what that is called."""

    session: str
    title: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"sub-agent {self.session}: {self.title}"


@attrs.frozen
class UnknownAgents:
    """What is left where opencode has not told: there may be sub-agents, or none."""

    def __str__(self) -> str:
        return "children unknown: opencode has not told of its sub-agents"


@final
class SubAgents:
    """The sub-agents of one turn.

    Attributes:
        sessions: those that are known, the idle ones too.
        unsure: whether there may be others, since some of what was said was missed.
    """

    def __init__(self, wire: Wire, session: str, earlier: Collection[str]) -> None:
        self.sessions: set[str] = set()
        self.unsure = False
        self._wire = wire
        self._session = session
        self._earlier = earlier
        self._titles: dict[str, str] = {}

    async def enumerate(self) -> None:
        """Ask opencode for all of them, where some are known or may have been missed.

        Raises:
            BackendError: it did not tell.

        **Cancellation:** nothing is left.
        """
        if not (self.sessions or self.unsure):
            return
        todo, seen = [self._session], set[str]()
        while todo:
            parent = todo.pop()
            seen.add(parent)
            for child in await self._children(parent):
                number = str(child.get("id"))
                if number not in seen and number not in self._earlier:
                    self._titles[number] = str(child.get("title", ""))
                    self.sessions.add(number)
                    todo.append(number)

    async def _children(self, parent: str) -> list[Frame]:
        try:
            return await self._wire.listed(f"/session/{parent}/children")
        except NotThere:
            return []

    async def find(self) -> list[SubAgent | UnknownAgents]:
        """Those that work now.

        **Cancellation:** nothing is left.
        """
        if not (self.sessions or self.unsure):
            return []
        try:
            await self.enumerate()
            status = await self._wire.get("/session/status")
        except BackendError:
            return [UnknownAgents()]
        busy = sorted(one for one in self.sessions if one in status)
        return [SubAgent(one, self._titles.get(one, "")) for one in busy]

    async def end(
        self, found: Sequence[SubAgent | UnknownAgents]
    ) -> list[SubAgent | UnknownAgents]:
        """Abort them, and those that they have begun meanwhile. Return those that still work.

        **Cancellation:** what has been told to end stays told.
        """
        for _ in range(_ROUNDS):
            for agent in found:
                if isinstance(agent, SubAgent):
                    try:
                        await self._wire.post(f"/session/{agent.session}/abort")
                    except (BackendError, NotThere):
                        continue
            found = await self.find()
            if not any(isinstance(one, SubAgent) for one in found):
                break
            await trio.sleep(_PAUSE)
        return list(found)


@final
@attrs.frozen
class Processes:
    """The processes of one turn's tools.

    Attributes:
        mark: the variable that all that this server starts carries, and its value; None where
            the server is not ours, and its processes may be another machine's.
        began: when the turn began, in ticks.
        earlier: the calls of earlier turns, whose processes start others at any time.
        look: how the process table is read.
    """

    mark: tuple[str, str] | None
    began: int
    earlier: Collection[str]
    look: Look

    async def find(self, sessions: Collection[str]) -> list[TableEntry]:
        """Those of these sessions that are alive.

        **Cancellation:** nothing is left.
        """
        if self.mark is None:
            return []
        return [
            one.process
            for one in await self.look(dict([self.mark]))
            if one.environment.get(SESSION) in sessions
            and one.environment.get(CALL) not in self.earlier
            and one.process.started >= self.began
        ]

    async def end(self, sessions: Collection[str], found: Sequence[TableEntry]) -> list[TableEntry]:
        """End these, and what they start on their way out. Return what is still alive.

        **Cancellation:** what was signalled stays signalled.
        """

        async def find() -> list[TableEntry]:
            return await self.find(sessions)

        return await end_processes(find, found)
