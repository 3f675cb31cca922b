"""One turn as the checks see it, and the table of endings, told a second time."""

from __future__ import annotations

from turnstop import BackendLost, BackendRefused, Ending, Settlement
from turnstop.abc import End, How, Proof

from .ledger import Call, Ledger, Record
from .script import NEVER

EPS = 1e-6


def same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and abs(one - other) < EPS)


class View:
    """One turn and its settlement, and when things were due.

    Attributes:
        since: when the stop began, asked for or after an error.
        phase2: when the forceful rung may begin at the latest.
        due: when the ending is known, whatever happens.
        known: what was seen of the end until then; `tied` where it came in that very instant.
    """

    def __init__(self, record: Record, s: Settlement, world: Ledger) -> None:
        self.record, self.s, self.sweep = record, s, world.sweep
        self.budget = budget = world.budget
        self.closing = world.closing
        self.script = record.script
        self.revealed = record.call("follow") is not None
        self.lost_gone = isinstance(record.outcome, BackendLost) and record.outcome.gone
        failed = isinstance(record.outcome, Exception) and not self.lost_gone
        self.since = record.outcome_at if failed else NEVER
        if s.asked_at is not None:
            self.since = s.asked_at
        self.phase2 = self.since + budget.cancel_within
        self.due = self.phase2 + budget.kill_within
        self.tied = same(record.outcome_at, self.due)
        self.known = record.outcome if record.outcome_at <= self.due + EPS else None
        left = self.since < NEVER or self.lost_gone
        self.reaps = self.revealed and self.script.leftovers is not None and left
        kill = record.call("kill")
        self.tied |= kill is not None and same(kill.back, self.due)

    def called(self, name: str) -> Call | None:
        return self.record.call(name)

    @property
    def killed(self) -> bool:
        """Whether kill came back without an error before the ending was known."""
        call = self.called("kill")
        return (
            call is not None
            and call.result == "killed"
            and call.back <= min(self.due, self.s.settled_at)
        )


def judge(v: View, known: object, killed: bool | None = None) -> tuple[Ending, bool]:
    cancelled, forced = v.called("cancel") is not None, v.called("kill") is not None
    backlog = v.s.request is not None and v.s.request.kind == "backlog"
    if v.called("start") is None:
        return Ending.UNSTARTED, True
    told = Ending.KILLED if forced else Ending.STOPPED
    if isinstance(known, End):
        gone = known.proof is not Proof.CLAIMED
        if known.how is How.COMPLETED:
            return Ending.FINISHED, True
        if backlog:
            return Ending.FAILED, gone
        if not gone:
            return Ending.UNCONFIRMED, False
        if cancelled or known.how is How.CANCELLED:
            return told, True
        return Ending.FAILED if known.how is How.FAILED else Ending.FINISHED, True
    refused = isinstance(known, BackendRefused) and not v.revealed
    gone = refused or (isinstance(known, BackendLost) and known.gone)
    gone = gone or (known is not None and (v.killed if killed is None else killed))
    if backlog or (known is not None and v.s.request is None):
        return Ending.FAILED, gone
    if refused:
        return Ending.UNSTARTED, True
    return (told, True) if gone else (Ending.UNCONFIRMED, False)
