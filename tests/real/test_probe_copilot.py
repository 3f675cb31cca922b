"""The real Copilot keeps every promise that can be tried on it."""

from __future__ import annotations

import pytest

from . import REQUIRED, real_program
from .promises import every_promise_is_kept, one_that_tells_nobody_is_red, tell_nobody

try:
    from turnstop.adapters.copilot._turn import CopilotTurn
    from turnstop.testing.probes.real_copilot import RealCopilotProbe
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_program("copilot")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    every_promise_is_kept(RealCopilotProbe)


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CopilotTurn, "cancel", tell_nobody)
    one_that_tells_nobody_is_red(RealCopilotProbe, monkeypatch)
