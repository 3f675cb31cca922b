"""What of Copilot's wire matters: the frames and fields that the adapter reads, and all it sends.

The frames are the bodies of the SDK's JSON-RPC, as of github-copilot-sdk 1.0.27.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..._differences import Rule, jsonrpc_names
from ..._wire import WireFrame

__all__ = ["RULES", "copilot_names", "rules_for"]

_SESSION = "params.sessionId"
_DATA = "params.event.data"
_PERMISSION = "session.permissions.handlePendingPermissionRequest"

RULES: dict[str, Rule] = {
    "<- connect = result": Rule(values=("result.protocolVersion",), kinds=("result.version",)),
    "-> session.create": Rule(
        ids=(_SESSION,), values=("params.streaming", "params.requestPermission")
    ),
    "<- session.create = result": Rule(ids=("result.sessionId",)),
    "-> session.resume": Rule(
        ids=(_SESSION,), values=("params.streaming", "params.requestPermission")
    ),
    "<- session.resume = result": Rule(ids=("result.sessionId",)),
    "-> session.send": Rule(ids=(_SESSION,), kinds=("params.prompt",)),
    # The turn may be told of before its message is acknowledged.
    "<- session.send = result": Rule(ids=("result.messageId",), anywhere=True),
    "-> session.abort": Rule(ids=(_SESSION,)),
    # Before the idle, or after it.
    "<- session.abort = result": Rule(values=("result.success",), anywhere=True),
    f"-> {_PERMISSION}": Rule(ids=("params.requestId",), values=("params.result.kind",)),
    "-> session.detach": Rule(ids=(_SESSION,)),
    "<- user.message": Rule(ids=(_SESSION, f"{_DATA}.messageId"), kinds=(f"{_DATA}.content",)),
    "<- assistant.turn_start": Rule(values=(f"{_DATA}.turnId",)),
    "<- assistant.message_delta": Rule(
        ids=(f"{_DATA}.messageId",), kinds=(f"{_DATA}.deltaContent",), repeats=True
    ),
    "<- assistant.usage": Rule(kinds=(f"{_DATA}.inputTokens", f"{_DATA}.outputTokens")),
    "<- assistant.message": Rule(
        ids=(f"{_DATA}.messageId", f"{_DATA}.originatingMessageId"), kinds=(f"{_DATA}.content",)
    ),
    "<- tool.execution_start": Rule(
        ids=(f"{_DATA}.toolCallId",), values=(f"{_DATA}.toolName",), kinds=(f"{_DATA}.arguments",)
    ),
    "<- permission.requested": Rule(
        ids=(f"{_DATA}.requestId", f"{_DATA}.permissionRequest.toolCallId"),
        values=(f"{_DATA}.permissionRequest.kind",),
        kinds=(f"{_DATA}.permissionRequest.fullCommandText",),
    ),
    # Its answer's own answer comes at about the same time.
    "<- permission.completed": Rule(ids=(f"{_DATA}.requestId",), values=(f"{_DATA}.result.kind",)),
    "<- tool.execution_complete": Rule(ids=(f"{_DATA}.toolCallId",), values=(f"{_DATA}.success",)),
    "<- assistant.turn_end": Rule(values=(f"{_DATA}.turnId",)),
    "<- abort": Rule(values=(f"{_DATA}.reason",)),
    "<- session.error": Rule(kinds=(f"{_DATA}.errorType", f"{_DATA}.message")),
    "<- session.idle": Rule(ids=(_SESSION,), values=(f"{_DATA}.aborted",)),
}
"""By direction and name; see `copilot_names`."""

_EARLY = ("user.message", "assistant.turn_start", "assistant.turn_end")


def rules_for(scene: str) -> dict[str, Rule]:
    """The rules of one scene. A turn that is stopped at its start may never have shown itself."""
    if scene == "stop_while_a_permission_is_open":
        # The abort takes the request back too: whichever is first.
        completed = "<- permission.completed"
        return {**RULES, completed: attrs.evolve(RULES[completed], anywhere=True)}
    if scene != "stop_while_starting":
        return RULES
    names = [f"<- {name}" for name in _EARLY]
    return {**RULES, **{name: attrs.evolve(RULES[name], optional=True) for name in names}}


def copilot_names(frames: Sequence[WireFrame]) -> list[str]:
    """JSON-RPC's names; an event by its type; and the older SDK's word for leaving a session."""
    names = jsonrpc_names(frames)
    for place, frame in enumerate(frames):
        if names[place] == "session.event":
            names[place] = _event(frame.body)
        names[place] = names[place].replace("session.destroy", "session.detach")
    return names


def _event(body: Any) -> str:
    return str(body["params"]["event"]["type"])
