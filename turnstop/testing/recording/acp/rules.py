"""What of ACP's wire matters: the frames and fields that the adapter reads, and all it sends."""

from __future__ import annotations

from collections.abc import Sequence

from ..._differences import Rule, jsonrpc_names
from ..._wire import WireFrame

__all__ = ["acp_names", "rules_for"]

_SESSION = ("params.sessionId",)
_CAN = "result.agentCapabilities"
_PERMISSION = "session/request_permission"
_UPDATE = "<- session/update"

RULES: dict[str, Rule] = {
    "-> initialize": Rule(values=("params.protocolVersion", "params.clientCapabilities")),
    "<- initialize = result": Rule(
        values=("result.protocolVersion", "result.agentInfo.name", f"{_CAN}.loadSession"),
        kinds=(f"{_CAN}.sessionCapabilities.resume", f"{_CAN}.sessionCapabilities.close"),
    ),
    "-> session/new": Rule(values=("params.mcpServers",), kinds=("params.cwd",)),
    "<- session/new = result": Rule(ids=("result.sessionId",)),
    "-> session/set_mode": Rule(ids=_SESSION, values=("params.modeId",)),
    "<- session/set_mode = result": Rule(),
    "-> session/prompt": Rule(ids=_SESSION, values=("params.prompt.0.type",)),
    "<- session/prompt = result": Rule(values=("result.stopReason",)),
    "<- session/prompt = error": Rule(values=("error.code",)),
    f"{_UPDATE} agent_message_chunk": Rule(
        ids=_SESSION,
        values=("params.update.content.type",),
        kinds=("params.update.content.text", "params.update.messageId"),
        # One that comes late comes when it likes: its name tells whose it is.
        repeats=True,
        anywhere=True,
    ),
    # Some tell of a call before they ask about it, and some afterwards, or not at all.
    f"{_UPDATE} tool_call": Rule(
        ids=_SESSION, kinds=("params.update.toolCallId",), optional=True, anywhere=True
    ),
    f"{_UPDATE} tool_call_update": Rule(
        ids=_SESSION,
        kinds=("params.update.toolCallId",),
        repeats=True,
        optional=True,
        anywhere=True,
    ),
    f"<- {_PERMISSION}": Rule(
        ids=_SESSION,
        kinds=("params.toolCall.toolCallId", "params.options.0.optionId", "params.options.0.kind"),
    ),
    f"-> {_PERMISSION} = result": Rule(
        values=("result.outcome.outcome",), kinds=("result.outcome.optionId",)
    ),
    "-> session/cancel": Rule(ids=_SESSION),
    "-> session/resume": Rule(ids=_SESSION, kinds=("params.cwd", "params.mcpServers")),
    "<- session/resume = result": Rule(),
    "<- session/resume = error": Rule(values=("error.code",)),
    "-> session/load": Rule(ids=_SESSION, kinds=("params.cwd", "params.mcpServers")),
    "<- session/load = result": Rule(),
    "<- session/load = error": Rule(values=("error.code",)),
}
"""By direction and name; see `acp_names`."""


def rules_for(agent: str) -> dict[str, Rule]:
    """The rules of one agent. When a turn of Claude is over is told by what it has cost."""
    if agent != "claude-agent-acp":
        return RULES
    return {**RULES, f"{_UPDATE} usage_update cost": Rule(ids=_SESSION, anywhere=True)}


def acp_names(frames: Sequence[WireFrame]) -> list[str]:
    """JSON-RPC's names, the kind of an update added, and whether that tells a cost.

    What is told while a session is taken up is its past, and is told apart.
    """
    names = jsonrpc_names(frames)
    taken_up = 0
    for place, frame in enumerate(frames):
        if names[place] in ("session/load", "session/load = result"):
            taken_up += 1 if frame.direction == "->" else -1
        params = frame.body.get("params") if isinstance(frame.body, dict) else None
        update = params.get("update") if isinstance(params, dict) else None
        if isinstance(update, dict):
            names[place] += f" {update.get('sessionUpdate')}"
            names[place] += " cost" if update.get("cost") is not None else ""
            names[place] += " of its past" if taken_up else ""
    return names
