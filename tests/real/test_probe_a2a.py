"""The A2A adapter keeps its promises over the real server, obligation by obligation."""

from __future__ import annotations

import importlib
import os

import pytest

from turnstop.testing import OBLIGATIONS, Outcome, check_obligation

try:
    for needed in ("uvicorn", "starlette", "sse_starlette"):
        importlib.import_module(needed)
    from turnstop.testing.probes.real_a2a import RealA2AProbe
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(f"{absent}: python -m pip install 'turnstop[bench]'", allow_module_level=True)

EXCUSED = {
    "refused_start_is_no_turn",
    "refused_cancel_is_reported",
    "repeated_end_ends_nothing_else",
    "stopped_approvals_are_answered",
    "garbage_is_bounded",
    "leftovers_are_swept",
}


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_keeps_its_promise(name: str) -> None:
    row = check_obligation(OBLIGATIONS[name], RealA2AProbe)
    expected = Outcome.EXCUSED if name in EXCUSED else Outcome.GREEN
    assert row.outcome is expected, row.text
