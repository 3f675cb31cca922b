"""What goes over the wire: bodies that are taken, and events as they are told."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias

import attrs
import msgspec

from ..events import Ask, Event, Other, Text, Thought, ToolCall, Usage

__all__ = [
    "Accepted",
    "Answer",
    "AskedFor",
    "Failure",
    "Health",
    "Post",
    "Press",
    "Pressed",
    "RoomState",
    "describe",
    "to_line",
]

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Post(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the room's agent. One with an id that was posted before is not posted again."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    id: Name | None = None


class Press(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's wish. With `turn_id`: only where this turn is the one that is worked on. Two with
    one `id` are one.
    """

    turn_id: Name | None = None
    id: Name | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's reply to a question of the room's turn."""

    ask: Name
    reply: Any


class Accepted(msgspec.Struct, frozen=True):
    """The id of what was taken."""

    id: str


class Pressed(msgspec.Struct, frozen=True):
    """What a control has found: the rooms that it was applied to, and the turns that it stops."""

    rooms: list[str]
    turn_ids: list[str]
    repeated: bool


class AskedFor(msgspec.Struct, frozen=True):
    """A question that waits for a person; empty choices: any text will do."""

    id: str
    kind: str
    text: str
    choices: list[str]


class RoomState(msgspec.Struct, frozen=True):
    """How a room stands. `waiting`: messages that are not finished, the one worked on included."""

    room: str
    paused: bool
    turn_id: str | None
    asks: list[AskedFor]
    waiting: int


class Health(msgspec.Struct, frozen=True):
    """`status` is `ok`, or `closing` once no more is taken."""

    status: str
    agent: str
    rooms: int
    live: int
    stopping: int
    stragglers: int


class Failure(msgspec.Struct, frozen=True):
    """What was wrong, for a person to read."""

    error: str


_KINDS: dict[type[Any], str] = {
    Text: "text",
    Thought: "thought",
    ToolCall: "tool_call",
    Ask: "ask",
    Usage: "usage",
    Other: "other",
}


def describe(event: Event) -> tuple[str, dict[str, Any]]:
    """An event's type and fields, without the provider's frame."""
    return _KINDS[type(event)], attrs.asdict(
        event, filter=lambda attribute, _: attribute.name != "raw"
    )


def to_line(data: dict[str, Any]) -> str:
    """JSON in one line, of ASCII: whatever an agent says, it fits a stream of events."""
    return json.dumps(data, separators=(",", ":"), default=str)
