"""One turn as the checks see it: the person, the settlement, and the far end's truth."""

from __future__ import annotations

from functools import cached_property

from ..._records import Settlement
from .._probe import Work
from ._person import NEVER, Person
from ._world import World

__all__ = ["Seen"]

HELD = ("hold_cancels", "refuse_cancels")
CANCELS = (*HELD, "ignore_cancels", "hold_acknowledgements", "end_late")


class Seen:
    """One settled turn.

    Attributes:
        p: who took it.
        s: what became of it.
        works: what the far end was asked for it.
        w: the newest of these, None where nothing was asked for.
    """

    def __init__(self, world: World, person: Person, settlement: Settlement) -> None:
        self.world, self.p, self.s = world, person, settlement
        self.works = world.works_of(person)
        self.w: Work | None = self.works[-1] if self.works else None
        self.tolerance, self.prompt = world.tolerance, world.prompt
        self.budget = world.probe.budget
        self.bound = self.budget.cancel_within + self.budget.kill_within

    def able(self, ability: str) -> bool:
        """Whether the probe does not say otherwise."""
        return ability not in self.world.probe.unable

    @cached_property
    def undisturbed(self) -> bool:
        """Nothing happened to the far end as a whole before the settlement."""
        return self.s.settled_at < self.world.disturbed_at - self.tolerance

    @cached_property
    def over_at(self) -> float:
        """When the work was over; NEVER while it is not."""
        return NEVER if self.w is None or self.w.ended_at is None else self.w.ended_at

    @cached_property
    def revealed_at(self) -> float:
        """When the start was answered."""
        return NEVER if self.w is None else self.world.revealed_at(self.w)

    @cached_property
    def asked_at(self) -> float:
        """When the stop was asked for; NEVER where it was not."""
        return NEVER if self.s.asked_at is None else self.s.asked_at

    @cached_property
    def told_at(self) -> float:
        """When the far end was first told to stop."""
        return self.w.told_at[0] if self.w is not None and self.w.told_at else NEVER

    @cached_property
    def manner(self) -> str:
        """What the far end does with cancels when it is told; empty: it obeys at once."""
        known, instant = "", self.told_at - self.tolerance
        for time, name, _ in self.world.levers:
            if name in CANCELS and time <= self.told_at + self.tolerance:
                known = name if time < instant else "one of two"
        return known

    def ordered(self, what: str) -> float:
        """When the work finished or failed by itself, for certain; NEVER where it did not."""
        if "perhaps" in self.p.ordered:
            return NEVER
        if self.manner in HELD:
            return self.p.ordered.get(what, self.p.ordered.get(f"{what} after a cancel", NEVER))
        return self.p.ordered.get(what, NEVER)

    def runs_at(self, moment: float) -> bool:
        """Whether the work has begun by then and goes on for a while."""
        began = None if self.w is None else self.w.began_at
        return began is not None and began <= moment and self.over_at > moment + self.prompt

    def __str__(self) -> str:
        s = self.s
        words = [s.ending.value, "gone" if s.gone else "not known to be gone"]
        times = {"asked": s.asked_at, "sent": s.sent_at, "acknowledged": s.acked_at}
        times |= {"ended": s.ended_at, "settled": s.settled_at}
        if self.w is not None:
            times |= {"the work began": self.w.began_at, "was over": self.w.ended_at}
        words += [f"{name} {time:.4f}" for name, time in times.items() if time is not None]
        if s.errors:
            words.append(f"errors {list(s.errors)}")
        return ", ".join(words)
