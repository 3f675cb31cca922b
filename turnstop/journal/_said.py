"""What a record says: JSON, since that can say any text, also one that is no Unicode.

Put together by hand where that is the rule: a turn has four records, and most of what a journal
costs would be the making of their texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final

from .._records import Settlement, StopRequest

__all__ = ["TELL", "Told", "read_address", "read_admitted", "tell"]

_LONGEST: Final = 4000


class Told(str):
    """The text of a record, made before."""

    __slots__ = ()


def _admitted(said: tuple[str, str, str]) -> str:
    backend, room, turn_id = said
    return f'{{"backend": {quote(backend)}, "room": {quote(room)}, "turn_id": {quote(turn_id)}}}'


def _asked(request: StopRequest) -> str:
    kind, reason, source = quote(request.kind), _quote(request.reason), _quote(request.source)
    return f'{{"kind": {kind}, "reason": {reason}, "source": {source}}}'


def _settled(settlement: Settlement | Told) -> str:
    if isinstance(settlement, Told):
        return settlement
    request, proof = settlement.request, settlement.proof
    more = ""
    if settlement.errors:
        more += f', "errors": {json.dumps([_describe(error) for error in settlement.errors])}'
    if settlement.survivors:
        more += f', "survivors": {json.dumps([_cut(name) for name in settlement.survivors])}'
    return (
        f'{{"ending": "{settlement.ending.value}", '
        f'"proof": {"null" if proof is None else quote(proof.value)}, '
        f'"gone": {"true" if settlement.gone else "false"}, '
        f'"request": {"null" if request is None else _asked(request)}{more}}}'
    )


def _describe(error: BaseException) -> str:
    try:
        return _cut(f"{type(error).__name__}: {error}")
    except Exception:
        # Then its name alone.
        return type(error).__name__


def _quote(text: object) -> str:
    return quote(_cut(text))


def _cut(text: object) -> str:
    try:
        return str(text)[:_LONGEST]
    except Exception:
        # What somebody handed in holds up nothing else.
        return f"a {type(text).__name__} that cannot be told"


TELL: Final[Mapping[str, Callable[[Any], str]]] = {
    "admitted": _admitted,
    "address": quote,
    "asked": _asked,
    "settled": _settled,
}
"""By the kind of a record, what makes its text of what was noted. May raise, as `tell` does not:
what somebody handed in is anybody's code."""


def tell(kind: str, said: Any) -> str:
    """The text of a record. Of what somebody handed in and cannot be told it says that."""
    try:
        return TELL[kind](said)
    except Exception as error:
        return json.dumps({"not told": type(error).__name__})


def read_admitted(text: str) -> tuple[str | None, str | None]:
    """The room and the turn's id; None where it does not say so."""
    try:
        said = json.loads(text)
    except (TypeError, ValueError):
        return None, None
    found = [said.get(name) if isinstance(said, dict) else None for name in ("room", "turn_id")]
    room, turn_id = (one if isinstance(one, str) else None for one in found)
    return room, turn_id


def read_address(text: str | None) -> str | None:
    """An address; None where there is none, or it says what no address says."""
    try:
        found = None if text is None else json.loads(text)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, str) else None
