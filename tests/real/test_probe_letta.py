"""The real Letta server keeps every promise that can be tried on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from turnstop.testing import OBLIGATIONS, Outcome, check_obligation, probe_backend

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

TRIED = {name for name, one in OBLIGATIONS.items() if not {*one.needs} & {*RealLettaProbe.unable}}
# Those that rooms with an agent each may keep otherwise than conversations of one.
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


def test_how_much_can_be_tried() -> None:
    assert len(TRIED) >= 27


@pytest.mark.parametrize("name", sorted(TRIED))
def test_keeps_its_promise(name: str) -> None:
    row = check_obligation(OBLIGATIONS[name], RealLettaProbe)
    assert row.outcome is Outcome.GREEN, row.text


@pytest.mark.parametrize("name", IN_AGENTS_OWN_HISTORIES)
def test_keeps_its_promise_in_an_agents_own_history(name: str) -> None:
    row = check_obligation(OBLIGATIONS[name], RealLettaAgentProbe)
    assert row.outcome is Outcome.GREEN, row.text


def test_an_adapter_that_tells_nobody_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell_nobody(*args: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(LettaTurn, "cancel", tell_nobody)
    (row,) = probe_backend(RealLettaProbe, only=["stop_is_told_once"]).rows
    assert row.outcome is Outcome.RED
    assert "told 0 times" in row.text
