"""The protocol of an ACP agent, at the far end of a stream in memory: one process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs
import trio

from ..._wire import WireFrame
from .._lines import LineEnd

Frame: TypeAlias = dict[str, Any]
Answer: TypeAlias = Frame | None
"""What a request is answered: a result or an error; None: no answer comes, or it comes later."""


def refusal(text: str, code: int = -32603) -> Frame:
    """The answer that refuses a request."""
    return {"error": {"code": code, "message": text}}


Handler: TypeAlias = Callable[["AgentProcess", Frame], Awaitable[Answer]]


@attrs.define(eq=False, slots=False)
class AgentProcess(LineEnd):
    """An agent in memory. It keeps what it is told, and answers by its handlers.

    Attributes:
        wire: all that it was told and has said, the frames of other processes too.
        handlers: what answers a request, by its method; given the request's frame.
        on_request: given each request as it comes, before it is answered.
        on_notification: given each notification.
        on_answer: given each answer to a request of its own.
        sessions: the sessions that it has in memory.
        counted: those whose tokens it has counted.
        ended: whether it has ended.
    """

    wire: list[WireFrame]
    handlers: dict[str, Handler]
    on_request: Callable[[AgentProcess, Frame], object]
    on_notification: Callable[[AgentProcess, Frame], object]
    on_answer: Callable[[AgentProcess, Frame], object]
    sessions: set[str] = attrs.field(factory=set, init=False)
    counted: set[str] = attrs.field(factory=set, init=False)
    ended: bool = attrs.field(default=False, init=False)

    def write(self, frame: Frame) -> None:
        """Say something; nobody hears it where there is no connection."""
        line = json.dumps({"jsonrpc": "2.0", **frame})
        if self.is_connected:
            self._keep("<-", json.loads(line))
            self.write_line(line.encode())

    def update(self, session: str, what: str, **more: Any) -> None:
        """Tell an update of a session."""
        update = {"sessionUpdate": what, **more}
        self.write({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def chunk(self, session: str, text: str, message: str | None = None) -> None:
        """Tell a piece of an answer, of the message with this name."""
        named = {} if message is None else {"messageId": message}
        content = {"type": "text", "text": text}
        self.update(session, "agent_message_chunk", content=content, **named)

    def _heard(self, nursery: trio.Nursery, frame: Frame) -> None:
        if "method" not in frame:
            self.on_answer(self, frame)
        elif "id" in frame:
            self.on_request(self, frame)
            nursery.start_soon(self._respond, frame)
        else:
            self.on_notification(self, frame)

    async def _respond(self, frame: Frame) -> None:
        if not self.is_connected:
            return  # Nobody asks any more.
        handler = self.handlers.get(frame["method"])
        if handler is None:
            self.write({"id": frame["id"], **refusal("Method not found", -32601)})
            return
        answer = await handler(self, frame)
        if answer is not None:
            self.write({"id": frame["id"], **answer})
