"""Copilot by the bare SDK, in plain asyncio and a process of its own, driven by JSON lines.

Run by path with a Python that has `github-copilot-sdk`. It imports nothing of turnstop, and never
Trio. `turnstop.cli.bench.raw_copilot` starts it and reads its reports; times are seconds on
CLOCK_MONOTONIC. It does what a careful client of the SDK does, and nothing else: it listens before
it sends, aborts once the send has been answered, and takes the idle that follows for the end.

Commands, one JSON object a line on stdin; the end of stdin is a `close`:

    {"op": "open", "command": [...], "cwd": DIR, "env": {...}, "provider": {...}, "model": NAME}
    {"op": "start", "turn": ID, "room": ROOM, "content": TEXT, "stop_after": SECONDS or null,
     "grants": true}
    {"op": "stop", "turn": ID}
    {"op": "close"}

Reports, on stdout: `{"op": "opened", "versions": {...}}`, `{"op": "closed"}`, and
`{"op": "at", "turn": ID, "what": WHAT, "at": SECONDS}` with WHAT one of

    admitted   the room's turn before has ended
    asks       it asks for a permission
    asked      its stop
    acked      `abort()` has returned
    ended      the session is idle again, with "how": finished, stopped or failed
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from typing import Any

from copilot import CopilotClient, CopilotSession, RuntimeConnection
from copilot.session import PermissionHandler, PermissionNoResult


class _Turn:
    """One turn: what was asked for, and how far it is."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.id: str = command["turn"]
        self.content: str = command["content"]
        self.stop_after: float | None = command["stop_after"]
        self.grants: bool = command["grants"]
        self.stopped = asyncio.Event()
        self.ended = asyncio.Event()
        self.failed = False
        self.begun = False

    def say(self, what: str, **more: str) -> None:
        _tell({"op": "at", "turn": self.id, "what": what, "at": time.monotonic(), **more})

    def stop(self) -> None:
        if not self.stopped.is_set() and not self.ended.is_set():
            self.say("asked")
            self.stopped.set()

    def hear(self, event: Any) -> None:
        """Take an event of the session; until the turn shows in one, an idle is not its own."""
        kind = event.type.value
        if kind in ("user.message", "abort", "session.error"):
            self.begun = True
            self.failed |= kind == "session.error"
        elif kind == "session.idle" and self.begun and not self.ended.is_set():
            stopped = "stopped" if event.data.aborted else "finished"
            self.say("ended", how="failed" if self.failed else stopped)
            self.ended.set()


class _Room:
    """A session, and the turn that it works on."""

    def __init__(self) -> None:
        self.turns = asyncio.Lock()
        self.turn: _Turn | None = None
        self.session: CopilotSession | None = None

    def hear(self, event: Any) -> None:
        if self.turn is not None:
            self.turn.hear(event)

    async def permit(self, request: Any, invocation: Any) -> Any:
        turn = self.turn
        if turn is None:
            return PermissionNoResult()
        turn.say("asks")
        if not turn.grants:
            await turn.ended.wait()
            return PermissionNoResult()
        return PermissionHandler.approve_all(request, invocation)


class _Host:
    def __init__(self) -> None:
        self._client: CopilotClient | None = None
        self._settings: dict[str, Any] = {}
        self._rooms: defaultdict[str, _Room] = defaultdict(_Room)
        self._turns: dict[str, _Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def obey(self, command: dict[str, Any]) -> None:
        match command["op"]:
            case "open":
                path, *arguments = command["command"]
                self._settings = {"provider": command["provider"], "model": command["model"]}
                self._client = CopilotClient(
                    connection=RuntimeConnection.for_stdio(path=path, args=arguments),
                    working_directory=command["cwd"],
                    env=command["env"],
                    log_level="error",
                    use_logged_in_user=False,
                )
                await self._client.start()
                name = "github-copilot-sdk"
                _tell({"op": "opened", "versions": {name: version(name)}})
            case "start":
                turn = self._turns[command["turn"]] = _Turn(command)
                task = asyncio.create_task(self._work(turn, self._rooms[command["room"]]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "stop":
                self._turns[command["turn"]].stop()

    async def _work(self, turn: _Turn, room: _Room) -> None:
        async with room.turns:
            turn.say("admitted")
            if room.session is None:
                assert self._client is not None
                room.session = await self._client.create_session(
                    on_permission_request=room.permit, streaming=True, **self._settings
                )
                room.session.on(room.hear)
            room.turn = turn
            if turn.stop_after is not None:
                asyncio.get_running_loop().call_later(turn.stop_after, turn.stop)
            await room.session.send(turn.content)
            stopping = asyncio.create_task(self._abort(turn, room.session))
            await turn.ended.wait()
            if turn.stopped.is_set():
                await stopping
            stopping.cancel()

    async def _abort(self, turn: _Turn, session: CopilotSession) -> None:
        await turn.stopped.wait()
        await session.abort()
        turn.say("acked")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._client is not None:
            await self._client.force_stop()
        _tell({"op": "closed"})


def _tell(report: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Obey stdin until it ends."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    host = _Host()
    try:
        while line := await lines.readline():
            command = json.loads(line)
            if command["op"] == "close":
                break
            await host.obey(command)
    finally:
        await host.close()


if __name__ == "__main__":
    asyncio.run(main())
