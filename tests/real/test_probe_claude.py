"""The real Claude Code keeps every promise that can be tried on it."""

from __future__ import annotations

import pytest
import trio

from turnstop.testing.probes.real_claude import RealClaudeProbe

from . import real_program
from .promises import every_promise_is_kept, one_that_tells_nobody_is_red, tell_nobody

PROGRAM = real_program("claude")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    every_promise_is_kept(RealClaudeProbe)


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_kill(turn: object) -> None:
        await trio.sleep_forever()

    turns = "turnstop.adapters.claude._turn"
    monkeypatch.setattr(f"{turns}.interrupt", tell_nobody)
    monkeypatch.setattr(f"{turns}.ClaudeTurn.kill", no_kill)
    one_that_tells_nobody_is_red(RealClaudeProbe, monkeypatch)
