"""What the command hears from a probing process, and what its silence or its end means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import trio

from ...testing import LEVERS, OBLIGATIONS, Outcome, Report, Row
from .job import read_row

__all__ = ["Audience", "Ears", "Limits", "Probing"]

_NAMED = 3


@attrs.frozen
class Limits:
    """How long the probing process may be silent, in seconds.

    Attributes:
        begin: until it runs.
        load: while it imports a module, or closes what a factory has made.
        open: while it calls a factory and opens what that makes, which may start a program.
        row: until the next obligation is done, beside what the probe says of its opening.
        bare_row: the same where there is no probe, and all are under way at once.
        beat: while everything in it seems to stand still, where it is known to tell of itself.
    """

    begin: float = 30.0
    load: float = 10.0
    open: float = 90.0
    row: float = 60.0
    bare_row: float = 30.0
    beat: float = 10.0


def _levers(name: str) -> str:
    return ", ".join(need for need in OBLIGATIONS[name].needs if need in LEVERS)


@attrs.define
class Probing:
    """What came of probing one adapter.

    Attributes:
        adapter: what the user called it.
        reports: one a probe; `names` has the obligations of each.
        bad: why it could not be probed; each one line.
        misdeeds: what it printed or left behind; each one line.
        printed: the beginning of what it printed to stdout.
        wrote: the end of what it wrote to stderr.
    """

    adapter: str
    reports: list[Report] = attrs.field(factory=list)
    bad: list[str] = attrs.field(factory=list)
    misdeeds: list[str] = attrs.field(factory=list)
    printed: str = ""
    wrote: str = ""

    @property
    def verdict(self) -> str:
        """`green`, `red`, `not run`, or `bad input`.

        Work that does not end leaves things behind: then it is its being red that counts.
        """
        found = {report.verdict for report in self.reports}
        if not self.bad and "red" in found:
            return "red"
        if self.bad or self.misdeeds:
            return "bad input"
        return "not run" if "not run" in found else "green"

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "adapter": self.adapter,
            "verdict": self.verdict,
            "bad": [*self.bad, *self.misdeeds],
            "printed": self.printed,
            "reports": [report.to_json() for report in self.reports],
        }


class Audience(Protocol):
    """Who is told what is heard, as it comes."""

    def begin(self, name: str, bare: bool) -> None:
        """A probe is checked from here on; bare: without one."""

    def row(self, row: Row) -> None:
        """One obligation is done."""


@attrs.define(eq=False)
class Ears:
    """What was heard until now."""

    probing: Probing
    audience: Audience
    limits: Limits
    stage: str = "begin"
    target: str = ""
    opening: float = 0.0
    bare: bool = False
    beats: bool = False
    over: bool = False
    news_at: float = attrs.field(factory=trio.current_time)
    beat_at: float = attrs.field(factory=trio.current_time)
    waiting: list[str] = attrs.field(factory=list)
    rows: list[Row] = attrs.field(factory=list)

    def hear(self, message: dict[str, Any]) -> None:
        """Take one message in."""
        self.beat_at = trio.current_time()
        what = message.pop("what")
        if what == "beat":
            self.beats = True
        else:
            self.news_at = self.beat_at
            getattr(self, f"_hear_{what}")(**message)

    def _hear_stage(self, name: str, of: str, opening: float = 0.0) -> None:
        self.stage, self.target, self.beats, self.opening = name, of, False, opening

    def _hear_probe(self, name: str, bare: bool, obligations: list[str]) -> None:
        self.bare, self.waiting, self.rows = bare, obligations, []
        self.probing.reports.append(Report(name, self.rows))
        self.audience.begin(name, bare)

    def _hear_row(self, row: dict[str, Any]) -> None:
        self._take(read_row(row))

    def _take(self, row: Row) -> None:
        self.waiting.remove(row.obligation.name)
        self.rows.append(row)
        order = list(OBLIGATIONS)
        self.rows.sort(key=lambda row: order.index(row.obligation.name))
        self.audience.row(row)

    def _hear_bad(self, text: str) -> None:
        self.probing.bad.append(text)

    def _hear_left(self, names: list[str]) -> None:
        self.probing.misdeeds += [f"{name} was left behind" for name in names]

    def note_left(self, found: Sequence[object]) -> None:
        """Processes of it outlive it."""
        names = [str(one) for one in found]
        if len(names) > _NAMED:
            others = len(names) - 1
            self._hear_left([f"{names[0]}, with {others} processes more,"])
        else:
            self._hear_left(names)

    def _hear_done(self, threads: list[str], printed: str) -> None:
        self._hear_left(threads)
        self.probing.printed = printed
        if printed.strip():
            line = printed.strip().partition("\n")[0][:80]
            text = f"it prints to stdout, which is the application's: {line!r}; log it instead"
            self.probing.misdeeds.append(text)
        self.over = True

    # Silence.

    @property
    def patience(self) -> float:
        """For how many seconds it may be silent now."""
        if self.stage == "begin":
            return self.limits.begin
        if self.stage == "check" and self.waiting:
            return (self.limits.bare_row if self.bare else self.limits.row) + self.opening
        return self.limits.open if self.stage == "open" else self.limits.load

    @property
    def deadline(self) -> float:
        """When its silence is too long."""
        silent = self.news_at + self.patience
        return min(silent, self.beat_at + self.limits.beat) if self.beats else silent

    def note_silence(self) -> None:
        """It was silent for too long: say what that means."""
        seconds = trio.current_time() - self.news_at
        if self.stage == "check" and self.waiting:
            self._give_up(seconds)
            return
        what = {
            "import": f"importing {self.target.partition(':')[0]} does not come to an end",
            "open": f"{self.target} does not come back with a backend",
            "check": f"{self.target} does not close",
        }.get(self.stage, "Python does not start")
        self.probing.bad.append(f"{what}: it was ended after {seconds:.0f} s")

    def _give_up(self, seconds: float) -> None:
        """Something under way hangs: a stop that hangs is none."""
        played = [name for name in self.waiting if not (self.bare and _levers(name))]
        first = (played or self.waiting)[0]
        others = [name for name in self.waiting if name != first]
        text = f"it hangs, and was ended after {seconds:.0f} s: {self._guess_why()}"
        self._take(Row(OBLIGATIONS[first], Outcome.RED, text, seconds=seconds))
        for name in others:
            levers = f"takes the lever {_levers(name)}" if self.bare and _levers(name) else ""
            why = levers or "not done: the adapter hangs"
            self._take(Row(OBLIGATIONS[name], Outcome.NOT_RUN, why))

    def _guess_why(self) -> str:
        blocks, waits = "it blocks the thread of all turns", "it waits and cannot be cancelled"
        if not self.beats:
            return f"{blocks}, or {waits}"
        silent = trio.current_time() - self.beat_at
        return blocks if silent >= self.limits.beat else waits

    def note_end(self, fate: str) -> None:
        """It ended before it was done."""
        if not self.over:
            doing = {
                "import": f"importing {self.target.partition(':')[0]}",
                "open": self.target,
            }.get(self.stage, f"{self.target}, while it was probed,")
            self.probing.bad.append(f"{doing} ends the interpreter: {fate}")
