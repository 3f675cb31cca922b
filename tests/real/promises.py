"""What a probe of a real program is to show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from turnstop import StopBudget
from turnstop.testing import Outcome, Probe, probe_backend

__all__ = ["every_promise_is_kept", "one_that_tells_nobody_is_red", "tell_nobody"]


def every_promise_is_kept(probe: type[Probe]) -> None:
    """Every promise that can be tried on it, and these are many."""
    report = probe_backend(probe)
    assert report.red == [], str(report)
    assert [row.obligation.name for row in report.of(Outcome.NOT_RUN)] == []
    assert len(list(report.of(Outcome.GREEN))) >= 20


async def tell_nobody(*args: object) -> None:
    """In place of a cancel, or of what it calls: says that it was sent, where it is asked to."""
    if args and isinstance(sent := args[-1], Callable):
        sent()
    await trio.lowlevel.checkpoint()


def one_that_tells_nobody_is_red(probe: type[Probe], monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter is spoilt already; soon the probe is to say so."""
    monkeypatch.setattr(probe, "budget", StopBudget(cancel_within=0.5, kill_within=0.5))
    (row,) = probe_backend(probe, only=["stop_ends_the_work"]).rows
    assert row.outcome is Outcome.RED
    assert "the work did not end" in row.text
