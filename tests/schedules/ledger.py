"""What is known of a run: the ledger that the backend and its users write to."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import trio

from turnstop import Settlement, StopBudget, Turn
from turnstop.abc import End

from .script import NEVER, Plan, Script


@attrs.define(eq=False)
class Call:
    """One adapter call: when it was made and came back, and whether it was cancelled first."""

    at: float
    back: float = NEVER
    cancelled: float = NEVER
    result: object = None


@attrs.define(eq=False)
class Record:
    """All that is known of one turn. Orders of things in one instant are told by `step`."""

    script: Script
    turn: Turn = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(init=False)
    parent: Record | None = None
    calls: dict[str, list[Call]] = attrs.field(factory=dict)
    began: float = NEVER
    over: float = NEVER
    outcome: End | BaseException | None = None
    outcome_at: float = NEVER
    outcome_step: float = NEVER
    revealed: float = NEVER
    sent: float = NEVER
    session: object = None
    emitted: int = 0
    heard: list[int] = attrs.field(factory=list)
    merged: bool = False
    to_end: bool = False
    read_from: float = NEVER
    read_until: float = NEVER
    silenced: list[tuple[float, float]] = attrs.field(factory=list)
    queued: float = NEVER
    queued_step: float = NEVER
    entered: float = NEVER
    body_left: float = NEVER
    left: float = NEVER
    stopped: float = NEVER
    stopped_step: float = NEVER
    shut_out: bool = False
    raised: list[BaseException] = attrs.field(factory=list)
    boom: BaseException | None = None
    cancelled: bool = False
    asks: int = 0
    told: list[Settlement] = attrs.field(factory=list)

    def call(self, name: str) -> Call | None:
        calls = self.calls.get(name)
        return calls[0] if calls else None

    def work_over(self, now: float) -> bool:
        return self.began > now or self.over <= now


@attrs.define(eq=False)
class Ledger:
    """What everybody writes to.

    Attributes:
        faults: what broke a promise.
        lines: the trace.
        asker: where questions are asked from: a service that the kernel knows nothing of.
    """

    budget: StopBudget
    asker: trio.Nursery
    forgetting: list[Plan]
    sweep: bool
    records: dict[str, Record] = attrs.field(factory=dict)
    started: dict[str, list[Record]] = attrs.field(factory=dict)
    dropped: dict[str, int] = attrs.field(factory=dict)
    faults: list[str] = attrs.field(factory=list)
    lines: list[tuple[float, str, str]] = attrs.field(factory=list)
    closing: float = NEVER
    closed: bool = False
    _steps: Any = attrs.field(factory=itertools.count, init=False)

    def step(self) -> int:
        found: int = next(self._steps)
        return found

    def say(self, who: str, what: str) -> None:
        self.lines.append((trio.current_time(), who, what))

    def blame(self, who: str, what: str) -> None:
        self.say(who, f"FAULT {what}")
        self.faults.append(f"{who}: {what}")
