"""The real codex keeps every promise that can be tried on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from turnstop import StopBudget
from turnstop.testing import Outcome, probe_backend
from turnstop.testing.probes.real_codex import RealCodexProbe

from . import real_program

real_program("codex")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    report = probe_backend(RealCodexProbe)
    assert report.red == [], str(report)
    assert [row.obligation.name for row in report.of(Outcome.NOT_RUN)] == []
    assert len(list(report.of(Outcome.GREEN))) >= 20


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell_nobody(*args: object) -> None:
        sent = args[-1]
        assert isinstance(sent, Callable)
        sent()
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr("turnstop.adapters.codex._turn.interrupt", tell_nobody)
    monkeypatch.setattr(RealCodexProbe, "budget", StopBudget(cancel_within=0.5, kill_within=0.5))
    (row,) = probe_backend(RealCodexProbe, only=["stop_ends_the_work"]).rows
    assert row.outcome is Outcome.RED
    assert "the work did not end" in row.text
