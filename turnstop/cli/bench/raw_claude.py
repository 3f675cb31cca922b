"""Claude Code by its bare protocol: JSON lines both ways, and an interrupt of a named message.

Each message has a `uuid`, and the interrupt takes it out of the queue where it still waits there:
without both, an interrupt that follows its message at once is acknowledged, and does nothing. The
end is the message's own `result`, or its lifecycle's `cancelled`. As of version 2.1.332.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from ..._ending import Ending
from ..._service import open_service
from ..._unwrap import open_private_nursery
from .raw import RawRun, RawRunner
from .raw_lines import Lines, Message, Places, open_lines, open_places

ARGUMENTS = (
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--setting-sources",
    "",
    "--permission-prompt-tool",
    "stdio",
)


class _Claude:
    """One program, with one session."""

    def __init__(self, lines: Lines, nursery: trio.Nursery) -> None:
        self._lines = lines
        self._nursery = nursery
        self._answers: dict[str, Message] = {}
        self._ended: dict[str, tuple[float, Ending]] = {}
        self._run: RawRun | None = None

    def hear(self, message: Message) -> None:
        match message:
            case {"type": "control_response", "response": response}:
                self._answers[response["request_id"]] = response
            case {"type": "control_request", "request": {"subtype": "can_use_tool"}}:
                assert self._run is not None
                self._run.pending.set()
                if self._run.grants:
                    self._nursery.start_soon(self._allow, message)
            case {"type": "result", "user_message_uuid": number}:
                stopped = message["is_error"] and self._run is not None and self._run.asked.is_set()
                failed = Ending.FAILED if message["is_error"] else Ending.FINISHED
                self._end(number, Ending.STOPPED if stopped else failed)
            case {"type": "command_lifecycle", "state": "cancelled", "command_uuid": number}:
                self._end(number, Ending.STOPPED)

    def _end(self, number: str, ending: Ending) -> None:
        self._ended.setdefault(number, (trio.current_time(), ending))

    async def _allow(self, message: Message) -> None:
        leave = {"behavior": "allow", "updatedInput": message["request"]["input"]}
        response = {"subtype": "success", "request_id": message["request_id"], "response": leave}
        await self._lines.send({"type": "control_response", "response": response})

    async def control(self, request: Message, run: RawRun | None = None) -> None:
        number = str(uuid.uuid4())
        line = {"type": "control_request", "request_id": number, "request": request}
        await self._lines.send(line, *([] if run is None else [run.note_sent]))
        await self._lines.until(lambda: number in self._answers)

    async def work(self, run: RawRun, content: str) -> None:
        self._run = run
        number = str(uuid.uuid4())
        line: dict[str, Any] = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "session_id": "default",
            "uuid": number,
        }
        await self._lines.send(line, run.left.set)
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._interrupt, run)
            await self._lines.until(lambda: number in self._ended)
            nursery.cancel_scope.cancel()
        at, ending = self._ended[number]
        run.note_end(ending, at)

    async def _interrupt(self, run: RawRun) -> None:
        await run.asked.wait()
        await self.control({"subtype": "interrupt", "cancel_queued": True}, run)
        run.note_acked()


@asynccontextmanager
async def _open_claude(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[_Claude, None]:
    async with open_lines([*command, *ARGUMENTS], cwd, env) as lines, open_service() as service:
        async with open_private_nursery() as nursery:
            claude = _Claude(lines, nursery)
            service.start_soon(lines.read, claude.hear)
            await claude.control({"subtype": "initialize", "hooks": None})
            yield claude
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_raw_claude(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[RawRunner, None]:
    """Run turns of Claude by the bare protocol, a process a room."""
    programs: Places[_Claude]
    async with open_places(partial(_open_claude, command, cwd, env)) as programs:

        async def work(run: RawRun, room: str, content: str) -> None:
            claude = await programs.get(room)
            await claude.work(run, content)

        async with open_private_nursery() as nursery:
            yield RawRunner(work, nursery, programs.leave)
            nursery.cancel_scope.cancel()
