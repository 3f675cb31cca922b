"""The Claude adapter keeps every promise, over processes that have the levers of a probe."""

from __future__ import annotations

from turnstop.testing import LEVERS, Outcome, probe_backend
from turnstop.testing._probe import has_lever
from turnstop.testing.probes.claude import ClaudeProbe

EXCUSED = {
    "early_stop_reaches_the_work",
    "late_reveal_is_undone",
    "refused_start_is_no_turn",
    "budget_is_one",
    "starts_do_not_wait_for_each_other",
    "lost_start_is_no_refusal",
    "lost_turn_is_still_told",
    "early_left_turn_is_no_lie",
}
# What shows the end of an old Claude's turn names no message, and could be another's.
UNNAMED = {"late_words_stay_with_their_turn", "repeated_end_ends_nothing_else"}


class OldClaudeProbe(ClaudeProbe):
    """A Claude that knows no message's lifecycle."""

    name = "claude, an old one"

    def __init__(self) -> None:
        super().__init__()
        self.claude.old = True


def test_every_promise_is_kept_or_excused() -> None:
    report = probe_backend(ClaudeProbe)
    assert report.red == [], str(report)
    excused = {row.obligation.name for row in report.rows if row.outcome is Outcome.EXCUSED}
    assert excused == EXCUSED


def test_an_old_one_keeps_all_but_what_needs_a_name() -> None:
    report = probe_backend(OldClaudeProbe)
    assert {row.obligation.name for row in report.red} == UNNAMED, str(report)


def test_it_has_every_lever_but_those_of_starts() -> None:
    lacks = [name for name in LEVERS if not has_lever(ClaudeProbe(), name)]
    assert lacks == ["hold_starts", "refuse_starts"]
