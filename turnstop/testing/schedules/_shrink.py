"""Making a schedule that breaks a promise as small as it can be."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import attrs

from .._run import MakeProbe
from ._draw import draw
from ._play import BLOCKS, Played, replay, replay_within
from ._schedule import Schedule, Step

__all__ = ["shrink", "shrink_played"]

Choices: TypeAlias = tuple[int, ...]

# One number a step: 0 leaves it out, the next ones take something off it, all above leave it as it
# is. There are many of these, so that a good part of what is tried first has nearly every step.
TAKES_OFF = 4
WHOLE = 100
# Seconds of real time. What hangs, and not for want of anything to come, takes `HANGS` of them for
# each try: after `PATIENCE` what was found by then must do.
PATIENCE = 120.0
HANGS = 3.0
INSTALL = "shrinking takes Hypothesis: python -m pip install 'turnstop[testing]'"


def shrink(make_probe: MakeProbe, seed: int | Schedule, *, tries: int = 1000) -> Schedule:
    """Find a small schedule that breaks the promise that this one breaks.

    The same schedule and probe give the same result, where it is found within two minutes.

    Args:
        make_probe: makes the probe.
        seed: of the schedule, or a schedule.
        tries: how many schedules are played at most.

    Returns:
        The smallest that was found; the schedule itself where it breaks nothing, or blocks.

    Raises:
        ImportError: Hypothesis is not installed; the text has the command.
    """
    schedule = seed if isinstance(seed, Schedule) else draw(seed, make_probe())
    return shrink_played(make_probe, replay(make_probe, schedule), tries=tries).schedule


def shrink_played(make_probe: MakeProbe, played: Played, *, tries: int = 1000) -> Played:
    """As `shrink`, of what was played."""
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError:
        raise ImportError(INSTALL) from None
    # Where a step blocks is told as it is; that is not worth blocking for again and again.
    if not played.faults or played.faults[0].promise == BLOCKS:
        return played
    search = _Search(make_probe, played, tries)
    steps = [strategies.integers(0, WHOLE) for _ in played.schedule.steps]
    settings = hypothesis.settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=200,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with suppress(hypothesis.errors.NoSuchExample):
        hypothesis.find(strategies.tuples(*steps), search.breaks, settings=settings)
    return search.best


@attrs.define(eq=False)
class _Search:
    """Plays what Hypothesis proposes.

    Attributes:
        best: the smallest that breaks the promise.
        tries: how many more may be played.
    """

    make_probe: MakeProbe
    best: Played
    tries: int
    _of: Schedule = attrs.field(init=False)
    _promise: str = attrs.field(init=False)
    _known: dict[Choices, bool] = attrs.field(factory=dict, init=False)
    _until: float = attrs.field(factory=lambda: time.monotonic() + PATIENCE, init=False)

    def __attrs_post_init__(self) -> None:
        self._of, self._promise = self.best.schedule, self.best.faults[0].promise

    def breaks(self, choices: Sequence[int]) -> bool:
        """Whether what is left of the schedule breaks the same promise."""
        key = tuple(min(choice, TAKES_OFF) for choice in choices)
        if key not in self._known:
            if not self.tries or time.monotonic() > self._until:
                return False
            self.tries -= 1
            self._known[key] = self._play(key)
        return self._known[key]

    def _play(self, key: Choices) -> bool:
        pairs = zip(self._of.steps, key, strict=True)
        steps = tuple(_take_off(step, choice) for step, choice in pairs if choice)
        played = replay_within(self.make_probe, attrs.evolve(self._of, steps=steps), HANGS)
        broken = any(fault.promise == self._promise for fault in played.faults)
        if broken and _size(played.schedule) < _size(self.best.schedule):
            self.best = played
        return broken


def _take_off(step: Step, choice: int) -> Step:
    if choice == 1:
        return attrs.evolve(step, wait=0.0, lasts=min(step.lasts, 1.0), timeout=math.inf)
    if choice == 2:
        return attrs.evolve(step, wait=0.0)
    if choice == 3:
        return attrs.evolve(step, wait=round(step.wait, 1))
    return step


def _size(schedule: Schedule) -> tuple[int, int, float]:
    steps = schedule.steps
    waits = [step.wait for step in steps]
    return len(steps), sum(wait > 0 for wait in waits), sum(waits)
