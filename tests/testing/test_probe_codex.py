"""The codex adapter keeps every promise, over an app server that has every lever."""

from __future__ import annotations

from turnstop.testing import LEVERS, Outcome, probe_backend
from turnstop.testing._probe import has_lever
from turnstop.testing.probes.codex import CodexProbe


def test_every_promise_is_kept_and_none_is_excused() -> None:
    report = probe_backend(CodexProbe)
    assert {row.outcome for row in report.rows} == {Outcome.GREEN}, str(report)
    assert CodexProbe.unable == {}


def test_it_has_every_lever() -> None:
    assert [name for name in LEVERS if not has_lever(CodexProbe(), name)] == []
