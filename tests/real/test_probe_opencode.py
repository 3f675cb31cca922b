"""The real opencode keeps every promise that can be tried on it."""

from __future__ import annotations

import pytest

from . import REQUIRED, real_program
from .promises import every_promise_is_kept, one_that_tells_nobody_is_red, tell_nobody

try:
    from turnstop.adapters.opencode._turn import OpenCodeTurn
    from turnstop.testing.probes.real_opencode import RealOpenCodeProbe
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_program("opencode")


def test_every_promise_that_can_be_tried_is_kept() -> None:
    every_promise_is_kept(RealOpenCodeProbe)


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenCodeTurn, "cancel", tell_nobody)
    one_that_tells_nobody_is_red(RealOpenCodeProbe, monkeypatch)
