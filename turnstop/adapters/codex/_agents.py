"""The sub-agents that a turn set to work: threads of their own, which an interrupt does not reach.

codex keeps an interrupted turn's sub-agents working. Each of their turns names the turn that it
goes back to as its root, however deep the agents are nested: that is how a turn's own are told from
those that an earlier turn left working.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, final

import attrs
import trio

from ..._errors import BackendLost
from ...transports.jsonrpc import Connection, Incoming, RpcError

_PATIENCE = 0.5
_PAUSE = 0.01
_SET_TO_WORK = ("spawnAgent", "sendInput", "resumeAgent", "followupTask")
_ROUNDS = 20
_TASK = 80


@attrs.frozen
class SubAgent:
    """A sub-agent that still works for a turn.

    Attributes:
        thread: its thread.
        turn: its own turn, which goes on.
        task: how its thread begins.
    """

    thread: str
    turn: str
    task: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"sub-agent {self.thread}: {self.task}"


@attrs.frozen
class UnknownAgents:
    """What is left where codex has not told in time: there may be sub-agents, or none."""

    def __str__(self) -> str:
        return "unknown: codex has not told of its sub-agents"


@final
class Agents:
    """The sub-agents of one turn.

    Attributes:
        threads: the threads of those that are known, the idle ones too.
    """

    def __init__(self, rpc: Connection, thread: str, turn: str) -> None:
        self.threads: set[str] = set()
        self._rpc = rpc
        self._thread = thread
        self._turn = turn

    def note(self, incoming: Incoming) -> list[str]:
        """Learn of sub-agents from a notification; the threads that are new."""
        item = incoming.params.get("item")
        if not isinstance(item, dict) or item.get("tool") not in _SET_TO_WORK:
            return []
        named = item.get("receiverThreadIds")
        threads = [one for one in named if isinstance(one, str)] if isinstance(named, list) else []
        fresh = [thread for thread in threads if thread not in self.threads]
        self.threads.update(fresh)
        return fresh

    async def find(self) -> list[SubAgent | UnknownAgents]:
        """Those that work for the turn now. A codex that is gone, or knows no such call, has none.

        **Cancellation:** nothing is left.
        """
        found: list[SubAgent | UnknownAgents] = []
        try:
            for thread in await self._descendants():
                number = str(thread.get("id"))
                turn = await self._last_turn(number)
                if turn.get("rootTurnId") != self._turn:
                    continue
                self.threads.add(number)
                if turn.get("status") == "inProgress":
                    task = str(thread.get("preview", ""))[:_TASK]
                    found.append(SubAgent(number, str(turn.get("id")), task))
        except RpcError:
            pass
        except BackendLost as lost:
            # They are gone with the process. One that hangs may go on, and they with it.
            if not lost.gone:
                found.append(UnknownAgents())
        return found

    async def end(
        self, found: Sequence[SubAgent | UnknownAgents]
    ) -> list[SubAgent | UnknownAgents]:
        """Interrupt them, and those that they have set to work meanwhile.

        Returns:
            those that still work, or what is not known of them.

        **Cancellation:** what has been told to end stays told.
        """
        for _ in range(_ROUNDS):
            known = [one for one in found if isinstance(one, SubAgent)]
            if not known:
                break
            for agent in known:
                params = {"threadId": agent.thread, "turnId": agent.turn}
                # A refusal is no end: codex is asked again who still works.
                with suppress(BackendLost, RpcError):
                    await self._rpc.call_within(_PATIENCE, "turn/interrupt", params)
            if found := await self.find():
                await trio.sleep(_PAUSE)
        return list(found)

    async def _descendants(self) -> list[dict[str, Any]]:
        params: dict[str, Any] = {"ancestorThreadId": self._thread, "useStateDbOnly": True}
        found: list[dict[str, Any]] = []
        while True:
            page = await self._rpc.call_within(_PATIENCE, "thread/list", params)
            # A codex that does not know the filter tells of everybody's threads.
            found += [one for one in _rows(page) if one.get("parentThreadId")]
            cursor = page.get("nextCursor") if isinstance(page, dict) else None
            if not cursor:
                return found
            params["cursor"] = cursor

    async def _last_turn(self, thread: str) -> dict[str, Any]:
        params = {"threadId": thread, "limit": 1}
        try:
            rows = _rows(await self._rpc.call_within(_PATIENCE, "thread/turns/list", params))
        except RpcError:
            return {}  # One that cannot be read must not hide the others.
        return rows[0] if rows else {}


def _rows(page: object) -> list[dict[str, Any]]:
    rows = page.get("data") if isinstance(page, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
