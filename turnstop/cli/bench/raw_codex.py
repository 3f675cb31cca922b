"""codex by its bare protocol: JSON lines, and an interrupt once the turn was seen to start."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from ..._ending import Ending
from ..._service import open_service
from ..._unwrap import open_private_nursery
from .raw import RawRun, RawRunner, Refused
from .raw_lines import Calls, Lines, Message, open_lines

_ENDINGS = {"completed": Ending.FINISHED, "interrupted": Ending.STOPPED, "failed": Ending.FAILED}
_CLIENT = {"clientInfo": {"name": "bench", "title": "bench", "version": "1"}}


class _RawCodex:
    def __init__(self, lines: Lines, cwd: str, nursery: trio.Nursery) -> None:
        self.calls = Calls(lines, self._hear, {})
        self._lines = lines
        self._cwd = cwd
        self._nursery = nursery
        self._threads: dict[str, str] = {}
        self._runs: dict[str, RawRun] = {}
        self._started: set[str] = set()
        self._ended: dict[str, tuple[float, str]] = {}

    def _hear(self, message: Message) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "turn/started":
            self._started.add(params["turn"]["id"])
        elif method == "turn/completed":
            self._ended[params["turn"]["id"]] = trio.current_time(), params["turn"]["status"]
        elif method.endswith("/requestApproval"):
            run = self._runs[params["threadId"]]
            run.pending.set()
            if run.grants:
                self._nursery.start_soon(self.calls.answer, message, {"decision": "accept"})

    async def work(self, run: RawRun, room: str, content: str) -> None:
        if room not in self._threads:
            asked = {"cwd": self._cwd, "approvalPolicy": "untrusted"}
            made = await self.calls.call("thread/start", asked)
            self._threads[room] = made["thread"]["id"]
        thread = self._threads[room]
        self._runs[thread] = run
        text = [{"type": "text", "text": content}]
        asked_for = {"threadId": thread, "input": text}
        begun = await self.calls.call("turn/start", asked_for, run.left.set)
        turn = begun["turn"]["id"]
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._interrupt, run, thread, turn)
            await self._lines.until(lambda: turn in self._ended)
            nursery.cancel_scope.cancel()
        at, status = self._ended[turn]
        run.note_end(_ENDINGS[status], at)

    async def _interrupt(self, run: RawRun, thread: str, turn: str) -> None:
        await run.asked.wait()
        # Sent earlier, it is refused, and the turn runs on.
        await self._lines.until(lambda: turn in self._started)
        names = {"threadId": thread, "turnId": turn}
        try:
            await self.calls.call("turn/interrupt", names, run.note_sent)
            run.note_acked()
        except Refused:
            pass  # It ended meanwhile: turn/completed says so.


@asynccontextmanager
async def open_raw_codex(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[RawRunner, None]:
    """Run turns of a codex of its own by the bare protocol."""
    async with open_lines(command, cwd, env) as lines, open_service() as service:
        async with open_private_nursery() as nursery:
            codex = _RawCodex(lines, cwd, nursery)
            service.start_soon(lines.read, codex.calls.heard)
            await codex.calls.call("initialize", _CLIENT)
            await codex.calls.notify("initialized")
            yield RawRunner(codex.work, nursery)
            nursery.cancel_scope.cancel()
