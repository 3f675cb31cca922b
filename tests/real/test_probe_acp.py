"""The real agents that speak ACP keep every promise that can be tried on them."""

from __future__ import annotations

import pytest

from turnstop import StopBudget
from turnstop.testing import Outcome, probe_backend
from turnstop.testing.probes.real_acp import RealClaudeAgentProbe, RealCodexAgentProbe

from . import real_program
from .promises import every_promise_is_kept, tell_nobody

# What its agent makes hard: it answers a cancel before the turn is over, and has more to say.
OF_CLAUDE = (
    "stop_ends_the_work",
    "stop_is_told_once",
    "answers_reach_the_work",
    "nothing_is_heard_after_a_stop",
    "late_words_stay_with_their_turn",
    "room_goes_on_after_a_stop",
)


def test_every_promise_that_can_be_tried_is_kept_by_codexs() -> None:
    real_program(RealCodexAgentProbe.program)
    every_promise_is_kept(RealCodexAgentProbe)


def test_the_promises_that_are_hard_to_keep_are_kept_by_claudes() -> None:
    real_program(RealClaudeAgentProbe.program)
    report = probe_backend(RealClaudeAgentProbe, only=OF_CLAUDE)
    assert [row.outcome for row in report.rows] == [Outcome.GREEN] * len(OF_CLAUDE), str(report)


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    real_program(RealCodexAgentProbe.program)
    monkeypatch.setattr("turnstop.adapters.acp._turn.AcpTurn.cancel", tell_nobody)
    monkeypatch.setattr(
        RealCodexAgentProbe, "budget", StopBudget(cancel_within=0.5, kill_within=5.0)
    )
    (row,) = probe_backend(RealCodexAgentProbe, only=["stop_is_told_once"]).rows
    assert row.outcome is Outcome.RED
