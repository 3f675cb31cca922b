"""What goes over the wire: bodies that are taken, and events as they are told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
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
    "Question",
    "Recovered",
    "RoomState",
    "describe",
    "fit",
    "is_recovered",
    "question_of",
    "recovered_of",
    "to_json",
    "to_line",
]

_MOST: Final = 64 * 1024
"""Characters that an event has, about, whatever an agent says."""
_MOST_OF_ONE: Final = 60 * 1024
_MOST_OF_ID: Final = 1000
_MOST_OF_CHOICE: Final = 200
_MOST_ITEMS: Final = 100

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Post(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the room's agent. One with an id that was posted to this room before is not
    posted again.
    """

    content: Annotated[str, msgspec.Meta(min_length=1)]
    id: Name | None = None


class Press(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's wish. With `turn_id`: only where this turn is the one that is worked on. Two of
    one kind, for one room and turn, with one `id` are one.
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


class Recovered(msgspec.Struct, frozen=True):
    """A turn that a process which is gone had begun, and how it ended when it was taken up."""

    turn_id: str
    ending: str


class RoomState(msgspec.Struct, frozen=True):
    """How a room stands. `waiting`: messages that are not finished, the one worked on included.
    `recovered`: turns that a process which is gone had left, until the room has a turn again.
    """

    room: str
    paused: bool
    turn_id: str | None
    asks: list[AskedFor]
    waiting: int
    recovered: list[Recovered]


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
        yield msgspec.structs.asdict(question_of(event).told)
    else:
        yield attrs.asdict(event, filter=lambda attribute, _: attribute.name != "raw")


@final
@attrs.frozen
class Question:
    """A question as it is told, and what is meant by each choice that was told."""

    told: AskedFor
    _meant: dict[str, str]

    def reply_of(self, reply: object) -> object:
        """What the agent is given: a choice is what it has offered, however that was told."""
        return self._meant.get(reply, reply) if isinstance(reply, str) else reply


def question_of(ask: Ask) -> Question:
    """A question as it can be told. Its id may be another than what the agent calls it.

    Its choices come first: without one that it knows, nobody can say yes.
    """
    meant = dict[str, str]()
    for choice in ask.choices[:_MOST_ITEMS]:
        meant.setdefault(_named(choice, meant), choice)
    more = len(ask.choices) - _MOST_ITEMS
    text = _whole(ask.text)
    left = _MOST_OF_ONE - _MOST_OF_ID - sum(map(len, meant))
    told = AskedFor(
        id=_whole(ask.id[:_MOST_OF_ID]),
        kind=ask.kind,
        text=_cut(text, left) + (f"\n{_more(more, 'choices')}" if more > 0 else ""),
        choices=[*meant],
    )
    return Question(told, meant)


def _named(choice: str, meant: Mapping[str, str]) -> str:
    name = _cut(_whole(choice), _MOST_OF_CHOICE)
    # Two that begin alike are two.
    names = (name if number == 1 else f"{name} ({number})" for number in itertools.count(1))
    return next(one for one in names if meant.get(one, choice) == choice)


def recovered_of(settlements: Sequence[Mapping[str, Any]]) -> list[Recovered]:
    """The turns that were taken up since the room's last own one, of settlements as told."""
    of_now = itertools.takewhile(is_recovered, reversed(settlements))
    return [Recovered(one["turn_id"], one["ending"]) for one in of_now][::-1]


def is_recovered(settlement: Mapping[str, Any]) -> bool:
    """Whether a process that is gone had begun the turn of this settlement, as it is told."""
    request = settlement["request"]
    return request is not None and request["kind"] == "recovery"


def fit(data: dict[str, Any]) -> dict[str, Any]:
    """The same as what can be sent: what is no character is replaced; the longest texts and lists
    are cut, with a mark, until all has some `_MOST` characters. A short one is never cut for a
    long one.
    """
    found = _bounded(data)
    lengths = sorted(_lengths(found))
    left, most = _MOST, 0
    for number, length in enumerate(lengths):
        most = left // (len(lengths) - number)
        if length > most:
            return cast("dict[str, Any]", _shorten(found, most))
        left -= length
    return cast("dict[str, Any]", found)


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, dict):
        return {name: _bounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        more = len(value) - _MOST_ITEMS
        kept = [_bounded(one) for one in value[:_MOST_ITEMS]]
        return [*kept, _more(more, "more")] if more > 0 else kept
    return value


def _lengths(value: Any) -> Iterator[int]:
    if isinstance(value, str):
        yield len(value)
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _lengths(one)


def _shorten(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _cut(value, most)
    if isinstance(value, dict):
        return {name: _shorten(one, most) for name, one in value.items()}
    return [_shorten(one, most) for one in value] if isinstance(value, list) else value


def _cut(text: str, most: int) -> str:
    more = len(text) - most
    return f"{text[:most]}{_more(more, 'more characters')}" if more > 0 else text


def _more(count: int, what: str) -> str:
    return f"\N{HORIZONTAL ELLIPSIS} ({count} {what})"


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
