"""What is wrong with a stop: what was seen of the turn, held against its settlement."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from ..._ending import Ending
from .model import Moment, Outcome, RunnerName, Work

WATCH = 2.0
"""How long the work of a settled turn is looked for, in seconds."""
NOTICE = 0.010
"""Work that was seen to end this many seconds after a settlement said gone is on time: another
process closes its connections when the machine lets it. Work that begins then is lost at once."""
# As survivors name them: other numbers, of a command line for instance, excuse nothing.
_PIDS = re.compile(r"\bpid (\d+(?:, \d+)*)")


@attrs.define(eq=False)
class Sample:
    """One stop.

    Attributes:
        pair: samples of different runners with one number were taken one after the other.
        admitted_at: when the session's next turn was let in.
        gone_at: when its last work was seen to end, where any was seen after the asking.
        alive: what was seen of its work when it should have been gone.
        lies: what its settlement says, and was seen to be otherwise.
        unanswered: why the session's next turn did not answer and end by itself.
        histories: what was wrong with the history that the model then got.
    """

    runner: RunnerName
    pair: int
    outcome: Outcome
    admitted_at: float | None = None
    gone_at: float | None = None
    alive: tuple[str, ...] = ()
    lies: tuple[str, ...] = ()
    unanswered: str = ""
    histories: tuple[str, ...] = ()

    @property
    def lost(self) -> tuple[str, ...]:
        """All that is wrong with it."""
        next_turn = (self.unanswered,) if self.unanswered else ()
        return tuple(dict.fromkeys((*self.alive, *self.lies, *next_turn, *self.histories)))


def alive(outcome: Outcome, work: Sequence[Work]) -> list[str]:
    """The work that goes on after the settlement called it gone, or long after it did not."""
    limit = outcome.settled_at + (NOTICE if outcome.gone else WATCH)
    return [
        one.name
        for one in work
        if one.pid not in _named(outcome)
        and (one.ended_at is None or one.ended_at > limit or one.began_at > outcome.settled_at)
    ]


def lies(moment: Moment, outcome: Outcome, work: Sequence[Work]) -> list[str]:
    """What the settlement says of the turn, where the work shows otherwise."""
    found = alive(outcome, work) if outcome.gone else []
    if outcome.ending == Ending.FINISHED.name:
        found += [f"{one.name} cut off, and the turn finished" for one in work if one.cut]
        found += [] if moment == "finishing" else ["finished, and it was never let"]
    if outcome.ending == Ending.UNSTARTED.name:
        found += [f"{one.name} of a turn that did not start" for one in work]
    return found


def _named(outcome: Outcome) -> set[int]:
    """The processes that the settlement names as alive."""
    return {
        int(pid)
        for text in outcome.survivors
        for pids in _PIDS.findall(text)
        for pid in pids.split(", ")
    }
