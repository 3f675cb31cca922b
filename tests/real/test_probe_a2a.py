"""The A2A adapter keeps its promises over the real server, obligation by obligation."""

from __future__ import annotations

import importlib

import pytest

from turnstop.testing import OBLIGATIONS, Outcome, check_obligation

from . import REQUIRED

try:
    for needed in ("uvicorn", "starlette", "sse_starlette"):
        importlib.import_module(needed)
    from turnstop.testing.probes.real_a2a import RealA2AProbe
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(f"{absent}: python -m pip install 'turnstop[bench]'", allow_module_level=True)

UNABLE = {"ask", "leave", "refuse_starts", "refuse_cancels", "say_end_again", "babble"}


def test_what_is_excused() -> None:
    assert {*RealA2AProbe.unable} == UNABLE


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_keeps_its_promise(name: str) -> None:
    row = check_obligation(OBLIGATIONS[name], RealA2AProbe)
    expected = Outcome.EXCUSED if UNABLE & {*row.obligation.needs} else Outcome.GREEN
    assert row.outcome is expected, row.text
