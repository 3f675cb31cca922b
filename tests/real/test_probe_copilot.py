"""The real Copilot keeps every promise that can be tried on it."""

from __future__ import annotations

import pytest
import trio

from turnstop import StopBudget
from turnstop.testing import Outcome, probe_backend

from . import REQUIRED, real_program

try:
    from turnstop.adapters.copilot._turn import CopilotTurn
    from turnstop.testing.probes.real_copilot import RealCopilotProbe
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_program("copilot")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    report = probe_backend(RealCopilotProbe)
    assert report.red == [], str(report)
    assert [row.obligation.name for row in report.of(Outcome.NOT_RUN)] == []
    assert len(list(report.of(Outcome.GREEN))) >= 20


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell_nobody(*args: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(CopilotTurn, "cancel", tell_nobody)
    monkeypatch.setattr(RealCopilotProbe, "budget", StopBudget(0.5, 0.5))
    (row,) = probe_backend(RealCopilotProbe, only=["stop_ends_the_work"]).rows
    assert row.outcome is Outcome.RED
    assert "the work did not end" in row.text
