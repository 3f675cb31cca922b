"""What a turn of Claude starts and leaves: background tasks, and processes of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import final

import attrs

from ..._errors import BackendLost
from ...transports.jsonrpc import Connection, Incoming, RpcError
from ...transports.offspring import Offspring
from ...transports.proctable import TableEntry

_PATIENCE = 1.0


@attrs.frozen
class BackgroundTask:
    """A task that Claude runs on after the turn that started it: a command, an agent, a monitor.

    Attributes:
        number: Claude's id of it.
        kind: what it is.
        text: Claude's description.
    """

    number: str
    kind: str = attrs.field(default="", eq=False)
    text: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"background task {self.number} ({self.kind}): {self.text}"


@final
class Left:
    """What one turn has started and left."""

    def __init__(self, rpc: Connection, offspring: Offspring) -> None:
        self._rpc = rpc
        self._offspring = offspring
        self._tasks: dict[str, BackgroundTask] = {}

    def note(self, incoming: Incoming) -> None:
        """Learn from a notification of the turn which tasks there are."""
        params = incoming.params
        number = str(params.get("task_id"))
        if incoming.method == "system/task_started" and params.get("is_backgrounded"):
            kind, text = str(params.get("task_type")), str(params.get("description"))
            self._tasks[number] = BackgroundTask(number, kind, text)
        elif incoming.method == "system/task_notification":
            self._tasks.pop(number, None)

    async def find(self) -> list[BackgroundTask | TableEntry]:
        """What is still there of it.

        **Cancellation:** nothing is left.
        """
        tasks = [] if self._rpc.broken.is_set() else self._tasks.values()
        return [*tasks, *await self._offspring.find()]

    async def end(self, found: Sequence[object]) -> list[BackgroundTask | TableEntry]:
        """End what was found; return what is still alive.

        **Cancellation:** what has been told to end stays told.
        """
        # A task whose process just ends would wake Claude, to tell it; one that is stopped waits
        # for the next message. So Claude is told first.
        tasks = await self._stop([one for one in found if isinstance(one, BackgroundTask)])
        processes = [one for one in found if isinstance(one, TableEntry)]
        return [*tasks, *await self._offspring.end(processes)]

    async def _stop(self, tasks: Sequence[BackgroundTask]) -> list[BackgroundTask]:
        """Have Claude stop them; those that it was not seen to stop."""
        left = list(tasks)
        # One that does not answer for one of them is not asked about the next.
        with suppress(BackendLost):
            for task in tasks:
                # One that it does not know has ended.
                with suppress(RpcError):
                    params = {"task_id": task.number}
                    await self._rpc.call_within(_PATIENCE, "stop_task", params)
                left.remove(task)
                self._tasks.pop(task.number, None)
        # With its process, its tasks are gone.
        return [] if self._rpc.broken.is_set() else left
