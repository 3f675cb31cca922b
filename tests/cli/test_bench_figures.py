from __future__ import annotations

import attrs
import pytest

from turnstop.cli.bench.figures import ratios, row
from turnstop.cli.bench.model import Outcome, Work
from turnstop.cli.bench.verdicts import NOTICE, WATCH, Sample, alive, lies


def sample(
    ms: float | None, *, pair: int = 0, runner: str = "turnstop", lost: tuple[str, ...] = ()
) -> Sample:
    ended = None if ms is None else 100 + ms / 1000
    outcome = Outcome(gone=True, asked_at=100.0, ended_at=ended, settled_at=101.0)
    return Sample(runner, pair, outcome, admitted_at=102.0, alive=lost)  # type: ignore[arg-type]


def test_a_row_has_median_p95_and_max_of_those_that_have_the_figure() -> None:
    found = row("b", "running", "turnstop", [*(sample(ms) for ms in range(1, 21)), sample(None)])
    spread = found.asked_to_ended_ms
    assert (spread.median, spread.p95, spread.max) == pytest.approx((10.5, 19, 20))
    assert found.n == 21
    assert found.asked_to_sent_ms.median is None


def test_the_ratio_pairs_and_leaves_out_what_the_other_lost() -> None:
    ours = [sample(10, pair=n) for n in range(4)]
    theirs = [sample(20, pair=n, runner="raw") for n in range(3)]
    theirs.append(sample(1, pair=3, runner="raw", lost=("x",)))
    natural = sample(1, pair=9)
    natural.outcome = attrs.evolve(natural.outcome, ending="FINISHED")
    ours.append(natural)
    theirs.append(sample(20, pair=9, runner="raw"))
    (found,) = ratios("b", "running", ours, theirs)
    assert (found.pairs, found.ratio, found.low, found.high) == (3, 0.5, 0.5, 0.5)


def test_the_interval_holds_the_ratio() -> None:
    ours = [sample(10 + n % 7, pair=n) for n in range(50)]
    theirs = [sample(10 + n % 5, pair=n, runner="raw") for n in range(50)]
    (found,) = ratios("b", "running", ours, theirs)
    assert found.low < found.ratio < found.high < 1.5


def test_no_ratio_of_nothing() -> None:
    assert ratios("b", "tool", [sample(1)], [sample(1, runner="raw", lost=("x",))]) == []


def outcome(
    *, gone: bool = True, survivors: tuple[str, ...] = (), ending: str = "STOPPED"
) -> Outcome:
    return Outcome(ending=ending, gone=gone, settled_at=10.0, survivors=survivors)


@pytest.mark.parametrize(
    ("work", "found", "is_lost"),
    [
        (Work("a", 1, 9.9), outcome(), False),
        (Work("a", 1, 10 + NOTICE / 2), outcome(), False),
        (Work("a", 1, 10 + 2 * NOTICE), outcome(), True),
        (Work("a", 1), outcome(), True),
        (Work("a", 10 + NOTICE / 4, 10 + NOTICE / 2), outcome(), True),
        (Work("a", 1), outcome(gone=False), True),
        (Work("a", 1, 10 + WATCH - 0.1), outcome(gone=False), False),
        (Work("a", 1, None, 42), outcome(survivors=("pid 42, sleep 60",)), False),
        (Work("a", 1, None, 42), outcome(survivors=("pid 421, sleep 60",)), True),
        (Work("a", 1, None, 42), outcome(survivors=("sleep 60 (pid 7, 42)",)), False),
        (Work("a", 1, None, 42), outcome(survivors=("sleep 42 (pid 7, 60)",)), True),
    ],
)
def test_what_is_lost(work: Work, found: Outcome, is_lost: bool) -> None:
    assert bool(alive(found, [work])) is is_lost


@pytest.mark.parametrize(
    ("work", "found", "is_lie"),
    [
        (Work("a", 1, 9.9, cut=True), outcome(), False),
        (Work("a", 1), outcome(), True),
        (Work("a", 1), outcome(gone=False), False),
        (Work("a", 1, 9.9), outcome(ending="FINISHED"), False),
        (Work("a", 1, 9.9, cut=True), outcome(ending="FINISHED"), True),
        (Work("a", 1, 9.9), outcome(ending="UNSTARTED"), True),
        (None, outcome(ending="UNSTARTED"), False),
        (None, outcome(), False),
    ],
)
def test_what_is_a_lie(work: Work | None, found: Outcome, is_lie: bool) -> None:
    assert bool(lies("finishing", found, [] if work is None else [work])) is is_lie


def test_a_turn_that_was_never_let_finish_has_not_finished() -> None:
    assert lies("running", outcome(ending="FINISHED"), [Work("a", 1, 9.9)])


def test_a_row_counts_what_is_wrong_by_its_kind() -> None:
    samples = [sample(1) for _ in range(4)]
    samples[0].alive, samples[0].lies = ("a request",), ("a request",)
    samples[1].unanswered = "the next turn ended as FAILED"
    samples[2].histories = ("a call without its result",)
    samples[3].outcome = outcome(ending="KILLED")
    found = row("b", "running", "turnstop", samples)
    counts = (found.lost, found.lies, found.unanswered, found.histories, found.killed)
    assert counts == (3, 1, 1, 1, 1)
    assert samples[0].lost == ("a request",)
