"""Some hundred seeds, every time; `run.py` plays ten thousand.

Replay one with `TURNSTOP_SEED=N pytest tests/schedules`, or with
`python tests/schedules/run.py --seed N -v`.
"""

from __future__ import annotations

import os

import pytest

from turnstop import Ending

from .play import play

SEEDS = range(300)


def test_schedules_keep_every_promise() -> None:
    given = os.environ.get("TURNSTOP_SEED")
    for seed in SEEDS if given is None else [int(given)]:
        played = play(seed)
        if played.faults:
            faults = "\n".join(played.faults)
            pytest.fail(f"seed {seed}:\n{faults}\n{played.trace()}\nreplay: TURNSTOP_SEED={seed}")


def test_a_seed_decides_everything() -> None:
    for seed in range(10):
        first, again = play(seed), play(seed)
        # The reprs of scopes and tasks in some lines have addresses.
        assert [line[:2] for line in first.lines] == [line[:2] for line in again.lines]
        assert first.counts == again.counts


def test_the_schedules_meet_what_they_are_about() -> None:
    counts = sum((play(seed).counts for seed in range(60)), start=play(60).counts)
    kinds = ("None", "stop", "stop_all", "left", "cancelled", "closing", "retire", "backlog")
    calls = ("start", "follow", "cancel", "kill", "leftovers", "sweep")
    wanted = [
        *(ending.name for ending in Ending),
        *(f"{name}()" for name in calls),
        *(f"by {kind}" for kind in kinds),
    ]
    assert [name for name in wanted if not counts[name]] == []
