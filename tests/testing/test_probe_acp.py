"""The ACP adapter keeps every promise, over agents in memory that are wrong as real ones are."""

from __future__ import annotations

import pytest

from turnstop.testing import LEVERS, Outcome, Probe, probe_backend
from turnstop.testing._probe import has_lever
from turnstop.testing.probes import acp
from turnstop.testing.schedules import Schedule, Step, replay

PROBES: dict[str, type[Probe]] = {
    "generic": acp.AcpProbe,
    "shared": acp.AcpSharedProbe,
    "copilot": acp.AcpCopilotProbe,
    "claude": acp.AcpClaudeProbe,
    "codex": acp.AcpCodexProbe,
    "qwen": acp.AcpQwenProbe,
}
EXCUSED = {
    "early_stop_reaches_the_work",
    "late_reveal_is_undone",
    "refused_cancel_is_reported",
    "budget_is_one",
    "starts_do_not_wait_for_each_other",
    "lost_start_is_no_refusal",
    "lost_turn_is_still_told",
    "leftovers_are_swept",
}

# What the next process does with a turn that was left, a far end in memory shows in part only.
LEFT = {"attach", "announce"}


@pytest.mark.parametrize("name", PROBES)
def test_every_promise_is_kept_but_what_the_protocol_does_not_have(name: str) -> None:
    report = probe_backend(PROBES[name])
    outcomes = {
        row.obligation.name: row.outcome
        for row in report.rows
        if not LEFT.intersection(row.obligation.needs)
    }
    assert {one for one, what in outcomes.items() if what is Outcome.EXCUSED} == EXCUSED
    assert {*outcomes.values()} == {Outcome.GREEN, Outcome.EXCUSED}, str(report)


def test_it_lacks_three_levers() -> None:
    lacking = [name for name in LEVERS if not has_lever(acp.AcpProbe(), name)]
    assert lacking == ["hold_starts", "refuse_cancels", "leave"]


ONCE_BROKEN = {
    "a cancel was written before its prompt": Schedule(
        seed=224,
        steps=(
            Step(0.0, "enter", "t02", room="kitchen", how="read"),
            Step(1.0, "cancel", "t02"),
            Step(0.0, "say", "t02"),
            Step(0.9, "enter", "t05", room="kitchen", how="read"),
            Step(0.0, "end_late", lasts=0.5),
            Step(0.0, "close", how="raise"),
        ),
        inside=False,
    ),
}


@pytest.mark.parametrize("what", ONCE_BROKEN)
def test_what_once_broke_a_promise_does_not(what: str) -> None:
    assert replay(acp.AcpProbe, ONCE_BROKEN[what]).faults == ()
