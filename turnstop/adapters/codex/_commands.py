"""The shell commands that a turn started: which they are, and how they are ended.

codex puts the ids of the thread, of the call, and of the thread that all its sub-agents go back to
into the environment of each command. The calls of this turn are known from its items; of a call
whose item never came, since the turn was stopped in between, and of its sub-agents' calls, the time
tells: all their processes began after the turn, and a room has one turn at a time. The calls of
earlier turns are known too: what they left may start processes at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any, TypeAlias, final

import attrs

from ..._errors import BackendLost
from ...transports.jsonrpc import Connection, Incoming, RpcError
from ...transports.proctable import Marked, TableEntry, end_processes, find_marked, has_table

Look: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Sequence[Marked]]]
"""Finds the processes that carry one of these marks."""

_THREAD = "CODEX_THREAD_ID"
ROOT = "CODEX_SESSION_ID"
"""What a command of the thread, and of all its sub-agents, has its id in."""
_CALL = "CODEX_TOOL_CALL_ID"
# This process may run in a command of codex's itself, and that is another one.
OUTER = (_THREAD, ROOT, _CALL)
_LIST = "thread/backgroundTerminals/list"
_TERMINATE = "thread/backgroundTerminals/terminate"
_PATIENCE = 0.5


@attrs.frozen
class ShellCommand:
    """A command of a turn that still runs: what of it the process table and codex show.

    Attributes:
        call: codex's id of the call.
        command: the command line.
        processes: its processes.
        terminal: codex's id of the terminal, where codex still lists it.
    """

    call: str
    command: str
    processes: tuple[TableEntry, ...] = ()
    terminal: str | None = None

    def __str__(self) -> str:
        pids = ", ".join(str(process.pid) for process in self.processes)
        return f"{self.command} (pid {pids})" if pids else self.command


@final
class Commands:
    """The commands of one turn, and of the sub-agents that it set to work.

    Attributes:
        calls: the turn's calls that are known, with the command of each.
    """

    def __init__(
        self,
        rpc: Connection,
        thread: str,
        began: int,
        agents: Set[str],
        earlier: Set[str],
        look: Look = find_marked,
    ) -> None:
        self._rpc = rpc
        self._look = look
        self._thread = thread
        self._agents = agents
        self._began = began
        self._earlier = earlier
        self.calls: dict[str, str] = {}

    def note(self, incoming: Incoming) -> None:
        """Learn of a command from a notification of the turn."""
        item = incoming.params.get("item")
        if isinstance(item, dict) and item.get("type") == "commandExecution":
            self.calls[str(item.get("id"))] = str(item.get("command", ""))

    async def find(self) -> list[ShellCommand]:
        """What runs of them now.

        **Cancellation:** nothing is left.
        """
        groups = await self._processes()
        terminals = await self._terminals()
        found = []
        for call in {**groups, **terminals}:
            processes = tuple(groups.get(call, ()))
            command = self.calls.get(call) or (processes[0].command if processes else call)
            found.append(ShellCommand(call, command, processes, terminals.get(call)))
        return found

    async def end(self, found: Sequence[ShellCommand]) -> list[ShellCommand]:
        """End what was found, and whatever the turn's commands have started since.

        Returns:
            what is still there.

        **Cancellation:** what has been told to end stays told.
        """
        processes = [process for command in found for process in command.processes]
        alive = await end_processes(self._all_processes, processes)
        # codex drops a terminal by itself when its process has ended.
        unseen = [command.terminal for command in found if not command.processes]
        for terminal in unseen:
            params = {"threadId": self._thread, "processId": terminal}
            await self._ask(_TERMINATE, params)
        return await self._survivors(alive) if alive or unseen else []

    async def _survivors(self, alive: Sequence[TableEntry]) -> list[ShellCommand]:
        left = await self.find()
        named = {process for command in left for process in command.processes}
        strays = [process for process in alive if process not in named]
        return [*left, *(ShellCommand("", stray.command, (stray,)) for stray in strays)]

    async def _all_processes(self) -> list[TableEntry]:
        groups = await self._processes()
        return [process for processes in groups.values() for process in processes]

    async def _processes(self) -> dict[str, list[TableEntry]]:
        """The live processes of this turn's calls, the oldest of each call first."""
        groups: dict[str, list[TableEntry]] = {}
        for marked in await self._look({_THREAD: self._thread, ROOT: self._thread}):
            thread = marked.environment.get(_THREAD)
            if thread == self._thread or thread in self._agents:
                call = marked.environment.get(_CALL, "")
                groups.setdefault(call, []).append(marked.process)
        for processes in groups.values():
            processes.sort(key=lambda process: process.started)
        return {
            call: processes
            for call, processes in groups.items()
            if call in self.calls
            or (call not in self._earlier and processes[0].started >= self._began)
        }

    async def _terminals(self) -> dict[str, str]:
        """codex's id of each terminal of this turn's calls that it still lists."""
        found: dict[str, str] = {}
        params: dict[str, Any] = {"threadId": self._thread}
        while self.calls:
            page = await self._ask(_LIST, params)
            listed = page.get("data") if isinstance(page, dict) else None
            for one in listed if isinstance(listed, list) else ():
                if one.get("itemId") in self.calls:
                    found[str(one["itemId"])] = str(one.get("processId"))
            cursor = page.get("nextCursor") if isinstance(page, dict) else None
            if not cursor:
                break
            params["cursor"] = cursor
        return found

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask codex, which may be dead or deaf; where there is a process table, it will do."""
        try:
            return await self._rpc.call_within(_PATIENCE, method, params)
        except (RpcError, BackendLost):
            if has_table():
                return None
            raise
