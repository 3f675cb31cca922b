"""Parlant's adapter keeps its promises over the real engine, obligation by obligation."""

from __future__ import annotations

import pytest

from turnstop.testing import OBLIGATIONS, Outcome, check_obligation

from .parlant_env import need_parlant

need_parlant()

from turnstop.testing.probes.real_parlant import RealParlantProbe  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

UNABLE = {
    "ask",
    "babble",
    "cut",
    "die",
    "hold_acknowledgements",
    "hold_starts",
    "open_again",
    "refuse_cancels",
    "refuse_starts",
    "restart",
    "say_end_again",
}


def test_what_is_excused() -> None:
    assert {*RealParlantProbe.unable} == UNABLE


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_keeps_its_promise(name: str) -> None:
    row = check_obligation(OBLIGATIONS[name], RealParlantProbe)
    expected = Outcome.EXCUSED if UNABLE & {*row.obligation.needs} else Outcome.GREEN
    assert row.outcome is expected, row.text
