"""From samples to figures: a row a runner and moment, and ratios of medians. Milliseconds."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from ..._ending import Ending
from .model import Moment, RunnerName
from .verdicts import Sample

RESAMPLES = 4000


@attrs.frozen
class Spread:
    """Of the samples that have the figure, in milliseconds; None where none has it."""

    median: float | None
    p95: float | None
    max: float | None


@attrs.frozen(kw_only=True)
class Row:
    """What one runner did at one moment of one backend.

    Attributes:
        lost: stops with anything wrong: what follows up to `histories`, or work that went on.
        lies: settlements that say what was seen to be otherwise.
        unanswered: sessions whose next turn did not answer and end by itself.
        histories: sessions whose history was then not valid.
        killed: stops that took the forceful rung.
        unconfirmed: stops of which no end was seen.
        survivors: what settlements named as still alive.
    """

    backend: str
    moment: Moment
    runner: RunnerName
    n: int
    lost: int
    lies: int
    unanswered: int
    histories: int
    killed: int
    unconfirmed: int
    survivors: int
    endings: dict[str, int]
    asked_to_sent_ms: Spread
    sent_to_acked_ms: Spread
    asked_to_gone_ms: Spread
    asked_to_ended_ms: Spread
    asked_to_admitted_ms: Spread

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class Ratio:
    """turnstop's median over another runner's, with its bootstrapped 95 % interval.

    Only pairs count in which both turns ended since they were stopped, not by themselves, and the
    other runner lost nothing.
    """

    backend: str
    moment: Moment
    runner: RunnerName
    figure: str
    pairs: int
    ratio: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return attrs.asdict(self)


def _sent(sample: Sample) -> float | None:
    return _between(sample.outcome.asked_at, sample.outcome.sent_at)


def _acked(sample: Sample) -> float | None:
    return _between(sample.outcome.sent_at, sample.outcome.acked_at)


def _gone(sample: Sample) -> float | None:
    return _between(sample.outcome.asked_at, sample.gone_at)


def _ended(sample: Sample) -> float | None:
    return _between(sample.outcome.asked_at, sample.outcome.ended_at)


def _admitted(sample: Sample) -> float | None:
    return _between(sample.outcome.asked_at, sample.admitted_at)


def _between(since: float | None, until: float | None) -> float | None:
    if since is None or until is None:
        return None
    return (until - since) * 1000


def row(backend: str, moment: Moment, runner: RunnerName, samples: Sequence[Sample]) -> Row:
    """Sum up one runner's samples of one moment."""
    endings = Counter(sample.outcome.ending for sample in samples)
    return Row(
        backend=backend,
        moment=moment,
        runner=runner,
        n=len(samples),
        lost=sum(bool(sample.lost) for sample in samples),
        lies=sum(bool(sample.lies) for sample in samples),
        unanswered=sum(bool(sample.unanswered) for sample in samples),
        histories=sum(bool(sample.histories) for sample in samples),
        killed=endings[Ending.KILLED.name],
        unconfirmed=endings[Ending.UNCONFIRMED.name],
        survivors=sum(len(sample.outcome.survivors) for sample in samples),
        endings=dict(sorted(endings.items())),
        asked_to_sent_ms=_spread(_sent, samples),
        sent_to_acked_ms=_spread(_acked, samples),
        asked_to_gone_ms=_spread(_gone, samples),
        asked_to_ended_ms=_spread(_ended, samples),
        asked_to_admitted_ms=_spread(_admitted, samples),
    )


def _spread(figure: Callable[[Sample], float | None], samples: Sequence[Sample]) -> Spread:
    values = sorted(value for sample in samples if (value := figure(sample)) is not None)
    if not values:
        return Spread(None, None, None)
    p95 = values[math.ceil(0.95 * len(values)) - 1]
    return Spread(*(round(value, 3) for value in (statistics.median(values), p95, values[-1])))


def ratios(
    backend: str, moment: Moment, ours: Sequence[Sample], theirs: Sequence[Sample]
) -> list[Ratio]:
    """turnstop over the other runner, asked to ended; none where fewer than two pairs count."""
    if not theirs:
        return []
    mine, yours = _stopped(ours), _stopped(sample for sample in theirs if not sample.lost)
    pairs = [(mine[pair], yours[pair]) for pair in sorted(mine.keys() & yours.keys())]
    if len(pairs) < 2:
        return []
    low, high = _interval(pairs)
    return [
        Ratio(
            backend=backend,
            moment=moment,
            runner=theirs[0].runner,
            figure="asked_to_ended_ms",
            pairs=len(pairs),
            ratio=round(_ratio(pairs), 4),
            low=round(low, 4),
            high=round(high, 4),
        )
    ]


def _stopped(samples: Iterable[Sample]) -> dict[int, float]:
    """asked→ended by pair, of those that ended since they were stopped."""
    stopped = [one for one in samples if one.outcome.ending == Ending.STOPPED.name]
    return {one.pair: ms for one in stopped if (ms := _ended(one)) is not None}


def _interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The percentile interval of the ratio, resampling pairs; the same for the same pairs."""
    draw = random.Random(len(pairs))
    found = sorted(_ratio(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    mine = statistics.median(pair[0] for pair in pairs)
    return mine / statistics.median(pair[1] for pair in pairs)
