"""What a journal says, in lines and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from ..._errors import BackendLost
from ..._records import Settlement
from ...journal._reading import ListedTurn, ToldTurn
from ...transports.orphans import PROCESS, ProcessAddress, check_reach
from ...transports.owners import OWNER, OwnerAddress
from ..client.showing import timeline, visible

__all__ = [
    "busy_line",
    "ended_line",
    "listed_to_json",
    "open_line",
    "told_lines",
    "told_to_json",
]

_WIDTH = 8
_LONGEST = 72


def _when(at: float | None) -> str:
    if at is None:
        return "?"
    try:
        return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return str(at)


def _owner(turn: ListedTurn) -> str:
    pid = f"pid {turn.owner.pid}"
    if turn.alive is None:
        host = turn.owner.host.partition(" ")[0]
        return f"{pid} of {host} was alive {turn.silent_for:.0f} s ago"
    if turn.alive and turn.taken_over:
        return f"taken up by {pid}, which ends it once its room is free"
    if not turn.alive and (left := _find_at_work(turn.address or "")):
        return _still_at_work(left)
    return f"{pid} is alive" if turn.alive else f"{pid} is gone"


def _find_at_work(address: str) -> int:
    """The pid of a program that may work on it, though it has left the journal; else 0."""
    try:
        if not address.startswith(OWNER):
            return 0
        # Also for a program that the work itself has begun, which may not take it up.
        owner = OwnerAddress.parse(address)
        check_reach(owner.host, owner.pid)
        return owner.pid if owner.may_be_there() else 0
    except BackendLost:
        return 0


def _still_at_work(pid: int) -> str:
    return f"still at work: its program, pid {pid}, is alive; stop it there"


def _place(address: str) -> str:
    """An address as people read it."""
    try:
        if address.startswith(PROCESS):
            process = ProcessAddress.parse(address)
            pid = f"pid {process.pid}" if process.pid else "a process that was about to begin"
            parts = [pid, process.session]
        elif address.startswith(OWNER):
            owner = OwnerAddress.parse(address)
            parts = [f"work of pid {owner.pid} itself", owner.session]
        else:
            found = json.loads(address)
            parts = [one for one in found if isinstance(one, str)]
            if not isinstance(found, list) or not any(parts):
                raise ValueError
    except (BackendLost, TypeError, ValueError, RecursionError):
        parts = [address]
    text = ", ".join(part for part in parts if part)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _what(turn: ListedTurn) -> str:
    return f"{turn.room}: {turn.turn_id} of {turn.backend}, since {_when(turn.since)}"


def open_line(turn: ListedTurn) -> str:
    """An open turn, in one line."""
    where = "not known where" if turn.address is None else f"at {_place(turn.address)}"
    return visible(f"{_what(turn)}; {_owner(turn)}; {where}")


def busy_line(turn: ListedTurn) -> str:
    """A turn of a process that is there, in one line: what to do of it."""
    if turn.taken_over:
        return open_line(turn)
    return visible(f"{_what(turn)}; {_still_at_work(turn.owner.pid)}")


def listed_to_json(turn: ListedTurn) -> dict[str, Any]:
    """The same, as JSON values."""
    return {
        "room": turn.room,
        "turn_id": turn.turn_id,
        "backend": turn.backend,
        "address": turn.address,
        "since": turn.since,
        "process": {
            "host": turn.owner.host,
            "pid": turn.owner.pid,
            "silent_for": turn.silent_for,
            "alive": turn.alive,
            "has_taken_over": turn.taken_over,
        },
    }


def ended_line(settlement: Settlement) -> str:
    """What has become of a turn, in one line."""
    told = settlement.to_json()
    more = [str(told["errors"])] if told["errors"] else []
    more += [f"alive: {', '.join(settlement.survivors)}"] if settlement.survivors else []
    how = f"{settlement.room}: {settlement.turn_id} {settlement.ending.value.upper()}"
    return visible("; ".join([f"{how} {timeline(told)}".rstrip(), *more]))


def told_lines(turn: ToldTurn) -> Iterator[str]:
    """All that is kept of a turn: a line each, with milliseconds after the first."""
    state = "open" if turn.is_open else "settled"
    yield visible(f"{turn.room}: {turn.turn_id} of {turn.backend}, {state}")
    first = turn.records[0][1] if turn.records else 0.0
    for kind, at, said in turn.records:
        after = f"+{1000 * (at - first):.0f} ms" if at != first else _when(at)
        text = _SAYS[kind](said) if kind in _SAYS else str(said)
        yield visible(f"  {after:>19}  {kind:<{_WIDTH}}  {text}").rstrip()


def told_to_json(turn: ToldTurn) -> dict[str, Any]:
    """The same, as JSON values."""
    return {
        "room": turn.room,
        "turn_id": turn.turn_id,
        "backend": turn.backend,
        "open": turn.is_open,
        "records": [{"kind": kind, "at": at, "said": said} for kind, at, said in turn.records],
    }


def _asked(said: dict[str, str]) -> str:
    source = f" by {said['source']}" if said["source"] else ""
    return f"{said['kind']}{source}: {said['reason']}".removesuffix(": ")


def _settled(said: dict[str, Any]) -> str:
    proof = f", told by {said['proof']}" if said["proof"] else ""
    gone = "gone" if said["gone"] else "may be alive"
    more = [*said.get("errors", ()), *(f"alive: {one}" for one in said.get("survivors", ()))]
    return "; ".join([f"{str(said['ending']).upper()}{proof}, {gone}", *map(str, more)])


_SAYS: dict[str, Callable[[Any], str]] = {
    "admitted": lambda said: "",
    "address": lambda said: _place(said) if isinstance(said, str) else str(said),
    "asked": _asked,
    "settled": _settled,
}
