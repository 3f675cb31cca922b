"""What came of checking obligations, for people and for machines."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import attrs

from .._records import Settlement
from ._obligation import Obligation
from ._probe import Work

__all__ = ["Observed", "Outcome", "Report", "Row"]


class Outcome(enum.Enum):
    """What came of one obligation."""

    GREEN = "green"
    """The promise was kept."""
    RED = "red"
    """It was not, or its excuse is not true."""
    EXCUSED = "excused"
    """The backend cannot keep it, and says so; where that can be tried, it was."""
    NOT_RUN = "not run"
    """It takes a lever that the probe does not have."""


@attrs.frozen
class Observed:
    """One turn as it was seen. Times are seconds after the asking; None: it did not happen.

    A turn that nobody asked to stop has no asking: its times count from its settlement.
    """

    room: str
    turn_id: str
    ending: str
    gone: bool
    asked: float | None
    sent: float | None
    acknowledged: float | None
    ended: float | None
    settled: float
    work_began: float | None = None
    work_ended: float | None = None
    survivors: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @classmethod
    def of(cls, settlement: Settlement, work: Work | None) -> Observed:
        """Take the times of a settlement, and of the far end's work."""
        zero = settlement.settled_at if settlement.asked_at is None else settlement.asked_at

        def since(moment: float | None) -> float | None:
            return None if moment is None else round(moment - zero, 6)

        return cls(
            room=settlement.room,
            turn_id=settlement.turn_id,
            ending=settlement.ending.value,
            gone=settlement.gone,
            asked=since(settlement.asked_at),
            sent=since(settlement.sent_at),
            acknowledged=since(settlement.acked_at),
            ended=since(settlement.ended_at),
            settled=round(settlement.settled_at - zero, 6),
            work_began=None if work is None else since(work.began_at),
            work_ended=None if work is None else since(work.ended_at),
            survivors=settlement.survivors,
            errors=tuple(f"{type(error).__name__}: {error}" for error in settlement.errors),
        )

    def timeline(self) -> str:
        """One line: `asked, sent +0.000 s, ended +1.000 s, settled +1.000 s: stopped; ...`."""
        names = ("asked", "sent", "acknowledged", "ended", "settled")
        words = []
        for name in names:
            moment = getattr(self, name)
            if moment is not None:
                words.append(f"{name} {moment:+.3f} s" if moment or name != "asked" else "asked")
            elif name != "acknowledged" and self.asked is not None:
                words.append(f"never {name}")
        return f"{', '.join(words)}: {self.ending}{self._truth()}"

    def _truth(self) -> str:
        if self.work_began is None:
            return ""
        if self.work_ended is None:
            return "; the work goes on"
        return f"; the work ended {self.work_ended:+.3f} s"


@attrs.frozen
class Row:
    """One obligation of a report.

    Attributes:
        obligation: the promise.
        outcome: what came of it.
        text: why it is not green: what was seen, or the excuse. Empty where it is green.
        observed: the turns that were taken, in the order of their settlements.
        seconds: of real time.
    """

    obligation: Obligation
    outcome: Outcome
    text: str = ""
    observed: tuple[Observed, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        """The row as JSON values."""
        return {
            "obligation": self.obligation.name,
            "says": self.obligation.says,
            "outcome": self.outcome.value,
            "text": self.text,
            "observed": [attrs.asdict(one) for one in self.observed],
            "seconds": round(self.seconds, 4),
        }

    def __str__(self) -> str:
        lines = [f"{self.outcome.value:8} {self.obligation.says}"]
        lines += [f"         {line}" for line in self.text.splitlines()]
        if self.outcome is Outcome.RED:
            lines += [f"         {one.turn_id}: {one.timeline()}" for one in self.observed]
        return "\n".join(lines)


@attrs.frozen
class Report:
    """All obligations of one probe.

    Attributes:
        probe: its name.
        rows: one an obligation.
    """

    probe: str
    rows: Sequence[Row]

    def of(self, outcome: Outcome) -> Iterator[Row]:
        """The rows with this outcome."""
        return (row for row in self.rows if row.outcome is outcome)

    @property
    def red(self) -> list[Row]:
        """The promises that are not kept."""
        return list(self.of(Outcome.RED))

    @property
    def verdict(self) -> str:
        """`"red"`, `"green"`, or `"not run"` where not one promise was played or excused."""
        found = {row.outcome for row in self.rows} - {Outcome.NOT_RUN}
        if Outcome.RED in found:
            return "red"
        return "green" if found else "not run"

    def to_json(self) -> dict[str, object]:
        """The report as JSON values."""
        counts = {outcome.value: len(list(self.of(outcome))) for outcome in Outcome}
        return {
            "probe": self.probe,
            "verdict": self.verdict,
            "counts": counts,
            "rows": [row.to_json() for row in self.rows],
        }

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.probe}: {self.verdict}", *(f"  {line}" for line in self._lines())]
        )

    def _lines(self) -> Iterator[str]:
        for row in self.rows:
            yield from str(row).splitlines()
