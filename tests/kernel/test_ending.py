"""The Ending table, row by row and by each of its alternatives."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from turnstop import BackendError, BackendLost, BackendMisbehaved, BackendRefused, Ending, Proof
from turnstop._ending import End, How, Verdict, judge

COMPLETED, CANCELLED, FAILED, SILENT = (
    How.COMPLETED,
    How.CANCELLED,
    How.FAILED,
    How.SILENT,
)
SEEN = [Proof.EVENT, Proof.STREAM, Proof.PROCESS]
LOST, GONE = BackendLost("lost"), BackendLost("gone", gone=True)
REFUSED = BackendRefused("busy")
RUNNING = {"began": True, "revealed": True}
TOLD = {**RUNNING, "asked": True, "cancelled": True}
KILLED = {**TOLD, "killed": True}


def verdict(**facts: Any) -> Verdict:
    return judge(**facts)


@pytest.mark.parametrize("proof", list(Proof))
@pytest.mark.parametrize("facts", [RUNNING, {**RUNNING, "asked": True}, TOLD, KILLED])
@pytest.mark.parametrize("backlog", [False, True])
def test_completed_is_finished_whoever_asked_and_whatever_its_proof(
    proof: Proof, facts: dict[str, bool], backlog: bool
) -> None:
    found = verdict(end=End(COMPLETED, proof), **facts, backlog=backlog)
    assert found == Verdict(Ending.FINISHED, proof, True)


@pytest.mark.parametrize("proof", SEEN)
@pytest.mark.parametrize("asked", [False, True])
def test_silent_without_a_cancel_call_is_finished(proof: Proof, asked: bool) -> None:
    found = verdict(end=End(SILENT, proof), **RUNNING, asked=asked)
    assert found == Verdict(Ending.FINISHED, proof, True)


@pytest.mark.parametrize("proof", SEEN)
@pytest.mark.parametrize("facts", [RUNNING, {**RUNNING, "asked": True}, TOLD])
def test_cancelled_is_stopped_whoever_did_it(proof: Proof, facts: dict[str, bool]) -> None:
    assert verdict(end=End(CANCELLED, proof), **facts) == Verdict(Ending.STOPPED, proof, True)


@pytest.mark.parametrize("proof", SEEN)
@pytest.mark.parametrize("how", [SILENT, FAILED])
def test_silent_or_failed_after_cancel_was_called_is_stopped(how: How, proof: Proof) -> None:
    assert verdict(end=End(how, proof), **TOLD) == Verdict(Ending.STOPPED, proof, True)


@pytest.mark.parametrize("proof", SEEN)
@pytest.mark.parametrize("how", [CANCELLED, SILENT, FAILED])
@pytest.mark.parametrize("returned", [False, True])
def test_the_same_after_kill_was_called_is_killed(how: How, proof: Proof, returned: bool) -> None:
    found = verdict(end=End(how, proof), **KILLED, kill_returned=returned)
    assert found == Verdict(Ending.KILLED, proof, True)


@pytest.mark.parametrize("error", [LOST, BackendMisbehaved("x"), REFUSED, ValueError("x")])
def test_follow_raised_after_the_asking_and_kill_returned_is_killed(error: Exception) -> None:
    found = verdict(error=error, **KILLED, kill_returned=True)
    assert found == Verdict(Ending.KILLED, Proof.PROCESS, True)


def test_the_budget_over_without_an_end_is_unconfirmed() -> None:
    for facts in ({"began": True, "asked": True}, TOLD, KILLED, {**KILLED, "kill_returned": True}):
        assert verdict(**facts) == Verdict(Ending.UNCONFIRMED, None, False)


@pytest.mark.parametrize("how", [CANCELLED, SILENT, FAILED])
@pytest.mark.parametrize("facts", [RUNNING, {**RUNNING, "asked": True}, TOLD, KILLED])
def test_an_end_other_than_completed_that_is_only_claimed_is_unconfirmed(
    how: How, facts: dict[str, bool]
) -> None:
    found = verdict(end=End(how, Proof.CLAIMED), **facts)
    assert found == Verdict(Ending.UNCONFIRMED, Proof.CLAIMED, False)


@pytest.mark.parametrize(
    "error", [LOST, BackendMisbehaved("x"), BackendError("x"), ValueError("x")]
)
@pytest.mark.parametrize(
    "facts", [{"began": True, "asked": True}, {**RUNNING, "asked": True}, TOLD, KILLED]
)
def test_lost_after_a_stop_with_nothing_that_shows_it_gone_is_unconfirmed(
    error: Exception, facts: dict[str, bool]
) -> None:
    assert verdict(error=error, **facts) == Verdict(Ending.UNCONFIRMED, None, False)


def test_a_refusal_by_follow_is_no_refusal() -> None:
    assert verdict(error=REFUSED, **TOLD) == Verdict(Ending.UNCONFIRMED, None, False)
    assert verdict(error=REFUSED, **RUNNING) == Verdict(Ending.FAILED, None, False)


def test_nothing_began_is_unstarted() -> None:
    assert verdict(asked=True) == Verdict(Ending.UNSTARTED, None, True)
    refused = verdict(began=True, asked=True, error=REFUSED)
    assert refused == Verdict(Ending.UNSTARTED, None, True)


@pytest.mark.parametrize("began", [{"began": True}, RUNNING, {**RUNNING, "cancelled": True}])
def test_raised_before_anybody_asked_is_failed(began: dict[str, bool]) -> None:
    for error in (LOST, ValueError("x")):
        assert verdict(error=error, **began) == Verdict(Ending.FAILED, None, False)
    assert verdict(error=GONE, **began) == Verdict(Ending.FAILED, Proof.PROCESS, True)


def test_refused_before_anybody_asked_is_failed_and_gone() -> None:
    assert verdict(error=REFUSED, began=True) == Verdict(Ending.FAILED, None, True)


def test_raised_before_anybody_asked_and_killed_since_is_failed_and_gone() -> None:
    facts = {**RUNNING, "cancelled": True, "killed": True, "kill_returned": True}
    assert verdict(error=LOST, **facts) == Verdict(Ending.FAILED, Proof.PROCESS, True)


@pytest.mark.parametrize("proof", SEEN)
@pytest.mark.parametrize("asked", [False, True])
def test_said_failed_with_no_cancel_call_is_failed(proof: Proof, asked: bool) -> None:
    found = verdict(end=End(FAILED, proof), **RUNNING, asked=asked)
    assert found == Verdict(Ending.FAILED, proof, True)


@pytest.mark.parametrize("how", [CANCELLED, SILENT, FAILED])
@pytest.mark.parametrize("proof", list(Proof))
@pytest.mark.parametrize("facts", [TOLD, KILLED])
def test_the_backlog_passed_is_failed(how: How, proof: Proof, facts: dict[str, bool]) -> None:
    found = verdict(end=End(how, proof), **facts, backlog=True)
    assert found == Verdict(Ending.FAILED, proof, proof is not Proof.CLAIMED)


def test_the_backlog_passed_and_no_end_was_seen() -> None:
    assert verdict(**KILLED, backlog=True) == Verdict(Ending.FAILED, None, False)
    assert verdict(error=LOST, **KILLED, backlog=True) == Verdict(Ending.FAILED, None, False)
    gone = verdict(error=GONE, **TOLD, backlog=True)
    assert gone == Verdict(Ending.FAILED, Proof.PROCESS, True)


@pytest.mark.parametrize(
    ("facts", "ending"),
    [({"began": True, "asked": True}, "STOPPED"), (TOLD, "STOPPED"), (KILLED, "KILLED")],
)
def test_a_local_process_that_ended_after_a_stop(facts: dict[str, bool], ending: str) -> None:
    assert verdict(error=GONE, **facts) == Verdict(Ending[ending], Proof.PROCESS, True)


def test_no_verdict_says_gone_without_a_ground() -> None:
    ends: list[End | None] = [None]
    ends += [End(how, proof) for how, proof in itertools.product(How, Proof)]
    errors = [None, LOST, GONE, REFUSED, ValueError("x")]
    flags = itertools.product([False, True], repeat=6)
    for end, error, (asked, revealed, cancelled, killed, returned, backlog) in itertools.product(
        ends, errors, flags
    ):
        if end is not None and (error is not None or not revealed):
            continue
        if killed > cancelled or cancelled > revealed or returned > killed:
            continue
        found = verdict(
            end=end,
            error=error,
            began=True,
            asked=asked,
            revealed=revealed,
            cancelled=cancelled,
            killed=killed,
            kill_returned=returned,
            backlog=backlog,
        )
        ground = (
            (end is not None and (end.how is COMPLETED or end.proof is not Proof.CLAIMED))
            or error is GONE
            or (error is REFUSED and not revealed)
            or (error is not None and returned)
        )
        assert found.gone is ground
        assert (found.ending is Ending.UNCONFIRMED) <= (not found.gone)
        assert (found.proof is None) >= (end is None and not ground)
        if found.ending in (Ending.STOPPED, Ending.KILLED, Ending.FINISHED, Ending.UNSTARTED):
            assert found.gone
