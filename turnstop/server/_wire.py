"""What goes over the wire: bodies that are taken, and events as they are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias, cast, final

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
    "asked_for",
    "describe",
    "fit",
    "to_json",
    "to_line",
]

_MOST: Final = 64 * 1024
"""Characters that an event has, about, whatever an agent says."""
_MOST_OF_ONE: Final = 60 * 1024
_MOST_OF_ID: Final = 1000

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Post(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the room's agent. One with an id that was posted to this room before is not
    posted again.
    """

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
    """A person's reply to a question of the room's turn. With `turn_id`: only where this turn asks,
    for the next one may have a question with the same id.
    """

    ask: str
    reply: Any
    turn_id: Name | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The id of what was taken."""

    id: str


class Pressed(msgspec.Struct, frozen=True):
    """What a control has found: the rooms that it was applied to, and the turns that it stops.
    What it does is told behind the event with this id.
    """

    rooms: list[str]
    turn_ids: list[str]
    repeated: bool
    last_event_id: str


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


def describe(event: Event) -> Iterator[Any]:
    """An event's type; then its fields, without the provider's frame; of a long text, in pieces."""
    yield _KINDS[type(event)]
    if isinstance(event, Text | Thought):
        for start in range(0, max(len(event.delta), 1), _MOST_OF_ONE):
            yield {"delta": event.delta[start : start + _MOST_OF_ONE]}
    elif isinstance(event, Ask):
        yield msgspec.structs.asdict(asked_for(event))
    else:
        yield attrs.asdict(event, filter=lambda attribute, _: attribute.name != "raw")


def asked_for(ask: Ask) -> AskedFor:
    """A question as it is told. Its id may be another than what the agent calls it."""
    found = {
        "id": ask.id[:_MOST_OF_ID],
        "kind": ask.kind,
        "text": ask.text,
        "choices": list(ask.choices),
    }
    return AskedFor(**fit(found, _MOST_OF_ONE))


def fit(data: dict[str, Any], most: int = _MOST) -> dict[str, Any]:
    """The same as what can be sent: text is cut, with a mark, and what is no character replaced."""
    return cast("dict[str, Any]", _Fitting(most).fit(data))


@final
@attrs.define
class _Fitting:
    """Takes what comes first, up to so many characters."""

    left: int

    def fit(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cut(_whole(value))
        if isinstance(value, dict):
            return {name: self.fit(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.fit(one) for one in value if self.left > 0]
        return value

    def _cut(self, text: str) -> str:
        kept = text[: max(self.left, 0)]
        self.left -= len(text) + 1
        more = len(text) - len(kept)
        return f"{kept}\N{HORIZONTAL ELLIPSIS} ({more} more characters)" if more else text


def _whole(text: str) -> str:
    """The text, with U+FFFD for each half of a character; JSON from elsewhere may have some."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def to_line(data: dict[str, Any]) -> str:
    """JSON in one line, of ASCII: whatever an agent says, it fits a stream of events."""
    return json.dumps(data, separators=(",", ":"), default=str)


def to_json(data: object) -> bytes:
    """JSON, whatever is said in it."""
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        found = json.dumps(msgspec.to_builtins(data), ensure_ascii=False, separators=(",", ":"))
        return _whole(found).encode()
