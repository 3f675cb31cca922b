"""What a seed decides: steps, and nothing that is not written in them."""

from __future__ import annotations

import math

import attrs

from .._probe import LEVERS

__all__ = ["BODIES", "CLOSINGS", "OF_ALL", "SYNC", "Schedule", "Step"]


@attrs.frozen(repr=False)
class Step:
    """One thing that somebody does.

    A step that finds nothing to do does nothing: its turn never entered, or its work is over. So
    any step of a schedule can be left out.

    Attributes:
        wait: seconds after the step before it.
        what: `"enter"`, `"stop"` (of a turn), `"stop_room"`, `"stop_all"`, `"cancel"` (of the scope
            around a block), `"answer"`, `"retire"`, `"close"` (the rooms), or a lever of `Probe`.
        who: the turn, by the name that its `"enter"` gives it.
        room: the room.
        how: what a body does, or how the rooms are closed: see `BODIES` and `CLOSINGS`.
        lasts: seconds, for what takes time; a number of events for a body that reads `"some"`.
        timeout: seconds, of the scope around a block.
    """

    wait: float
    what: str
    who: str = ""
    room: str = ""
    how: str = ""
    lasts: float = 0.0
    timeout: float = math.inf

    def __repr__(self) -> str:
        """As one would write it."""
        words = [f"{self.wait!r}", f'"{self.what}"']
        words += [f'"{self.who}"'] if self.who else []
        for field in attrs.fields(Step)[3:]:
            value = getattr(self, field.name)
            if value != field.default:
                text = f'"{value}"' if isinstance(value, str) else repr(value)
                words.append(f"{field.name}={text}")
        return f"Step({', '.join(words)})"


BODIES = {
    "read": "reads to the end",
    "some": "reads some events, and breaks",
    "slow": "reads to the end, and takes a while for each event",
    "apart": "is read from another task, and leaves after a while",
    "forgive": "reads to the end, and bears the turn's error",
    "sleep": "reads nothing, and leaves after a while",
    "fail": "raises an error of its own after a while",
    "shield": "shields itself for a while, then reads to the end",
    "cling": "reads to the end, and shields itself for a while on its way out",
    "own": "stops its own turn after a while",
    "early": "stops its turn before it is entered",
}
"""What the body of a turn's block does."""

CLOSINGS = {
    "leave": "the block of the rooms is left",
    "cancel": "everything is cancelled from outside, the adapter included",
    "raise": "an error is raised inside the rooms",
}
"""How the rooms come to their end."""


SYNC = (
    "hold_starts",
    "release_starts",
    "refuse_starts",
    "hold_cancels",
    "refuse_cancels",
    "ignore_cancels",
    "hold_acknowledgements",
)
OF_ALL = ("die", "cut", "babble")
"""Levers that are set; and those of the far end as a whole."""

ACTS = ("enter", "stop", "stop_room", "stop_all", "cancel", "answer", "retire", "close")
KNOWN = {"enter": BODIES, "close": CLOSINGS}


@attrs.frozen(repr=False)
class Schedule:
    """Steps, and the seed of the order in which tasks run that could run at the same time.

    Its repr is Python: put it into a regression test and `replay` it.

    Attributes:
        seed: the scheduler's.
        steps: in order.
        inside: whether the people who take turns are inside the block of the rooms, and end with
            it, or outside, and find them closed.
    """

    seed: int
    steps: tuple[Step, ...]
    inside: bool = True

    def check(self) -> None:
        """See that it can be played.

        Raises:
            ValueError: there is no such step, body or closing, or a turn is entered twice.
        """
        for step in self.steps:
            if step.what not in (*ACTS, *LEVERS, "release_starts"):
                raise ValueError(f"a schedule has no step {step.what!r}: {step}")
            if step.what in KNOWN and step.how not in KNOWN[step.what]:
                raise ValueError(f"nothing is done {step.how!r}: {step}")
        names = [step.who for step in self.steps if step.what == "enter"]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is entered twice: give each turn its own name")

    def __repr__(self) -> str:
        """As one would write it."""
        steps = "".join(f"\n        {step!r}," for step in self.steps)
        inside = "" if self.inside else "\n    inside=False,"
        return f"Schedule(\n    seed={self.seed},\n    steps=({steps}\n    ),{inside}\n)"
