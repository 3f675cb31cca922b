"""The real Letta server keeps every promise that can be tried on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from turnstop.testing import Outcome, probe_backend

from . import REQUIRED, real_letta

try:
    from turnstop.adapters.letta._turn import LettaTurn
    from turnstop.lab.letta import stop_letta
    from turnstop.testing.probes.real_letta import RealLettaAgentProbe, RealLettaProbe
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_letta()

IN_AGENTS_OWN_HISTORIES = (
    "stop_is_told_once",
    "acknowledgement_is_no_end",
    "room_goes_on_after_a_stop",
    "neighbours_are_untouched",
    "stopped_approvals_are_answered",
)


@pytest.fixture(scope="session", autouse=True)
def server_of_the_session() -> Iterator[None]:
    yield
    stop_letta()


def test_every_promise_that_can_be_tried_is_kept() -> None:
    report = probe_backend(RealLettaProbe)
    assert report.red == [], str(report)
    assert [row.obligation.name for row in report.of(Outcome.NOT_RUN)] == []
    assert len(list(report.of(Outcome.GREEN))) >= 27


def test_those_that_a_history_shared_by_no_room_may_break_are_kept_there() -> None:
    report = probe_backend(RealLettaAgentProbe, only=IN_AGENTS_OWN_HISTORIES)
    assert report.red == [], str(report)
    assert len(list(report.of(Outcome.GREEN))) == len(IN_AGENTS_OWN_HISTORIES)


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell_nobody(*args: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(LettaTurn, "cancel", tell_nobody)
    (row,) = probe_backend(RealLettaProbe, only=["stop_is_told_once"]).rows
    assert row.outcome is Outcome.RED
    assert "told 0 times" in row.text
