"""The codex adapter keeps every promise, over an app server that has every lever."""

from __future__ import annotations

import pytest

from turnstop.testing import LEVERS, Outcome, probe_backend
from turnstop.testing._probe import has_lever
from turnstop.testing.probes.codex import CodexProbe
from turnstop.testing.schedules import Schedule, Step, replay


def test_every_promise_is_kept_and_one_is_excused() -> None:
    report = probe_backend(CodexProbe)
    others = {row.obligation.name: row.outcome for row in report.rows}
    assert others.pop("lost_turn_is_still_told") is Outcome.EXCUSED
    assert {*others.values()} == {Outcome.GREEN}, str(report)


def test_it_has_every_lever() -> None:
    assert [name for name in LEVERS if not has_lever(CodexProbe(), name)] == []


ONCE_BROKEN = {
    "a late turn was undone long after its end": Schedule(
        seed=35,
        steps=(
            Step(0.0, "hold_starts"),
            Step(0.0, "enter", "t02", room="attic", how="read"),
            Step(0.0, "stop_room", room="attic"),
            Step(0.7, "fail", "t02"),
            Step(3.0, "release_starts"),
            Step(1.0, "enter", "t05", room="kitchen", how="read"),
        ),
    ),
    "a process that had ended began a turn": Schedule(
        seed=696,
        steps=(
            Step(0.0, "enter", "t01", room="attic", how="read"),
            Step(0.0, "enter", "t03", room="kitchen", how="fail"),
            Step(0.7, "enter", "t04", room="kitchen", how="shield", lasts=0.368),
            Step(0.0, "babble"),
        ),
        inside=False,
    ),
    "a turn that had ended began a command": Schedule(
        seed=7757,
        steps=(
            Step(0.0, "enter", "t01", room="kitchen", how="read"),
            Step(0.5, "cancel", "t01"),
            Step(0.0, "end_late", lasts=0.5),
            Step(0.5, "leave", "t01"),
        ),
    ),
}


@pytest.mark.parametrize("what", ONCE_BROKEN)
def test_what_once_broke_a_promise_does_not(what: str) -> None:
    assert replay(CodexProbe, ONCE_BROKEN[what]).faults == ()
