"""The frozen records that an application and its observers are given."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

import attrs

from ._ending import Ending, Proof
from .events import Usage


class OnlyMadeByUs(type):
    """The metaclass of what `open_*` and its results make: nobody else constructs it."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        """Refuse."""
        raise TypeError(f"{cls.__name__} has no public constructor: take it from open_rooms")

    def _create(cls, *args: object, **kwargs: object) -> Any:
        return type.__call__(cls, *args, **kwargs)


Kind: TypeAlias = Literal[
    "stop", "stop_all", "left", "cancelled", "closing", "retire", "backlog", "recovery"
]


@attrs.frozen
class StopRequest:
    """Who asked for a stop, and why.

    Attributes:
        kind: `"stop"` and `"stop_all"`: by name; `"left"`: its block was left before the end;
            `"cancelled"`: a cancellation around its block; `"closing"`: the rooms are closing;
            `"retire"`: its room is retired; `"backlog"`: its reader was too slow; `"recovery"`:
            the process that had begun it is gone.
        reason: free text of whoever asked.
        source: free text: where the asking came from.
    """

    kind: Kind
    reason: str = ""
    source: str = ""


@attrs.frozen(kw_only=True)
class Settlement:
    """What became of a turn. Times are seconds on Trio's clock, None where it did not happen.

    Attributes:
        ending: what became of it.
        proof: how we know; None where no end was seen.
        gone: the end was seen, or nothing began, or the process is gone.
        request: who asked for the stop first; None when nobody asked before the turn was over or
            had failed.
        asked_at: when the stop was asked for.
        sent_at: when the cancel request had left.
        acked_at: when the cancel call returned; None for a backend that only notifies.
        ended_at: when the end was seen.
        settled_at: when this record was made.
        asked_wall: `asked_at` on the wall clock, UTC.
        errors: everything that was raised on the way, oldest first.
        survivors: names of what is still alive, as far as could be found.
        dropped: events that nobody read.
        usage: what the backend said the turn cost.
    """

    room: str
    turn_id: str
    ending: Ending
    proof: Proof | None = None
    gone: bool
    request: StopRequest | None = None
    asked_at: float | None = None
    sent_at: float | None = None
    acked_at: float | None = None
    ended_at: float | None = None
    settled_at: float
    asked_wall: datetime | None = None
    errors: tuple[BaseException, ...] = ()
    survivors: tuple[str, ...] = ()
    dropped: int = 0
    usage: Usage | None = None

    @property
    def clean(self) -> bool:
        """Gone, and nothing of it survives."""
        return self.gone and not self.survivors

    def to_json(self) -> dict[str, object]:
        """The record as JSON values: enums by value, errors as `Type: text`, no raw frames."""
        found = cast("dict[str, object]", attrs.asdict(self, recurse=False))
        found["ending"] = self.ending.value
        found["proof"] = self.proof and self.proof.value
        found["request"] = self.request and attrs.asdict(self.request)
        found["asked_wall"] = self.asked_wall and self.asked_wall.isoformat()
        found["errors"] = [f"{type(error).__name__}: {error}" for error in self.errors]
        found["survivors"] = list(self.survivors)
        found["usage"] = self.usage and {
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
        }
        found["clean"] = self.clean
        return found


class StopVerdict(enum.Enum):
    """What a stop found. Of several turns, the first in this order stands for all."""

    ASKED = "asked"
    """A turn was asked to stop, for the first time."""
    JOINED = "joined"
    """It was stopping already."""
    STALE = "stale"
    """No turn with this id is live here."""
    NOTHING = "nothing"
    """The room has no turn."""


@attrs.frozen
class Statistics:
    """A snapshot of some rooms.

    Attributes:
        rooms: rooms with a block open or waiting.
        live: turns whose block is open and that are not settled.
        waiting: turns that wait for their room.
        stopping: turns that are being stopped and not settled.
        stragglers: adapter calls that outlived their turn's settlement.
        dropped: events that nobody read, since the rooms were opened.
    """

    rooms: int
    live: int
    waiting: int
    stopping: int
    stragglers: int
    dropped: int
