"""The protocol of an ACP agent, at the far end of a stream in memory: one process."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs
import trio
from trio.testing import memory_stream_pair

from ...._unwrap import open_private_nursery
from ..._wire import Direction, WireFrame

Frame: TypeAlias = dict[str, Any]
Answer: TypeAlias = Frame | None
"""What a request is answered: a result or an error; None: no answer comes, or it comes later."""


def refusal(text: str, code: int = -32603) -> Frame:
    """The answer that refuses a request."""
    return {"error": {"code": code, "message": text}}


Handler: TypeAlias = Callable[["AgentProcess", Frame], Awaitable[Answer]]


@attrs.define(eq=False, slots=False)
class AgentProcess:
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
    _stream: trio.StapledStream[Any, Any] | None = attrs.field(default=None, init=False)
    _outbox: trio.MemorySendChannel[bytes] | None = attrs.field(default=None, init=False)
    _unsent: trio.MemoryReceiveChannel[bytes] | None = attrs.field(default=None, init=False)

    def connect(self) -> trio.StapledStream[Any, Any]:
        """Connect to it; return the client's stream."""
        near, self._stream = memory_stream_pair()
        self._outbox, self._unsent = trio.open_memory_channel[bytes](math.inf)
        return near

    async def serve(self) -> None:
        """Serve the connection.

        **Cancellation:** ends the serving; the stream stays as it is.
        """
        assert self._stream is not None
        assert self._unsent is not None
        buffer = b""
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._send_all, self._stream, self._unsent)
            async for chunk in self._stream:
                *lines, buffer = (buffer + bytes(chunk)).split(b"\n")
                for line in lines:
                    self._hear(nursery, json.loads(line))
            nursery.cancel_scope.cancel()

    async def _send_all(
        self, stream: trio.StapledStream[Any, Any], unsent: trio.MemoryReceiveChannel[bytes]
    ) -> None:
        async for data in unsent:
            await stream.send_all(data)
        await stream.send_eof()

    def hang_up(self) -> None:
        """End the connection, once all that was said has been sent."""
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None

    @property
    def connected(self) -> bool:
        """Whether anything that it says is heard."""
        return self._outbox is not None

    def write(self, frame: Frame) -> None:
        """Say something; nobody hears it where there is no connection."""
        line = json.dumps({"jsonrpc": "2.0", **frame})
        if self._outbox is not None:
            self._keep("<-", json.loads(line))
            self.write_line(line.encode())

    def write_line(self, line: bytes) -> None:
        """Say a line, whatever it is."""
        if self._outbox is not None:
            self._outbox.send_nowait(line + b"\n")

    def update(self, session: str, what: str, **more: Any) -> None:
        """Tell an update of a session."""
        update = {"sessionUpdate": what, **more}
        self.write({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def chunk(self, session: str, text: str, message: str | None = None) -> None:
        """Tell a piece of an answer, of the message with this name."""
        named = {} if message is None else {"messageId": message}
        content = {"type": "text", "text": text}
        self.update(session, "agent_message_chunk", content=content, **named)

    def _hear(self, nursery: trio.Nursery, frame: Frame) -> None:
        self._keep("->", frame)
        if "method" not in frame:
            self.on_answer(self, frame)
        elif "id" in frame:
            self.on_request(self, frame)
            nursery.start_soon(self._respond, frame)
        else:
            self.on_notification(self, frame)

    def _keep(self, direction: Direction, frame: Frame) -> None:
        self.wire.append(WireFrame(direction, frame))

    async def _respond(self, frame: Frame) -> None:
        if not self.connected:
            return  # Nobody asks any more.
        handler = self.handlers.get(frame["method"])
        if handler is None:
            self.write({"id": frame["id"], **refusal("Method not found", -32601)})
            return
        answer = await handler(self, frame)
        if answer is not None:
            self.write({"id": frame["id"], **answer})
