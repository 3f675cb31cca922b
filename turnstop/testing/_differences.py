"""What of a wire is not as in the golden one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeAlias

import attrs

from ._wire import DIRECTIONS, Direction, WireFrame

_ABSENT = object()
_KINDS = {dict: "object", list: "list", str: "text", bool: "flag", type(None): "null"}


@attrs.frozen
class Rule:
    """What of the frames with one name matters. A path is `params.turn.id`, or `input.0.type`.

    Attributes:
        values: paths where the value is to be the same.
        kinds: paths where only the kind of value is: text, number, object, null, absent.
        ids: paths where it is the same but for the name: what is one thing in the golden wire is
            one thing in the other, what are two are two.
        repeats: whether several in a row are as good as one; with `anywhere`, several at all.
        optional: whether it may be missing, or more.
        anywhere: whether only that it comes matters, and not where.
    """

    values: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    repeats: bool = False
    optional: bool = False
    anywhere: bool = False


Names: TypeAlias = Callable[[Sequence[WireFrame]], Sequence[str]]


def jsonrpc_names(frames: Sequence[WireFrame]) -> list[str]:
    """Names for JSON-RPC: a frame's method, and `METHOD = result` or `= error` for its answer."""
    asked: dict[tuple[Direction, object], str] = {}
    names = []
    for frame in frames:
        body = frame.body if isinstance(frame.body, dict) else {}
        method, number = body.get("method"), body.get("id")
        if isinstance(method, str):
            asked[frame.direction, number] = method
            names.append(method)
        else:
            answered = asked.get(("<-" if frame.direction == "->" else "->", number), "?")
            names.append(f"{answered} = {'error' if body.get('error') else 'result'}")
    return names


def differences(
    golden: Iterable[WireFrame],
    found: Iterable[WireFrame],
    rules: Mapping[str, Rule],
    names: Names = jsonrpc_names,
) -> list[str]:
    """What of `found` is not as in the golden wire, a readable line each; empty where it is alike.

    Args:
        golden: what the real program was told and said.
        found: what is held against it.
        rules: what matters, by direction and name: `"<- turn/completed"`. What the program says
            and no rule names is passed over.
        names: gives each frame its name.

    The two directions are compared one by one: what crosses on the way has no order.
    """
    kept = [_kept(tuple(frames), rules, names) for frames in (golden, found)]
    pairs: _Aligned = []
    lines: list[str] = []
    for direction in DIRECTIONS:
        one, other = ([entry for entry in side if entry.direction == direction] for side in kept)
        aligned, order = _align(one, other)
        pairs += aligned
        lines += _missing(aligned, order)
    return lines + _changed(pairs)


@attrs.frozen
class _Entry:
    name: str
    direction: Direction
    body: Any
    rule: Rule
    place: int


def _kept(frames: Sequence[WireFrame], rules: Mapping[str, Rule], names: Names) -> list[_Entry]:
    """The frames that matter."""
    kept: list[_Entry] = []
    last: dict[Direction, str] = {}
    seen: set[str] = set()
    for frame, name in zip(frames, names(frames), strict=True):
        full = f"{frame.direction} {name}"
        rule = rules.get(full)
        if rule is None and frame.direction == "<-":
            continue
        rule = rule or Rule()
        again = full in seen if rule.anywhere else last.get(frame.direction) == full
        if not (rule.repeats and again):
            kept.append(_Entry(full, frame.direction, frame.body, rule, len(kept)))
        seen.add(full)
        last[frame.direction] = full
    return kept


_Aligned: TypeAlias = list[tuple[_Entry | None, _Entry | None]]


def _align(golden: list[_Entry], found: list[_Entry]) -> tuple[_Aligned, list[str]]:
    """Which belongs to which, and the order in which they are to come."""
    loose = [[one for one in side if one.rule.anywhere] for side in (golden, found)]
    fixed = [[one for one in side if not one.rule.anywhere] for side in (golden, found)]
    pairs: _Aligned = []
    for name in dict.fromkeys(one.name for side in loose for one in side):
        pairs += _zip(*([one for one in side if one.name == name] for side in loose))
    one, other = fixed
    matcher = SequenceMatcher(None, [e.name for e in one], [e.name for e in other], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(one[a:b], other[c:d], strict=True)
        else:
            pairs += [(entry, None) for entry in one[a:b]]
            pairs += [(None, entry) for entry in other[c:d]]
    return pairs, [entry.name for entry in one]


def _zip(one: Sequence[_Entry], other: Sequence[_Entry]) -> Iterator[tuple[Any, Any]]:
    longest = max(len(one), len(other))
    blank: list[None] = [None]
    yield from zip(
        [*one, *blank * (longest - len(one))],
        [*other, *blank * (longest - len(other))],
        strict=True,
    )


def _missing(pairs: _Aligned, order: list[str]) -> list[str]:
    lines = []
    place = 0
    for golden, found in pairs:
        entry = golden or found
        assert entry is not None
        place += golden is not None and not golden.rule.anywhere
        if (golden is not None and found is not None) or entry.rule.optional:
            continue
        what, before = "comes, and is not due", order[:place]
        if found is None:
            what, before = "does not come", order[: place - 1]
        # What may come anywhere has its place behind nothing.
        lines.append(f"{entry.name}: {what}{_after([] if entry.rule.anywhere else before)}")
    return lines


def _changed(pairs: _Aligned) -> list[str]:
    same = _Same()
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    # In the order of the wire: what is first called by a name has it.
    both.sort(key=lambda pair: pair[0].place)
    return [f"{one.name}: {text}" for one, other in both for text in same.fields(one, other)]


def _after(before: Sequence[str]) -> str:
    return f" after {before[-1]}" if before else ""


class _Same:
    """Whether fields are the same; ids up to a renaming that holds for the whole wire."""

    def __init__(self) -> None:
        self._there: dict[str, str] = {}
        self._here: dict[str, str] = {}

    def fields(self, golden: _Entry, found: _Entry) -> Iterator[str]:
        for path in golden.rule.values:
            one, other = _at(golden.body, path), _at(found.body, path)
            if one != other:
                yield f"{path} is {_show(other)}, and not {_show(one)}"
        for path in golden.rule.kinds:
            one, other = _kind(_at(golden.body, path)), _kind(_at(found.body, path))
            if one != other:
                yield f"{path} is {other}, and not {one}"
        for path in golden.rule.ids:
            yield from self._id(path, _at(golden.body, path), _at(found.body, path))

    def _id(self, path: str, golden: object, found: object) -> Iterator[str]:
        if golden is _ABSENT or found is _ABSENT:
            if golden is not found:
                yield f"{path} is {_show(found)}, and not {_show(golden)}"
            return
        one, other = _show(golden), _show(found)
        if self._there.setdefault(one, other) != other or self._here.setdefault(other, one) != one:
            yield f"{path} is {other}; {one} is {self._there[one]} elsewhere"


def _at(body: Any, path: str) -> object:
    for step in path.split("."):
        if isinstance(body, dict):
            body = body.get(step, _ABSENT)
        elif isinstance(body, list) and step.isdecimal() and int(step) < len(body):
            body = body[int(step)]
        else:
            return _ABSENT
    return body


def _kind(value: object) -> str:
    return "absent" if value is _ABSENT else _KINDS.get(type(value), "number")


def _show(value: object) -> str:
    return "absent" if value is _ABSENT else json.dumps(value)
