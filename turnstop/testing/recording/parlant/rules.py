"""What of a session's events matters: what the adapter reads, and all that it sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._differences import Rule
from ..._wire import WireFrame

__all__ = ["RULES", "as_frames", "parlant_names"]

_IDS = ("session", "trace")

RULES: dict[str, Rule] = {
    "-> message": Rule(ids=_IDS, kinds=("data.message",)),
    "<- status acknowledged": Rule(ids=_IDS),
    "<- message": Rule(ids=_IDS, kinds=("data.message",)),
    "<- status ready completed": Rule(ids=_IDS, values=("data.data.stage",)),
    "<- status cancelled": Rule(ids=_IDS),
    "<- status error": Rule(ids=_IDS, kinds=("data.data.exception",)),
}
"""By direction and name; see `parlant_names`. Everything else that is said is for people."""


def as_frames(session: str, events: Iterable[Any]) -> list[WireFrame]:
    """The events of a session, in their order; what a customer has sent is what it was told."""
    frames = []
    for event in sorted(events, key=lambda event: event.offset):
        told = getattr(event.source, "value", event.source) == "customer"
        kind = getattr(event.kind, "value", event.kind)
        body = {"session": session, "trace": event.trace_id, "kind": kind, "data": event.data}
        frames.append(WireFrame("->" if told else "<-", body))
    return frames


def parlant_names(frames: Sequence[WireFrame]) -> list[str]:
    """Each event's kind; of a status which, and whether it is the last one of its turn."""
    return [_name(frame.body["kind"], frame.body["data"]) for frame in frames]


def _name(kind: str, data: Any) -> str:
    if kind != "status" or not isinstance(data, Mapping):
        return kind
    detail = data.get("data")
    last = isinstance(detail, Mapping) and detail.get("stage") == "completed"
    return f"status {data.get('status')}" + (" completed" if last else "")
