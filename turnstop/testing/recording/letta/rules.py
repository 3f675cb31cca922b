"""What of Letta's wire matters: the frames and fields that the adapter reads, and all it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._differences import Rule
from ..._wire import WireFrame

__all__ = ["RULES", "letta_names"]

_MODES = tuple(f"body.{one}" for one in ("streaming", "stream_tokens", "include_pings"))
_RETURN = "body.messages.0.approvals.0"
_IDS = ("said.run_id", "said.step_id")

RULES: dict[str, Rule] = {
    "-> GET health": Rule(),
    "<- GET health": Rule(values=("status",), kinds=("body.version",)),
    "-> POST conversations": Rule(values=("body",)),
    "<- POST conversations": Rule(values=("status",), ids=("body.id",)),
    "-> POST messages": Rule(
        values=("path.1", "body.messages.0.role", "body.messages.0.content", *_MODES),
        ids=("path.2",),
    ),
    "-> POST messages approval": Rule(
        values=("path.1", f"{_RETURN}.type", f"{_RETURN}.approve", *_MODES),
        ids=("path.2", f"{_RETURN}.tool_call_id"),
    ),
    "-> POST cancel": Rule(values=("path.1",), ids=("body.run_ids.0",)),
    # What is said in the stream of the run crosses it.
    "<- POST cancel": Rule(values=("status",), anywhere=True),
    # How often it is asked, and whether the server lets go of the model in time, is luck.
    "-> GET steps": Rule(ids=("path.2",), repeats=True),
    "<- GET steps": Rule(
        values=("status",),
        kinds=("body.0.id", "body.0.request_id"),
        repeats=True,
        anywhere=True,
    ),
    "-> GET runs": Rule(repeats=True),
    "<- GET runs": Rule(
        values=("status", "body.0.status", "body.0.stop_reason"),
        ids=("body.0.id", "body.0.conversation_id"),
        repeats=True,
    ),
    "-> GET run": Rule(ids=("path.2",), repeats=True),
    "<- GET run": Rule(
        values=("status", "body.status", "body.stop_reason"), ids=("body.id",), repeats=True
    ),
    "-> GET trace": Rule(ids=("path.2",), repeats=True),
    # The answer to the cancel crosses these too.
    "<- GET trace": Rule(values=("status",), repeats=True, anywhere=True),
    "<- ping": Rule(ids=("said.run_id",)),
    # The model says it in pieces, of which a stop lets through some, before and after its answer.
    "<- assistant_message": Rule(ids=_IDS, kinds=("said.content",), repeats=True, anywhere=True),
    "<- approval_request_message": Rule(
        ids=(*_IDS, "said.tool_call.tool_call_id"),
        values=("said.tool_call.name",),
        repeats=True,
    ),
    "<- tool_return_message": Rule(
        ids=("said.run_id", "said.tool_call_id"), values=("said.status",)
    ),
    **{
        f"<- stop_reason {reason}": Rule()
        for reason in ("end_turn", "cancelled", "requires_approval", "llm_api_error")
    },
    "<- usage_statistics": Rule(kinds=("said.prompt_tokens", "said.completion_tokens")),
    "<- error": Rule(values=("said.message_type", "said.error_type"), ids=("said.run_id",)),
    "<- [DONE]": Rule(),
    "<- end": Rule(),
}
"""By direction and name; see `letta_names`."""


def letta_names(frames: Sequence[WireFrame]) -> list[str]:
    """A request's and its answer's method and what it is about; an event's type and reason."""
    return [_name(frame.body if isinstance(frame.body, dict) else {}) for frame in frames]


def _name(body: Mapping[str, Any]) -> str:
    if "event" in body:
        return _event(body)
    method = body.get("ask") or body.get("answer")
    asked = body.get("body") if "ask" in body else None
    messages = asked.get("messages", [{}]) if isinstance(asked, dict) else [{}]
    approves = messages[0].get("type") == "approval"
    what = "run" if body["path"][-2] == "runs" else body["path"][-1]
    return f"{method} {what}{' approval' if approves else ''}"


def _event(body: Mapping[str, Any]) -> str:
    said = body.get("said")
    if not isinstance(said, dict):
        return str(said or body["event"])
    if body["event"] != "message":
        return str(body["event"])
    kind = str(said.get("message_type"))
    return f"{kind} {said.get('stop_reason')}" if kind == "stop_reason" else kind
