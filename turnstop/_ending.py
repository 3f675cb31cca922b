"""How a turn ended, and how we know: the vocabulary, and the one place that judges."""

from __future__ import annotations

import enum

import attrs

from ._errors import BackendLost, BackendMisbehaved, BackendRefused
from .events import Usage


class How(enum.Enum):
    """What the backend said of the turn's end."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SILENT = "silent"
    """It ended, and the protocol does not tell how."""


class Proof(enum.Enum):
    """What shows that the work is over."""

    EVENT = "event"
    """The backend's own terminal message of this turn."""
    STREAM = "stream"
    """The turn's own stream was closed by the side that did the work."""
    PROCESS = "process"
    """The process that did the work is gone."""
    CLAIMED = "claimed"
    """Somebody says so, and nothing shows it."""


class Ending(enum.Enum):
    """What became of a turn."""

    FINISHED = "finished"
    """The backend completed it, whoever asked for a stop meanwhile."""
    STOPPED = "stopped"
    """It ended because it was told to, and the end was seen."""
    KILLED = "killed"
    """It ended after the forceful rung."""
    UNCONFIRMED = "unconfirmed"
    """Nothing shows that it ended: its work may be alive."""
    UNSTARTED = "unstarted"
    """Nothing began."""
    FAILED = "failed"
    """It failed by itself, before anybody asked for a stop."""


@attrs.frozen
class End:
    """The backend's own end of a turn, as `RemoteTurn.follow` returns it."""

    how: How
    proof: Proof = Proof.EVENT
    usage: Usage | None = None
    detail: str = ""


@attrs.define
class Verdict:
    """The judgement: `gone` is True where the work is known to be over, or never began."""

    ending: Ending
    proof: Proof | None
    gone: bool


def check_end(end: object) -> End:
    """Return what `follow` returned, if it is an `End`."""
    if not isinstance(end, End):
        raise BackendMisbehaved(f"follow() returned {end!r}, which is no End")
    return end


def judge(
    *,
    end: End | None = None,
    error: BaseException | None = None,
    began: bool = False,
    revealed: bool = False,
    asked: bool = False,
    cancelled: bool = False,
    killed: bool = False,
    kill_returned: bool = False,
    backlog: bool = False,
) -> Verdict:
    """Say what became of a turn, from what was seen and from nothing else.

    Args:
        end: what `follow` returned, or None.
        error: what `start` or `follow` raised, or None.
        began: whether `start` was called.
        revealed: whether `start` has returned.
        asked: whether somebody asked for a stop before `error` was raised.
        cancelled: whether `cancel` was called.
        killed: whether `kill` was called.
        kill_returned: whether it came back without an error.
        backlog: whether the turn was stopped since its reader was too slow.
    """
    told = Ending.KILLED if killed else Ending.STOPPED
    if end is not None:
        return _judge_end(end, told, cancelled, backlog)
    if not began:
        return Verdict(Ending.UNSTARTED, None, True)
    proof, gone = None, False
    if isinstance(error, BackendLost) and error.gone:
        proof, gone = Proof.PROCESS, True
    elif isinstance(error, BackendRefused) and not revealed:
        told, gone = Ending.UNSTARTED, True
    elif error is not None and kill_returned:
        proof, gone = Proof.PROCESS, True
    if backlog or (error is not None and not asked):
        return Verdict(Ending.FAILED, proof, gone)
    return Verdict(told if gone else Ending.UNCONFIRMED, proof, gone)


def _judge_end(end: End, told: Ending, cancelled: bool, backlog: bool) -> Verdict:
    how, proof = end.how, end.proof
    if how is How.COMPLETED:
        return Verdict(Ending.FINISHED, proof, True)
    gone = proof is not Proof.CLAIMED
    if backlog:
        return Verdict(Ending.FAILED, proof, gone)
    if not gone:
        return Verdict(Ending.UNCONFIRMED, proof, False)
    if cancelled or how is How.CANCELLED:
        return Verdict(told, proof, True)
    return Verdict(Ending.FAILED if how is How.FAILED else Ending.FINISHED, proof, True)
