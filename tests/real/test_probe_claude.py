"""The real Claude Code keeps every promise that can be tried on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from turnstop import StopBudget
from turnstop.testing import Outcome, probe_backend
from turnstop.testing.probes.real_claude import RealClaudeProbe

from . import real_program

PROGRAM = real_program("claude")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    report = probe_backend(RealClaudeProbe)
    assert report.red == [], str(report)
    assert [row.obligation.name for row in report.of(Outcome.NOT_RUN)] == []
    assert len(list(report.of(Outcome.GREEN))) >= 20


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell_nobody(*args: object) -> None:
        sent = args[-1]
        assert isinstance(sent, Callable)
        sent()
        await trio.lowlevel.checkpoint()

    async def no_kill(turn: object) -> None:
        await trio.sleep_forever()

    turns = "turnstop.adapters.claude._turn"
    monkeypatch.setattr(f"{turns}.interrupt", tell_nobody)
    monkeypatch.setattr(f"{turns}.ClaudeTurn.kill", no_kill)
    monkeypatch.setattr(RealClaudeProbe, "budget", StopBudget(cancel_within=0.5, kill_within=0.5))
    (row,) = probe_backend(RealClaudeProbe, only=["stop_ends_the_work"]).rows
    assert row.outcome is Outcome.RED
    assert "the work did not end" in row.text
