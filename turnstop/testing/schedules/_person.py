"""Whoever takes a turn, what is known of it, and a promise to it that was not kept."""

from __future__ import annotations

import math

import attrs
import trio

from ..._records import Settlement
from ..._turn import Turn
from ...events import Ask
from ._schedule import Step

__all__ = ["NEVER", "Boom", "Fault", "Person"]

NEVER = math.inf


class Boom(Exception):
    """What a body, or the rooms' block, raises by itself."""


@attrs.frozen
class Fault:
    """One promise that was not kept.

    Attributes:
        promise: one word for it: what a shrunk schedule must break too.
        who: the turn, or what else it is about.
        text: what was seen.
    """

    promise: str
    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.who}: {self.text}"


@attrs.define(eq=False)
class Person:
    """Somebody who takes one turn. Times are Trio's clock's; NEVER where it did not happen.

    Attributes:
        step: what the schedule says of it.
        turn: the turn.
        scope: around the block.
        heard: the numbers of the words that were read.
        said: how many words its work was told to say.
        ordered: when its work was told to finish or fail, and did so in that step.
        stopped_at: when a receipt first named it.
        cancelled: a cancellation from outside has reached it.
        shut_out: the rooms were closed to it.
        asks: the questions that were read.
        answers: how many of them were answered.
        given: what they were answered.
        left_behind: what its work has left before the settlement.
        alive_then: what of it was alive at the settlement.
        read_until: when its reader in another task came to the end.
        reasons: of the stops that named it.
        own: what its body raised.
        caught: what its reader was given, and bore.
        error: what its block raised.
        told: what the rooms' observer was given.
    """

    step: Step
    turn: Turn
    queued_order: int = 0
    entered_order: int = 0
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    queued_at: float = NEVER
    entered_at: float = NEVER
    body_left_at: float = NEVER
    left_at: float = NEVER
    stopped_at: float = NEVER
    cancelled: bool = False
    shut_out: bool = False
    heard: list[int] = attrs.field(factory=list)
    said: int = 0
    to_end: bool = False
    asks: list[Ask] = attrs.field(factory=list)
    answers: int = 0
    given: list[str] = attrs.field(factory=list)
    ordered: dict[str, float] = attrs.field(factory=dict)
    left_behind: set[str] = attrs.field(factory=set)
    alive_then: set[str] = attrs.field(factory=set)
    reasons: set[tuple[str, str]] = attrs.field(factory=set)
    read_until: float = NEVER
    own: BaseException | None = None
    caught: BaseException | None = None
    error: BaseException | None = None
    told: list[Settlement] = attrs.field(factory=list)

    @property
    def name(self) -> str:
        """The turn's name in the schedule, and its id."""
        return self.step.who

    @property
    def here(self) -> bool:
        """Whether its entering has begun and its block has not left."""
        return self.queued_at < NEVER and self.left_at == NEVER
