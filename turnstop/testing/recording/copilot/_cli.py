"""One process of the Copilot CLI at the far end of a cable: its protocol, and no more."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import trio

from ...._errors import BackendError, BackendMisbehaved
from ....transports.framed import MessageSplitter, frame
from ..._wire import Direction, WireFrame
from ._sdk import MemoryRpc

Message: TypeAlias = dict[str, Any]

_TIME = "2026-01-01T00:00:00.000Z"
_EPHEMERAL = ("session.idle", "assistant.idle", "assistant.message_delta", "assistant.usage")
INTERNAL = -32603
UNKNOWN = -32601


@attrs.define(eq=False, slots=False)
class FarCli:
    """A process. It keeps what it is told; who made it says what it does.

    Attributes:
        wire: all that it was told and has said, in the order in which it went by.
        hear: given each message that it is told.
        note: told what goes by, as a tap is.
        ended: whether the process has ended.
        clings: whether it cannot be ended.
        old: whether it is as old as the SDK's oldest: it names no message again.
        broken: set when nobody can talk to it any more.
        why: what it has done wrong, or None.
        rpc: the SDK's end of the cable.
    """

    wire: list[WireFrame]
    hear: Callable[[FarCli, Message], object]
    note: Callable[[str, Message], object] = lambda direction, message: None
    ended: bool = False
    clings: bool = False
    old: bool = False
    broken: trio.Event = attrs.field(factory=trio.Event)
    why: BackendError | None = None
    rpc: MemoryRpc = attrs.field(init=False)
    _splitter: MessageSplitter = attrs.field(factory=MessageSplitter)
    _counted: int = 0

    def __attrs_post_init__(self) -> None:
        self.rpc = MemoryRpc(self._told)

    def _told(self, message: Message) -> None:
        self._keep("->", message)
        if not self.broken.is_set():
            self.hear(self, message)

    def hang_up(self) -> None:
        """End the connection."""
        self.broken.set()
        self.rpc.lose()

    # What it says.

    def write_bytes(self, data: bytes) -> None:
        """Say these bytes; nobody hears it where there is no connection."""
        if self.broken.is_set():
            return
        try:
            for message in self._splitter.feed(data):
                self._keep("<-", message)
                self.rpc.hear(message)
        except BackendMisbehaved as error:
            self.why = error
            self.hang_up()

    def write(self, message: Message) -> None:
        """Say a message."""
        self.write_bytes(frame({"jsonrpc": "2.0", **message}))

    def answer(self, request: Message, result: object) -> None:
        """Answer a call."""
        self.write({"id": request["id"], "result": result})

    def refuse(self, request: Message, why: str, code: int = INTERNAL) -> None:
        """Answer it by an error."""
        self.write({"id": request["id"], "error": {"code": code, "message": why}})

    def event(self, session: str, kind: str, **data: Any) -> Message:
        """Tell an event of a session; what was told."""
        self._counted += 1
        number = str(uuid.UUID(int=self._counted))
        body: Message = {"type": kind, "data": data, "id": number, "timestamp": _TIME}
        body |= {"parentId": None, "ephemeral": kind in _EPHEMERAL}
        message = {"method": "session.event", "params": {"sessionId": session, "event": body}}
        self.write(message)
        return message

    def _keep(self, direction: Direction, message: Message) -> None:
        self.wire.append(WireFrame(direction, message))
        self.note(direction, message)
