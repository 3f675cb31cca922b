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
class Facts:
    """All that judging a turn needs to know.

    Attributes:
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

    end: End | None = None
    error: BaseException | None = None
    began: bool = False
    revealed: bool = False
    asked: bool = False
    cancelled: bool = False
    killed: bool = False
    kill_returned: bool = False
    backlog: bool = False


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


def judge(facts: Facts) -> Verdict:
    """Say what became of a turn, from what was seen and from nothing else."""
    if facts.end is not None:
        return _judge_end(facts, facts.end)
    if not facts.began:
        return Verdict(Ending.UNSTARTED, None, True)
    told = Ending.KILLED if facts.killed else Ending.STOPPED
    proof, gone = None, False
    if isinstance(facts.error, BackendLost) and facts.error.gone:
        proof, gone = Proof.PROCESS, True
    elif isinstance(facts.error, BackendRefused) and not facts.revealed:
        told, gone = Ending.UNSTARTED, True
    elif facts.error is not None and facts.kill_returned:
        proof, gone = Proof.PROCESS, True
    if facts.backlog or (facts.error is not None and not facts.asked):
        return Verdict(Ending.FAILED, proof, gone)
    return Verdict(told if gone else Ending.UNCONFIRMED, proof, gone)


def _judge_end(facts: Facts, end: End) -> Verdict:
    if end.how is How.COMPLETED:
        return Verdict(Ending.FINISHED, end.proof, True)
    gone = end.proof is not Proof.CLAIMED
    if facts.backlog:
        return Verdict(Ending.FAILED, end.proof, gone)
    if not gone:
        return Verdict(Ending.UNCONFIRMED, end.proof, False)
    if facts.cancelled or end.how is How.CANCELLED:
        return Verdict(Ending.KILLED if facts.killed else Ending.STOPPED, end.proof, True)
    return Verdict(Ending.FAILED if end.how is How.FAILED else Ending.FINISHED, end.proof, True)
