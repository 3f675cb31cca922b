"""An ACP agent by its bare protocol (version 1): a process a room, ordered writes, and a cancel.

The prompt's answer is the end, and so is an error answer after a cancel. Permissions that are
pending when the cancel has left are answered `cancelled`, as the protocol asks of a client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from ..._ending import Ending
from ..._service import open_service
from ..._unwrap import open_private_nursery
from .raw import RawRun, RawRunner, Refused
from .raw_lines import Calls, Lines, Message, Places, open_lines, open_places

_INITIALIZE = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    },
    "clientInfo": {"name": "bench", "version": "1"},
}
_TAKEN_BACK = {"outcome": {"outcome": "cancelled"}}


class _Agent:
    """One agent, with one session."""

    def __init__(self, lines: Lines, nursery: trio.Nursery) -> None:
        self.calls = Calls(lines, self._hear, {"jsonrpc": "2.0"})
        self._nursery = nursery
        self._session = ""
        self._run: RawRun | None = None
        self._pending: list[Message] = []

    async def greet(self, cwd: str, mode: str | None) -> None:
        await self.calls.call("initialize", _INITIALIZE)
        made = await self.calls.call("session/new", {"cwd": cwd, "mcpServers": []})
        self._session = made["sessionId"]
        if mode:
            await self.calls.call("session/set_mode", {"sessionId": self._session, "modeId": mode})

    def _hear(self, message: Message) -> None:
        if "id" not in message:
            return
        if message["method"] != "session/request_permission":
            self._nursery.start_soon(self.calls.refuse, message)
        elif self._run is not None and self._run.grants:
            options = message["params"]["options"]
            # Least is given: this once, where it may be told.
            yes = next(one for one in options if one["kind"] == "allow_once")
            chosen = {"outcome": {"outcome": "selected", "optionId": yes["optionId"]}}
            self._nursery.start_soon(self.calls.answer, message, chosen)
        elif self._run is not None:
            self._pending.append(message)
            self._run.pending.set()

    async def work(self, run: RawRun, content: str) -> None:
        self._run = run
        asked = {"sessionId": self._session, "prompt": [{"type": "text", "text": content}]}
        reason = ""
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._cancel, run)
            try:
                answer = await self.calls.call("session/prompt", asked, run.left.set)
                reason = answer["stopReason"]
            except Refused:
                reason = "cancelled" if run.sent_at is not None else "refused"
            at = trio.current_time()
            nursery.cancel_scope.cancel()
        self._pending.clear()
        endings = {"cancelled": Ending.STOPPED, "refused": Ending.FAILED}
        run.note_end(endings.get(reason, Ending.FINISHED), at)

    async def _cancel(self, run: RawRun) -> None:
        await run.left.wait()
        await run.asked.wait()
        await self.calls.notify("session/cancel", {"sessionId": self._session}, run.note_sent)
        while self._pending:
            await self.calls.answer(self._pending.pop(), _TAKEN_BACK)


@asynccontextmanager
async def _open_agent(
    command: Sequence[str], cwd: str, env: Mapping[str, str], mode: str | None
) -> AsyncGenerator[_Agent, None]:
    async with open_lines(command, cwd, env) as lines, open_service() as service:
        async with open_private_nursery() as nursery:
            agent = _Agent(lines, nursery)
            service.start_soon(lines.read, agent.calls.heard)
            await agent.greet(cwd, mode)
            yield agent
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_raw_acp(
    command: Sequence[str], cwd: str, env: Mapping[str, str], mode: str | None = None
) -> AsyncGenerator[RawRunner, None]:
    """Run turns of an agent by the bare protocol, a process a room.

    Args:
        command: the agent.
        cwd: its folder.
        env: its whole environment.
        mode: the mode that its sessions are set to; None: the agent's own.
    """
    agents: Places[_Agent]
    async with open_places(partial(_open_agent, command, cwd, env, mode)) as agents:

        async def work(run: RawRun, room: str, content: str) -> None:
            agent = await agents.get(room)
            await agent.work(run, content)

        async with open_private_nursery() as nursery:
            yield RawRunner(work, nursery, agents.leave)
            nursery.cancel_scope.cancel()
