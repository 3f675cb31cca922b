"""The real codex keeps every promise that can be tried on it."""

from __future__ import annotations

import pytest

from turnstop.testing.probes.real_codex import RealCodexProbe

from . import real_program
from .promises import every_promise_is_kept, one_that_tells_nobody_is_red, tell_nobody

real_program("codex")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    every_promise_is_kept(RealCodexProbe)


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstop.adapters.codex._turn.interrupt", tell_nobody)
    one_that_tells_nobody_is_red(RealCodexProbe, monkeypatch)
