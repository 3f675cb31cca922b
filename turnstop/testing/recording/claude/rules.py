"""What of Claude's wire matters: the frames and fields that the adapter reads, and all it sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..._differences import Rule
from ..._wire import WireFrame

__all__ = ["RULES", "claude_names", "rules_for"]

_USAGE = "event.message.usage.input_tokens"
_ASKED = "request.tool_name"
_ANSWER = "response.response.behavior"

RULES: dict[str, Rule] = {
    "-> initialize": Rule(values=("request.hooks",)),
    "<- initialize = success": Rule(),
    "-> user": Rule(
        ids=("uuid",),
        values=("message.role", "parent_tool_use_id", "session_id"),
        kinds=("message.content",),
    ),
    "<- command_lifecycle started": Rule(ids=("command_uuid",)),
    # They are told of a turn that has ended, unless its message never became one.
    "<- command_lifecycle completed": Rule(ids=("command_uuid",), anywhere=True, optional=True),
    "<- command_lifecycle cancelled": Rule(ids=("command_uuid",), anywhere=True, optional=True),
    "<- system/init": Rule(
        ids=("session_id", "user_message_uuids.0"), kinds=("capabilities", "user_message_uuids")
    ),
    "<- stream_event message_start": Rule(
        ids=("event.message.id",), kinds=(_USAGE,), values=("parent_tool_use_id",)
    ),
    "<- stream_event text_delta": Rule(
        kinds=("event.delta.text",), values=("parent_tool_use_id",), repeats=True
    ),
    "<- stream_event message_delta": Rule(
        kinds=("event.usage.output_tokens",), anywhere=True, optional=True
    ),
    "<- assistant text": Rule(
        ids=("message.id",), kinds=("message.content.0.text",), values=("parent_tool_use_id",)
    ),
    "<- assistant tool_use": Rule(
        ids=("message.content.0.id",),
        kinds=("message.content.0.input",),
        values=("message.content.0.name", "parent_tool_use_id"),
    ),
    "<- user tool_result": Rule(
        ids=("message.content.0.tool_use_id",),
        kinds=("message.content.0.content",),
    ),
    "<- can_use_tool": Rule(
        ids=("request_id",), values=(_ASKED,), kinds=("request.input", "request.tool_use_id")
    ),
    # A stop takes an open question back and interrupts in one instant: neither waits for the other.
    "-> can_use_tool = success": Rule(
        ids=("response.request_id",),
        values=(_ANSWER, "response.response.interrupt"),
        kinds=("response.response.updatedInput", "response.response.message"),
        anywhere=True,
    ),
    "<- control_cancel_request": Rule(ids=("request_id",), anywhere=True, optional=True),
    "<- system/task_started": Rule(
        ids=("task_id",), values=("is_backgrounded", "task_type"), kinds=("description",)
    ),
    "<- system/task_notification": Rule(
        ids=("task_id",), values=("status",), anywhere=True, optional=True
    ),
    "-> stop_task": Rule(ids=("request.task_id",)),
    "<- stop_task = success": Rule(),
    "-> interrupt": Rule(values=("request.cancel_queued",)),
    "<- interrupt = success": Rule(kinds=("response.response.cancelled",)),
    "<- result": Rule(
        ids=("user_message_uuid",),
        values=("is_error", "terminal_reason", "subtype"),
        kinds=("model_usage_since_last_result", "result", "errors"),
    ),
}
"""By direction and name; see `claude_names`."""

_EARLY = (
    "command_lifecycle started",
    "system/init",
    "stream_event message_start",
    "stream_event text_delta",
    "assistant text",
    "result",
)


def rules_for(scene: str) -> dict[str, Rule]:
    """The rules of one scene.

    A stop at the start cancels the message, or the turn that it has just become. Where a permission
    is open, the answer that it is given ends the turn as well as the interrupt does: either may
    come first. A turn that nobody has asked for may come to its first words, and is then
    interrupted once more.
    """
    told, answered = "-> interrupt", "<- interrupt = success"
    early = {f"<- {name}": attrs.evolve(RULES[f"<- {name}"], optional=True) for name in _EARLY}
    if scene == "stop_while_starting":
        return {**RULES, **early}
    if scene == "stop_while_a_permission_is_open":
        return {**RULES, answered: attrs.evolve(RULES[answered], anywhere=True)}
    if scene == "a_task_wakes_it":
        again = {
            name: attrs.evolve(RULES[name], anywhere=True, repeats=True)
            for name in (told, answered)
        }
        return {**RULES, **early, "<- result": RULES["<- result"], **again}
    return RULES


def claude_names(frames: Sequence[WireFrame]) -> list[str]:
    """A control request by its subtype, and its answer by that; any other line by what it tells."""
    asked: dict[object, str] = {}
    return [_name(frame.body, asked) for frame in frames]


def _name(body: Any, asked: dict[object, str]) -> str:
    if not isinstance(body, dict):
        return "no JSON"
    kind = str(body.get("type"))
    if kind == "control_request":
        return asked.setdefault(body.get("request_id"), str(body["request"].get("subtype")))
    if kind == "control_response":
        response = body["response"]
        return f"{asked.get(response.get('request_id'), '?')} = {response.get('subtype')}"
    return kind + _told(kind, body)


def _told(kind: str, body: dict[str, Any]) -> str:
    if kind == "command_lifecycle":
        return f" {body.get('state')}"
    if kind == "system":
        return f"/{body.get('subtype')}"
    if kind == "stream_event":
        event = body["event"]
        return f" {(event.get('delta') or {}).get('type') or event.get('type')}"
    content = body.get("message", {}).get("content") if kind in ("assistant", "user") else None
    blocks = content if isinstance(content, list) else []
    return f" {blocks[0].get('type')}" if blocks and "uuid" in body and "timestamp" in body else ""
