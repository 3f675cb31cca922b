"""What the far ends and the programs that were killed have told, and whether it is as promised."""

from __future__ import annotations

import os
import re
import sqlite3
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import attrs

_NAMES = re.compile(r"\b(?=\w*\d)[\w-]{6,}")
WITHIN = 9.0
# An A2A server says CANCELED, which proves nothing, about so long before its work has ended.
UNWINDS = 1.0
"""Seconds of a stop's budget: for the cancel, for force, and for what is left."""


@attrs.frozen
class Work:
    """What a far end did for one turn, in seconds of CLOCK_MONOTONIC.

    Attributes:
        token: names the turn; it begins with its room.
        ended: None while it works.
    """

    token: str
    began: float
    ended: float | None

    @property
    def room(self) -> str:
        return self.token.partition(".")[0]


class FarEnd(Protocol):
    """Where the turns are at work.

    Attributes:
        options: what a program needs to reach it.
        exact: whether `works` tells when they began and ended.
        tolerance: how many seconds later than a settlement it may see the end.
    """

    @property
    def options(self) -> dict[str, Any]: ...
    @property
    def exact(self) -> bool: ...
    @property
    def tolerance(self) -> float: ...
    def works(self) -> list[Work]: ...
    def early(self) -> list[str]:
        """Turns that began while the one before was at work in their room."""

    async def at_work(self) -> list[str]:
        """Who is at work now, asked of nobody else."""

    async def settled(self, token: str) -> None:
        """A program has just said that this turn is settled, and gone."""


def overlapping(works: Iterable[Work]) -> list[str]:
    """Those that began while another one was at work in their room."""
    last: dict[str, Work] = {}
    found = []
    for work in sorted(works, key=lambda one: one.began):
        before = last.get(work.room)
        if before is not None and (before.ended is None or before.ended > work.began):
            found.append(work.token)
        if before is None or before.ended is not None:
            last[work.room] = work
    return found


@attrs.define
class Account:
    """What was seen in a run.

    Attributes:
        settled: what was said of each turn that was settled, by any program.
        again: how many were settled once more, since the journal had not been told before the kill.
        survivors: turns that were at work when their program was gone.
        left: in which phase each was that its program has left, when it was killed first.
        failures: errors that were raised in turns' blocks.
    """

    settled: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    again: int = 0
    survivors: set[str] = attrs.field(factory=set)
    left: dict[str, str] = attrs.field(factory=dict)
    failures: list[str] = attrs.field(factory=list)

    def note(self, said: dict[str, Any]) -> None:
        self.again += said["turn"] in self.settled
        self.settled[said["turn"]] = said

    def taken_up(self) -> list[dict[str, Any]]:
        return [one for one in self.settled.values() if one["taken_up"]]

    def lies(self, works: Sequence[Work], tolerance: float) -> list[str]:
        """Turns of which somebody said that they were gone, and they were at work."""
        ended = {work.token: work.ended for work in works}
        gone = [one for token, one in self.settled.items() if one["gone"] and token in ended]
        return [
            one["turn"]
            for one in gone
            if (end := ended[one["turn"]]) is None or end > one["settled"] + tolerance
        ]

    def lost(self, works: Sequence[Work]) -> list[str]:
        """Turns that were at work, and that nobody settled."""
        return [work.token for work in works if work.token not in self.settled]

    def doubted(self, works: Sequence[Work]) -> tuple[list[str], list[str]]:
        """Turns that were taken up and were not seen to be gone, which went on; others.

        The work of the others had ended, or never begun; an end that only nobody could show is one.
        """
        ended = {work.token: work.ended for work in works}
        unsure = [one for one in self.taken_up() if not one["gone"]]

        def was_at_work(one: dict[str, Any]) -> bool:
            end = ended.get(one["turn"], 0.0)
            return end is None or end > one["settled"] + UNWINDS

        return (
            [one["turn"] for one in unsure if was_at_work(one)],
            [one["turn"] for one in unsure if not was_at_work(one)],
        )

    def ended_after(self, works: Sequence[Work]) -> list[float]:
        """How long after it was asked the work of each ended that was at work until then."""
        ended = {work.token: work.ended or 0.0 for work in works}
        taken_up = self.taken_up()
        took = (ended.get(one["turn"], 0.0) - one["asked"] for one in taken_up)
        return sorted(one for one in took if one > 0)

    def endings(self, found: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
        """How those ended that were left in a phase."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for one in found:
            counts[self.left.get(one["turn"], "settled, and not yet noted")][one["ending"]] += 1
        return {phase: dict(sorted(count.items())) for phase, count in sorted(counts.items())}

    def why(self, tokens: Iterable[str]) -> dict[str, int]:
        """What was said of these, without the names that it says."""
        said = [" ".join(self.settled[token]["errors"]) or "no error" for token in tokens]
        return dict(Counter(_NAMES.sub("*", text)[:200] for text in said))


def judge(account: Account, far: FarEnd, journal: Path) -> dict[str, Any]:
    """The report of what was promised."""
    works = far.works()
    found = account.taken_up()
    at_work, not_at_work = account.doubted(works)
    times = sorted(one["settled"] - one["asked"] for one in found)
    return {
        "turns": len(account.settled),
        "survivors": len(account.survivors),
        "taken_up": len(found),
        "endings": dict(sorted(Counter(one["ending"] for one in found).items())),
        "endings_by_phase": account.endings(found),
        "settled_s": spread(times),
        "work_ended_s": spread(account.ended_after(works)) if far.exact else None,
        "unsure_and_not_at_work": len(not_at_work),
        "unsure_since": account.why(not_at_work),
        "unsure_and_at_work": at_work,
        "late": [one["turn"] for one in found if one["settled"] - one["asked"] > WITHIN],
        "let_too_early": far.early(),
        "said_gone_and_at_work": account.lies(works, far.tolerance),
        "never_settled": account.lost(works),
        "settled_again": account.again,
        "open_in_the_journal": count_open(journal),
        "failures": account.failures,
    }


def spread(times: Sequence[float]) -> dict[str, float] | None:
    """Of sorted ones."""
    if not times:
        return None
    middle, most = statistics.median(times), times[-1]
    return {"n": len(times), "median": round(middle, 3), "max": round(most, 3)}


FAULTS = (
    "unsure_and_at_work",
    "late",
    "let_too_early",
    "said_gone_and_at_work",
    "never_settled",
    "open_in_the_journal",
    "left_at_the_end",
    "ended_by_themselves",
    "unanswered_at_the_end",
)


def count_open(journal: Path) -> int:
    with closing(sqlite3.connect(journal)) as database:
        return int(database.execute("SELECT count(*) FROM open").fetchone()[0])


def is_kept(report: dict[str, Any]) -> bool:
    return not any(report[name] for name in FAULTS)


def load() -> list[float]:
    return [round(one, 2) for one in os.getloadavg()]
