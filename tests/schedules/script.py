"""What a seed decides beforehand: how a remote turn behaves, how its block does, and when."""

from __future__ import annotations

import math
from random import Random

import attrs

from turnstop.abc import End, How, Proof

NEVER = math.inf
DEAF_FOR = 15.0
PATIENCE = 40.0
GRID = (0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


class Dice(Random):
    """What decides. In a coarse world all times fall on one grid, so that everything meets."""

    coarse = False

    def another(self) -> Dice:
        found = Dice(self.random())
        found.coarse = self.coarse
        return found

    def moment(self, scale: float = 1.0) -> float:
        """Some seconds; half of all times fall on a small grid anyway."""
        found = scale * (self.choice(GRID) if self.random() < 0.5 else self.uniform(0.0, 2.0))
        return round(4 * found) / 4 if self.coarse else found

    def pick(self, **weights: int) -> str:
        return self.choices(list(weights), list(weights.values()))[0]


@attrs.frozen
class Plan:
    """One adapter call.

    Attributes:
        lasts: seconds; NEVER hangs.
        manner: when it is cancelled: `meek` leaves, `deaf` goes on to its end, `spiteful` raises.
        outcome: what comes then, in words of the call.
    """

    lasts: float
    manner: str
    outcome: str

    @classmethod
    def draw(cls, r: Dice, **outcomes: int) -> Plan:
        manner = r.pick(meek=8, deaf=1, spiteful=1)
        lasts = NEVER if r.random() < 0.1 else r.moment(r.choice((0.1, 0.5, 1.0, 2.0)))
        if manner == "deaf":
            lasts = min(lasts, DEAF_FOR)
        return cls(lasts, manner, r.pick(**outcomes))


def _draw_end(r: Dice, **hows: int) -> End:
    proof = r.choices(list(Proof), (6, 3, 2, 2))[0]
    return End(How[r.pick(**hows)], proof)


@attrs.frozen
class Script:
    """A remote turn.

    Attributes:
        begins: from the call of start to the beginning of the work, if start does not refuse.
        works: how long the work takes if nobody meddles.
        end: what follow says then, or after a cancel has worked (`told`).
        lag: from the work's end to follow's.
        breaks: when follow raises, after the reveal, and how.
        cancel_takes: from cancel's call to its effect, if its outcome is `works`.
        after_kill: what follow does after a kill that worked.
    """

    start: Plan
    begins: float
    works: float
    end: End
    told: End
    lag: float
    breaks: tuple[float, str]
    deaf: bool
    events: tuple[tuple[float, str], ...]
    cancel: Plan
    cancel_takes: float
    sent: float
    acknowledges: bool
    kill: Plan | None
    after_kill: str
    leftovers: Plan | None
    left: int
    sweep: Plan
    session: bool

    @classmethod
    def draw(cls, r: Dice) -> Script:
        start = Plan.draw(r, reveals=16, refuses=1, errs=1, loses=1, loses_gone=1)
        cancel = Plan.draw(r, works=8, ignored=3, raises=2)
        breaks = r.pick(never=6, errs=1, loses=1, loses_gone=1, crashes=1)
        kinds = ("tool", "tool", "text", "ask")
        return cls(
            start=start,
            begins=r.random() * min(start.lasts, 2.0),
            works=NEVER if r.random() < 0.3 else r.moment(2.0),
            end=_draw_end(r, COMPLETED=6, FAILED=2, SILENT=2, CANCELLED=1),
            told=_draw_end(r, CANCELLED=6, COMPLETED=1, FAILED=1, SILENT=2),
            lag=r.choice((0.0, 0.0, r.moment(0.3))),
            breaks=(NEVER if breaks == "never" else r.moment(2.0), breaks),
            deaf=r.random() < 0.05,
            events=tuple(
                (r.moment(0.3), "flood" if r.random() < 0.01 else r.choice(kinds))
                for _ in range(r.randrange(5))
            ),
            cancel=cancel,
            cancel_takes=r.moment(0.5),
            sent=NEVER if r.random() < 0.2 else r.random() * min(cancel.lasts, 1.0),
            acknowledges=r.random() < 0.8,
            kill=Plan.draw(r, works=5, raises=1) if r.random() < 0.6 else None,
            after_kill=r.pick(ends=2, loses=2, nothing=1),
            leftovers=Plan.draw(r, tells=4, raises=1) if r.random() < 0.3 else None,
            left=r.randrange(3),
            sweep=Plan.draw(r, ends=4, fails=1, raises=1),
            session=r.random() < 0.7,
        )


@attrs.frozen
class Block:
    """What a user does with a turn.

    Attributes:
        early: `turn.stop()` before entering.
        kind: what the body does.
        lasts: for as long, or up to as many events.
        timeout: of the scope around the block.
    """

    early: bool
    kind: str
    lasts: float
    timeout: float

    @classmethod
    def draw(cls, r: Dice) -> Block:
        return cls(
            early=r.random() < 0.05,
            kind=r.pick(
                read=8, some=3, sleep=3, fail=2, shield=4, own=2, apart=2, nest=1, misuse=1
            ),
            lasts=r.moment(2.0),
            timeout=r.moment(3.0) if r.random() < 0.2 else PATIENCE,
        )
