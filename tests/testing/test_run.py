"""Checking: what a verdict says, what an excuse covers, and where it may be called."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from turnstop import StopBudget
from turnstop.abc import Backend, Request
from turnstop.testing import (
    OBLIGATIONS,
    ObligationsBroken,
    Outcome,
    Probe,
    Stage,
    Work,
    bare_probe,
    check_backend,
    check_obligation,
    probe_backend,
)
from turnstop.testing._obligation import Obligation
from turnstop.testing.probes.local import LocalProbe


class Broke(LocalProbe):
    """A probe that cannot even be opened, and excuses what it is to do."""

    name = "broke"
    unable = {**LocalProbe.unable, "end_seen": "it is said to be so"}  # noqa: RUF012

    def open(self) -> AbstractAsyncContextManager[Backend[object]]:
        raise ZeroDivisionError("no far end")


def test_an_excuse_covers_a_broken_promise_and_no_crash() -> None:
    row = check_obligation(OBLIGATIONS["stop_ends_the_work"], Broke)
    assert row.outcome is Outcome.RED
    assert "ZeroDivisionError: no far end" in row.text


def test_nothing_that_was_played_is_not_green() -> None:
    with pytest.raises(ObligationsBroken, match="not run"):
        check_backend(partial(bare_probe, object), only=["leftovers_are_swept"])
    assert probe_backend(LocalProbe, only=["garbage_is_bounded"]).verdict == "green"


async def test_it_runs_trio_itself() -> None:
    with pytest.raises(RuntimeError, match="outside of it"):
        check_backend(LocalProbe)


class Stubborn:
    """Its cancel never comes back, whatever is done."""

    session = None

    async def start(self, request: Request[Any]) -> Stubborn:
        return self

    async def follow(self, emit: Any) -> Any:
        await trio.sleep_forever()

    async def cancel(self, sent: Any) -> None:
        sent()
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


def test_an_adapter_that_refuses_to_die_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstop.testing._run.WITHIN", 1.0)
    quick = partial(bare_probe, Stubborn, budget=StopBudget(0.1, 0.1))
    row = check_obligation(OBLIGATIONS["stop_ends_the_work"], quick)
    assert row.outcome is Outcome.RED
    assert "the work did not end" in row.text


def test_a_real_far_end_may_take_its_time_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Silent):
        clock = "real"

        @asynccontextmanager
        async def _open(self) -> AsyncGenerator[Backend[Any], None]:
            await trio.sleep(0.5)
            raise RuntimeError("opened")
            yield

    monkeypatch.setattr("turnstop.testing._run.WITHIN", 0.1)
    basic = OBLIGATIONS["stop_ends_the_work"]
    assert "Stalled" in check_obligation(basic, Slow).text
    monkeypatch.setattr(Slow, "opening", 30.0)
    assert "opened" in check_obligation(basic, Slow).text


class Silent(Probe):
    name = "silent"

    def open(self) -> AbstractAsyncContextManager[Backend[Any]]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[Any], None]:
        yield Stubborn()

    @property
    def works(self) -> list[Work]:
        return []


async def _fine(stage: Stage) -> None:
    stage.unseen = "it was killed"


def test_what_could_not_show_is_green_and_says_so() -> None:
    row = check_obligation(Obligation("fine", "fine", (), _fine), Silent)
    assert (row.outcome, row.text) == (Outcome.GREEN, "it was killed")


async def _race(wanted: list[str], stage: Stage) -> None:
    """Kept in one order of an instant, and broken in the other."""
    found: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in ("one", "two"):
            nursery.start_soon(_note, found, name)
    stage.expect(found == wanted, f"they came as {found}")


async def _note(found: list[str], name: str) -> None:
    found.append(name)


# Either way round: the first order that is played may be the one that keeps it.
@pytest.mark.parametrize("wanted", [["one", "two"], ["two", "one"]])
def test_every_order_of_an_instant_counts_and_red_is_red_again(wanted: list[str]) -> None:
    race = Obligation("race", "race", (), partial(_race, wanted))
    assert {check_obligation(race, Silent).outcome for _ in range(5)} == {Outcome.RED}


def test_who_hangs_twice_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(LocalProbe):
        def open(self) -> AbstractAsyncContextManager[Backend[object]]:
            time.sleep(10.0)
            raise AssertionError("it was interrupted")

        @property
        def works(self) -> list[Work]:
            return []

    monkeypatch.setattr("turnstop.testing._run.WITHIN", 0.1)
    only = [name for name in OBLIGATIONS if name != "stop_ends_the_work"][:4]
    report = probe_backend(Hanging, only=only)
    assert [row.outcome for row in report.rows] == [Outcome.RED] * 2 + [Outcome.NOT_RUN] * 2
    assert "2 promises were not over after 0.1 s each" in report.rows[2].text


def _claims(**changes: Any) -> Callable[[], Probe]:
    return lambda: type("Mine", (LocalProbe,), changes)()


NO_PROCESS = {
    "unable": {"die": "it has no process", "hold_cancels": "it has no process"},
    "hold_cancels": Probe.hold_cancels,
}


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (Stubborn, "is no probe: see Probe"),
        (_claims(clock="sundial"), 'not "virtual" or "real"'),
        (_claims(unable=["session"]), "no mapping"),
        (_claims(unable={"session": " "}), "no reason"),
        (_claims(unable={"sesion": "x"}), "neither a lever nor an ability"),
        (_claims(unable={"finish": "x"}), "has one"),
        (_claims(unable={}, hold_starts=lambda self: None), "release_starts has to send"),
    ],
)
def test_a_probe_that_makes_no_sense_is_told(probe: Callable[[], Any], why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        check_backend(probe)
    with pytest.raises(ValueError, match="no obligation x"):
        check_backend(LocalProbe, only="x")


def test_one_reason_for_two_levers_is_told_once() -> None:
    row = check_obligation(OBLIGATIONS["death_ends_a_stop"], _claims(**NO_PROCESS))
    assert (row.outcome, row.text) == (Outcome.EXCUSED, "it has no process")
