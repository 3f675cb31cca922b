"""The codex adapter keeps every promise, over an app server that has every lever."""

from __future__ import annotations

from turnstop.testing import LEVERS, Outcome, probe_backend
from turnstop.testing._probe import has_lever
from turnstop.testing.probes.codex import CodexProbe
from turnstop.testing.schedules import check_schedules


def test_every_promise_is_kept_and_one_is_excused() -> None:
    report = probe_backend(CodexProbe)
    others = {row.obligation.name: row.outcome for row in report.rows}
    assert others.pop("lost_turn_is_still_told") is Outcome.EXCUSED
    assert {*others.values()} == {Outcome.GREEN}, str(report)


def test_it_has_every_lever() -> None:
    assert [name for name in LEVERS if not has_lever(CodexProbe(), name)] == []


def test_seeds_that_once_found_a_fault_find_none() -> None:
    """A late turn was undone long after its end; an ended process began one; an ended turn, a command."""
    check_schedules(CodexProbe, seeds=[35, 696, 7757])
