"""Drawing a schedule: what a seed makes of the levers that a probe has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import attrs

from ..._budget import StopBudget
from .._probe import LEVERS, Probe, has_lever
from ._schedule import BODIES, CLOSINGS, OF_ALL, Schedule, Step

__all__ = ["draw"]

ROOMS = ("kitchen", "attic")
MOMENTS = (0.0, 0.0, 0.0, 0.05, 0.25, 0.5, 1.0)
BODY_WEIGHTS = {
    "read": 18,
    "some": 3,
    "slow": 5,
    "apart": 4,
    "forgive": 2,
    "sleep": 2,
    "fail": 2,
    "shield": 2,
    "cling": 4,
    "own": 2,
    "early": 1,
}
OF_A_WORK = {"say": 14, "ask": 4, "finish": 10, "fail": 3, "say_end_again": 2, "leave": 3}
OF_A_CANCEL = (
    "hold_cancels",
    "refuse_cancels",
    "ignore_cancels",
    "hold_acknowledgements",
    "end_late",
)
BY_PEOPLE = {
    "enter": 16,
    "stop": 6,
    "stop_room": 2,
    "stop_all": 1,
    "cancel": 4,
    "answer": 3,
    "retire": 2,
}


def draw(seed: int, probe: Probe) -> Schedule:
    """What this seed plays on a probe with these levers."""
    return _Drawing(Random(seed), probe).schedule(seed)


class _Drawing:
    def __init__(self, r: Random, probe: Probe) -> None:
        self.r = r
        self.levers = {name for name in LEVERS if has_lever(probe, name)}
        self.budget: StopBudget = probe.budget
        # Nobody waits for virtual time; real time is cut to what the budget needs.
        self.scale = 1.0 if probe.clock == "virtual" else self.budget.cancel_within / 2
        self.names: list[str] = []
        self.weights = BY_PEOPLE | {
            name: weight for name, weight in OF_A_WORK.items() if name in self.levers
        }

    def schedule(self, seed: int) -> Schedule:
        steps = [self.enter()]
        for _ in range(self.r.randrange(3, 22)):
            steps.append(step := self.step())
            steps += self.follow_up(step)
        for some in self.disturbances():
            where = self.r.randrange(len(steps) + 1)
            steps[where:where] = some
        how = self.r.choice(list(CLOSINGS))
        steps.append(Step(self.moment(2.0), "close", how=how))
        if self.r.random() < 0.2:
            steps += [self.step() for _ in range(self.r.randrange(1, 4))]
        return Schedule(seed, tuple(steps), inside=self.r.random() < 0.5)

    def moment(self, scale: float = 1.0) -> float:
        """Some seconds. Most times fall on a small grid, so that things meet in an instant."""
        dice, scale = self.r.random(), scale * self.scale
        if dice < 0.7:
            return round(self.r.choice(MOMENTS) * scale, 3)
        if dice < 0.95:
            return round(self.r.uniform(0.0, scale), 3)
        edges = (self.budget.cancel_within, self.budget.cancel_within + self.budget.kill_within)
        return self.r.choice(edges)

    def pick(self, weights: dict[str, int]) -> str:
        return self.r.choices(list(weights), list(weights.values()))[0]

    def step(self) -> Step:
        what = self.pick(self.weights)
        if what == "enter":
            return self.enter()
        if what == "stop_all":
            return Step(self.moment(), what)
        if what in ("stop_room", "retire"):
            return Step(self.moment(), what, room=self.r.choice(ROOMS))
        return Step(self.moment(), what, self.r.choice(self.names[-3:]))

    def follow_up(self, step: Step) -> Iterator[Step]:
        """What makes the most of a step: much said at once, or something said after a stop."""
        if step.what == "say":
            for _ in range(self.r.randrange(3)):
                yield attrs.evolve(step, wait=0.0)
            if "finish" in self.levers and self.r.random() < 0.15:
                yield Step(0.0, "finish", step.who)
        elif step.what in ("stop", "cancel") and "say" in self.levers and self.r.random() < 0.3:
            yield Step(self.moment(), "say", step.who)
        elif step.what == "ask" and self.r.random() < 0.5:
            yield Step(self.moment(), self.r.choice(("answer", "stop")), step.who)

    def enter(self) -> Step:
        self.names.append(name := f"t{len(self.names) + 1:02}")
        room = ROOMS[self.r.random() < 0.3]
        how = self.pick(BODY_WEIGHTS)
        assert how in BODIES
        lasts = 0.0
        if how == "some":
            lasts = self.r.randrange(1, 3)
        elif how not in ("read", "early", "forgive"):
            lasts = self.moment()
            lasts += {"apart": 0.5, "slow": 0.5, "cling": 0.5}.get(how, 0.0) * self.scale
        timeout = self.moment(2.0) if self.r.random() < 0.15 else math.inf
        return Step(self.moment(), "enter", name, room, how, lasts, timeout)

    def disturbances(self) -> Iterator[list[Step]]:
        """What the far end is told to do with starts, with cancels, and with all that it is."""
        r = self.r
        if "hold_starts" in self.levers and r.random() < 0.3:
            yield from self.held()
        if "refuse_starts" in self.levers and r.random() < 0.1:
            yield [Step(self.moment(), "refuse_starts")]
        cancels = [name for name in OF_A_CANCEL if name in self.levers]
        if cancels and r.random() < 0.5:
            lever = r.choice(cancels)
            yield [Step(0.0, lever, lasts=self.moment(2.0) if lever == "end_late" else 0.0)]
        if cancels and r.random() < 0.3:
            yield self.scene(r.choice(cancels))
        everything = [name for name in OF_ALL if name in self.levers]
        if everything and r.random() < 0.15:
            yield [Step(self.moment(), r.choice(everything))]

    def scene(self, lever: str) -> list[Step]:
        """What takes several steps in their order, and chance seldom brings together."""
        r, some = self.r, 0.05 * self.scale
        first, second = self.reader(ROOMS[0], 0.0), self.reader(r.choice(ROOMS), some)
        stop = Step(some, "stop", first.who)
        steps = [Step(0.0, lever, lasts=self.scale if lever == "end_late" else 0.0), first]
        dice = r.random()
        if dice < 0.4:  # A question that is open, or answered.
            then = r.choice(("answer", "stop"))
            steps += [Step(some, "ask", first.who), Step(some, then, first.who)]
        elif dice < 0.5 and "finish" in self.levers:  # Two turns after one that may be alive.
            bound = self.budget.cancel_within + self.budget.kill_within
            steps += [stop, attrs.evolve(second, room=ROOMS[0]), self.reader(ROOMS[0], some)]
            steps += [Step(bound + some, "finish", second.who)]
        elif dice < 0.75:  # Somebody comes while another is stopped, and is to hear something.
            steps += [stop, second, Step(some, "say", second.who)]
        else:  # Both have begun something that outlives them.
            steps += [second, Step(some, "leave", first.who), Step(0.0, "leave", second.who)]
            steps += [Step(0.0, "say", second.who), attrs.evolve(stop, wait=self.moment())]
        return steps

    def reader(self, room: str, wait: float) -> Step:
        """Somebody who stays and reads."""
        step = self.enter()
        return attrs.evolve(step, wait=wait, room=room, how="read", lasts=0.0, timeout=math.inf)

    def held(self) -> Iterator[list[Step]]:
        """Starts that are answered late, mostly of a turn that is stopped meanwhile, or never."""
        hold = Step(self.moment(), "hold_starts")
        release = Step(self.moment(2.0), "release_starts")
        dice = self.r.random()
        if dice < 0.85:
            enter = self.enter()
            stop = Step(self.moment(), self.r.choice(("stop", "cancel")), enter.who)
            say = Step(self.moment(), "say", enter.who)
            lost = Step(self.moment(), self.r.choice(OF_ALL))
            if dice < 0.5:
                yield [hold, enter, stop, release]
            else:
                yield [hold, enter, release, say] if dice < 0.7 else [hold, enter, lost]
        else:
            yield [hold]
            yield [release]
