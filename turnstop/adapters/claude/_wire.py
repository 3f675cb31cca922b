"""The wire of Claude Code: stream-json lines, and the control protocol between them.

Its documents are the types of `claude-agent-sdk` 0.2.189 and what the program, in its version
2.1.332, was seen to say. A control request is a call, in either direction; every other line is a
notification, named by its type and subtype.
"""

from __future__ import annotations

from typing import Any, final

import attrs

from ..._errors import BackendLost, BackendMisbehaved, BackendRefused
from ...transports.dialect import Frame, Reply, RpcError, Said, shorten
from ...transports.jsonrpc import Connection, Incoming
from ._asks import decline

# An id that has so many is none of ours.
_DIGITS = 20
# One that says nothing for so long is told, and not begun again and again.
_GREETED_WITHIN = 40.0
TOPIC = "claude"
"""What everything is about that a process says: its one conversation."""


@final
@attrs.frozen
class StreamJson:
    """How Claude Code writes and reads."""

    def call(self, number: int, method: str, params: Frame) -> Frame:
        """A control request."""
        request = {"subtype": method, **params}
        return {"type": "control_request", "request_id": str(number), "request": request}

    def notification(self, method: str, params: Frame | None) -> Frame:
        """Any other line."""
        return {"type": method, **(params or {})}

    def result(self, number: object, result: object) -> Frame:
        """The answer to one of its control requests."""
        response = {"subtype": "success", "request_id": number, "response": result}
        return {"type": "control_response", "response": response}

    def refusal(self, number: object, message: str, code: int) -> Frame:
        """The answer that it cannot be."""
        response = {"subtype": "error", "request_id": number, "error": message}
        return {"type": "control_response", "response": response}

    def read(self, frame: Frame) -> Said | Reply:
        """Understand a line."""
        kind = frame.get("type")
        if kind == "control_response":
            return _read_reply(frame)
        if kind == "control_request":
            request = _dict(frame.get("request"))
            number = frame.get("request_id")
            if not isinstance(number, str):
                raise BackendMisbehaved(f"it asked without an id: {shorten(frame)}")
            return Said(str(request.get("subtype")), request, number)
        if not isinstance(kind, str):
            raise BackendMisbehaved(f"it wrote what is no stream-json: {shorten(frame)}")
        subtype = frame.get("subtype")
        # How a result ended is no other kind of line.
        named = isinstance(subtype, str) and kind != "result"
        return Said(f"{kind}/{subtype}" if named else kind, frame)


def _read_reply(frame: Frame) -> Reply:
    response = _dict(frame.get("response"))
    said = response.get("request_id")
    if not isinstance(said, str):
        raise BackendMisbehaved(f"it answered nothing that was asked: {shorten(frame)}")
    number: object = int(said) if said.isdecimal() and len(said) < _DIGITS else said
    if response.get("subtype") == "error":
        return Reply(number, error=RpcError("error", str(response.get("error", ""))))
    return Reply(number, response.get("response"))


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def topic_of(incoming: Incoming) -> str | None:
    """Everything is about the one conversation."""
    return TOPIC


@final
class Unasked:
    """What a process says while no turn listens; and the turns that it begins by itself.

    A background task that ends, a monitor, a timer: each wakes Claude, which then asks the model
    and uses tools for nobody. Such a turn is interrupted as soon as it begins, and, for an
    interrupt may be lost there, once more whenever the model has begun to answer. A room's next
    message is written after that, so that no such interrupt can reach its turn.
    """

    def __init__(self) -> None:
        self._rpc: Connection | None = None

    async def greet(self, rpc: Connection) -> None:
        """Begin the conversation.

        Raises:
            BackendRefused: it says nothing.

        **Cancellation:** the process is of no use.
        """
        self._rpc = rpc
        try:
            await rpc.call_within(_GREETED_WITHIN, "initialize", {"hooks": None})
        except BackendLost as lost:
            if rpc.broken.is_set():
                raise
            raise BackendRefused(f"{lost}: see that it is Claude Code") from lost

    def hear(self, incoming: Incoming) -> None:
        """Take what no turn takes."""
        decline(incoming)
        begins = incoming.method == "system/init" or _begins_message(incoming)
        if begins and self._rpc is not None:
            # Nobody waits for the answer. What is queued behind it stays queued.
            request = {"request_id": "unasked", "request": {"subtype": "interrupt"}}
            self._rpc.notify("control_request", request)


def _begins_message(incoming: Incoming) -> bool:
    event = _dict(incoming.params.get("event"))
    return incoming.method == "stream_event" and event.get("type") == "message_start"
