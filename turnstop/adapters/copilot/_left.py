"""What a turn of Copilot starts and leaves: background tasks, processes, and asyncio tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias, final

import attrs

from ...transports.aio import Bridged
from ...transports.offspring import Look, Offspring
from ...transports.proctable import TableEntry, ticks_now
from . import _sdk
from ._cli import Cli
from ._session import CopilotSession

_ALIVE = ("running", "idle", "pending")
# What the CLI adds to the environment of its tools: the first with the value 1, and whose it is.
_TOOL = "COPILOT_CLI"
_TOOL_SESSION = "COPILOT_AGENT_SESSION_ID"
_TOOL_RUNS = "_execute_tool_and_respond"
_PATIENCE = 1.0


@attrs.frozen
class BackgroundTask:
    """A task that Copilot runs on after the turn that started it: a command, or an agent.

    Attributes:
        number: Copilot's id of it.
        kind: what it is.
        text: Copilot's description.
    """

    number: str
    kind: str = attrs.field(default="", eq=False)
    text: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"background {self.kind} {self.number}: {self.text}"


@attrs.frozen
class Untold:
    """Stands for the background tasks that there may be: Copilot was asked, and did not say.

    Attributes:
        why: what came in the place of their list.
    """

    why: str

    def __str__(self) -> str:
        return f"unknown background tasks: copilot has not listed them: {self.why}"


Found: TypeAlias = BackgroundTask | Untold | TableEntry | Bridged


@final
class Left:
    """What one turn has started and left."""

    def __init__(self, cli: Cli, session: CopilotSession, look: Look) -> None:
        self._cli = cli
        self._session = session
        self._since = datetime.now(UTC)
        tool = {_TOOL: "1", _TOOL_SESSION: session.number}
        self._offspring = Offspring(cli.address.mark, tool, ticks_now(), look)

    def to_address(self, message: str = "") -> str:
        """Where the turn is, by the name that Copilot has given to its message, if it has one."""
        session, own = self._session.number, self._offspring
        address = attrs.evolve(
            self._cli.address, session=session, turn=message, tool=own.tool, since=own.since
        )
        return str(address)

    async def find(self) -> list[Found]:
        """What is still there of it.

        **Cancellation:** nothing is left.
        """
        aio = self._cli.aio
        bridged = (*aio.owned(), *aio.find(self._is_tool))
        return [*await self._tasks(), *await self._offspring.find(), *bridged]

    async def end(self, found: Sequence[object]) -> list[Found]:
        """End what was found; return what is still alive.

        **Cancellation:** what has been told to end stays told.
        """
        tasks = [one for one in found if isinstance(one, BackgroundTask)]
        for task in tasks:
            await self._cancel(task)
        left = await self._tasks() if tasks else []
        known = not any(isinstance(one, Untold) for one in left)
        processes = [one for one in found if isinstance(one, TableEntry)]
        bridged = tuple(one for one in found if isinstance(one, Bridged))
        return [
            *(one for one in found if isinstance(one, Untold)),
            *(task for task in tasks if task in left or not known),
            *await self._offspring.end(processes),
            *(await self._cli.aio.sweep(bridged) if bridged else ()),
        ]

    def _is_tool(self, coroutine: Any) -> bool:
        """Whether it runs a tool that the application gave to this session.

        The SDK starts it where it hears of the call, which is no turn's.
        """
        if getattr(coroutine, "__name__", "") != _TOOL_RUNS or coroutine.cr_frame is None:
            return False
        return coroutine.cr_frame.f_locals.get("self") is self._session.conversation

    async def _tasks(self) -> list[BackgroundTask | Untold]:
        if self._cli.broken.is_set():
            return []
        try:
            told = await self._cli.call_unowned(
                _sdk.list_tasks, self._session.conversation, within=_PATIENCE
            )
            return [_read(one) for one in told if self._is_mine(one)]
        except Exception as error:
            # An old CLI has no such list, and one that has ended runs nothing.
            nothing = self._cli.broken.is_set() or _sdk.is_unknown(error)
            return [] if nothing else [Untold(str(error) or repr(error))]

    def _is_mine(self, task: Any) -> bool:
        status = getattr(task.status, "value", task.status)
        return status in _ALIVE and task.started_at >= self._since

    async def _cancel(self, task: BackgroundTask) -> None:
        with suppress(Exception):  # Whether it has ended is asked next.
            await self._cli.call_unowned(
                _sdk.cancel_task, self._session.conversation, task.number, within=_PATIENCE
            )


def _read(task: Any) -> BackgroundTask:
    text = getattr(task, "command", None) or task.description
    return BackgroundTask(str(task.id), str(task.type), str(text))
