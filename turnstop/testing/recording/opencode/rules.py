"""What of opencode's wire matters: the frames and fields that the adapter reads, all that it sends.

Nothing is said of which comes first where opencode answers a request and tells of it in its stream:
those are two connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._differences import Rule
from ..._wire import WireFrame

__all__ = ["RULES", "opencode_names"]

_ID = "properties.sessionID"
_INFO = "properties.info"
_PART = "properties.part"
_ANSWER = Rule(
    ids=(f"{_INFO}.id", f"{_INFO}.parentID", _ID),
    values=(f"{_INFO}.error.name", f"{_INFO}.finish"),
    kinds=(f"{_INFO}.time.completed",),
    repeats=True,
)
_ASKED = {"values": ("ask",), "anywhere": True}

RULES: dict[str, Rule] = {
    **{
        f"-> {name}": Rule(ids=ids, values=values)
        for name, ids, values in (
            ("POST session", (), ("body",)),
            ("POST prompt_async", ("path.1", "body.messageID"), ("body.parts",)),
            ("POST abort", ("path.1",), ("body",)),
            ("POST permission reply", ("path.1",), ("body",)),
        )
    },
    "-> GET event": Rule(),
    "-> GET health": Rule(),
    # How often it is asked is a matter of time.
    "-> GET": Rule(optional=True, anywhere=True),
    "<- GET health": Rule(kinds=("body.version",)),
    "<- POST session": Rule(ids=("body.id",), values=("status",), anywhere=True),
    "<- POST prompt_async": Rule(ids=("path.1",), values=("status", "body"), anywhere=True),
    "<- POST abort": Rule(ids=("path.1",), values=("status", "body"), anywhere=True),
    "<- POST permission reply": Rule(values=("status", "body"), anywhere=True),
    "<- server.connected": Rule(),
    "<- session.created": Rule(ids=(_ID, f"{_INFO}.id")),
    "<- message.updated user": Rule(ids=(_ID, f"{_INFO}.id"), repeats=True, anywhere=True),
    "<- message.updated assistant open": _ANSWER,
    "<- message.updated assistant completed": _ANSWER,
    "<- message.updated assistant error": _ANSWER,
    "<- session.status busy": Rule(ids=(_ID,), repeats=True, anywhere=True),
    "<- session.status idle": Rule(ids=(_ID,), repeats=True, anywhere=True),
    "<- session.error": Rule(ids=(_ID,), values=("properties.error.name",), optional=True),
    "<- message.part.delta": Rule(
        ids=(_ID, "properties.messageID", "properties.partID"),
        values=("properties.field", "properties.delta"),
    ),
    "<- permission.asked": Rule(
        ids=("properties.id", _ID),
        values=("properties.permission",),
        kinds=("properties.patterns",),
    ),
    "<- permission.replied": Rule(ids=("properties.requestID", _ID), anywhere=True),
}
"""By direction and name; see `opencode_names`."""


def opencode_names(frames: Sequence[WireFrame]) -> list[str]:
    """A request's and its answer's method and the last of its path; an event's type and state."""
    return [_name(frame.body if isinstance(frame.body, dict) else {}) for frame in frames]


def _name(body: Mapping[str, Any]) -> str:
    method = body.get("ask") or body.get("answer")
    if method is None:
        return _event(str(body.get("type")), body.get("properties") or {})
    path = body["path"]
    if method == "GET" and path[-1] not in ("event", "health"):
        return "GET"
    last = path[-1] if path[-1] != "reply" else f"{path[0]} reply"
    return f"{method} {last}"


def _event(kind: str, properties: Mapping[str, Any]) -> str:
    if kind == "session.status":
        return f"{kind} {properties['status']['type']}"
    if kind != "message.updated":
        return kind
    info = properties["info"]
    if info["role"] == "user":
        return f"{kind} user"
    done = "completed" if info["time"].get("completed") else "open"
    return f"{kind} assistant {'error' if info.get('error') else done}"
