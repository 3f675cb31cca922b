"""What is known of a play: who took which turn, what the far end was told, what was broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import trio

from ..._receipt import StopReceipt
from ..._records import StopVerdict
from ..._rooms import Rooms
from .._probe import Probe, Work, has_lever
from ._crash import told
from ._person import NEVER, Fault, Person

__all__ = ["World"]


@attrs.define(eq=False)
class World:
    """What everybody of a play writes to.

    Attributes:
        probe: the adapter, and the levers of its far end.
        rooms: over it.
        people: by the names of their turns, in the order in which they came.
        levers: which were used, and when.
        retired: rooms whose retirement began, came back, and when.
        aside: where nobody is cancelled until all is over.
        closing: when the rooms were closed.
        how: how they were.
        over: the rooms are left.
        cancelled: everything was cancelled from outside, or torn down by an error.
        tolerance: seconds within which two times are the same.
        prompt: seconds that an adapter may take for what it does at once.
    """

    probe: Probe
    people: dict[str, Person] = attrs.field(factory=dict)
    faults: list[Fault] = attrs.field(factory=list)
    lines: list[tuple[float, str, str]] = attrs.field(factory=list)
    levers: list[tuple[float, str, float]] = attrs.field(factory=list)
    retired: list[tuple[str, float, float]] = attrs.field(factory=list)
    closing: float = NEVER
    how: str = ""
    inside: bool = True
    over: bool = False
    cancelled: bool = False
    _rooms: Rooms[Any] | None = None
    _aside: trio.Nursery | None = None
    _orders: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    @property
    def rooms(self) -> Rooms[Any]:
        """See above."""
        assert self._rooms is not None
        return self._rooms

    @property
    def aside(self) -> trio.Nursery:
        """See above."""
        assert self._aside is not None
        return self._aside

    @property
    def tolerance(self) -> float:
        """See above."""
        return 1e-6 if self.probe.clock == "virtual" else 0.5

    @property
    def prompt(self) -> float:
        """See above."""
        return 0.1 if self.probe.clock == "virtual" else 1.0

    def next_order(self) -> int:
        """A number that grows: tells the order of what happens in one instant."""
        return next(self._orders)

    def say(self, who: str, what: str) -> None:
        """Write a line of the trace."""
        self.lines.append((trio.current_time(), who, what))

    def blame(self, promise: str, who: str, text: str) -> None:
        """A promise was not kept."""
        fault = Fault(promise, who, text)
        self.say("FAULT", str(fault))
        self.faults.append(fault)

    def works_of(self, person: Person) -> list[Work]:
        """What the far end was asked for this turn: there should be one, or none."""
        return [work for work in self.probe.works if person.name in work.text]

    def work_of(self, person: Person) -> Work | None:
        """The newest."""
        works = self.works_of(person)
        return works[-1] if works else None

    def alive(self) -> set[str]:
        """What works have left behind and is alive now."""
        if not has_lever(self.probe, "leave"):
            return set()
        try:
            return set(self.probe.alive)
        except Exception as error:
            self.blame("lever", "alive", f"the probe raises {told(error)}")
            return set()

    def used(self, *names: str, by: float = NEVER) -> float:
        """When one of these levers was first used, by then; NEVER if none was."""
        times = [time for time, name, _ in self.levers if name in names and time <= by]
        return min(times, default=NEVER)

    @property
    def disturbed_at(self) -> float:
        """When the far end as a whole was first meddled with."""
        return self.used("die", "cut", "babble")

    def held_until(self, work: Work) -> float | None:
        """When the answer to its start was let go; NEVER: it is not yet; None: it was not held."""
        held = False
        for time, name, _ in self.levers:
            if name == "hold_starts" and time <= work.asked_at:
                held = True
            elif name == "release_starts" and held:
                if time >= work.asked_at:
                    return time
                held = False
        return NEVER if held else None

    def revealed_at(self, work: Work) -> float:
        """When the start of this work was answered; NEVER where the answer is kept back."""
        until = self.held_until(work)
        return work.asked_at if until is None else until

    def answered(self, work: Work) -> bool:
        """Whether the start of this work was answered, and before this instant if it was held."""
        until = self.held_until(work)
        return until is None or until + self.tolerance < trio.current_time()

    def outlives(self, work: Work, moment: float) -> bool:
        """Whether it could still be told something then: nobody answers who is gone."""
        return work.ended_at is None or work.ended_at > moment + self.tolerance

    def note_receipt(self, receipt: StopReceipt, what: str, room: str | None) -> None:
        """A stop of a turn or a room, or of all (None), has been asked for: see `reason_of`."""
        self.say("stop", f"{what}: {receipt.verdict.name} {' '.join(receipt.turn_ids)}")
        self.aside.start_soon(self._look_for_settlements, receipt, what)
        told = receipt.verdict in (StopVerdict.ASKED, StopVerdict.JOINED)
        people = [self.people[name] for name in receipt.turn_ids]
        if told is not bool(people):
            self.blame("receipt", what, f"contradicts itself: {receipt}")
        if receipt.verdict is StopVerdict.ASKED and all(one.stopped_at < NEVER for one in people):
            self.blame("receipt", what, f"all of them were stopped before: {receipt}")
        for person in people:
            if room not in (None, person.step.room):
                self.blame("receipt", person.name, f"is reached by a stop of the {room}")
            person.reasons.add(("stop_all" if room is None else "stop", what))
            self.note_stopped(person)

    async def _look_for_settlements(self, receipt: StopReceipt, what: str) -> None:
        settled = tuple([one.turn_id for one in await receipt.settled()])
        if settled != receipt.turn_ids:
            self.blame("receipt", what, f"has waited for {settled}: {receipt}")

    def note_stopped(self, person: Person) -> None:
        """From this step on nothing of this turn is heard, and nobody waits for an answer."""
        person.stopped_at = min(person.stopped_at, trio.current_time())
        if person.turn.settlement is None and person.turn.state != "stopping":
            self.blame("receipt", person.name, f"is {person.turn.state} after its stop")
        self.aside.start_soon(self._look_for_replies, person)

    async def _look_for_replies(self, person: Person) -> None:
        began = trio.current_time()
        await trio.sleep(self.prompt)
        work, asks = self.work_of(person), len(person.asks)
        if self.disturbed_at < NEVER or work is None or not self.outlives(work, began):
            return
        if len(work.replies) < asks:
            self.blame("asks", person.name, f"its stop left {asks} questions open")

    def look_for_swept(self, person: Person) -> None:
        """The settlement of one turn is not the end of what another, that goes on, has begun."""
        for other in self.people.values():
            goes_on = other is not person and other.turn.state == "live"
            if goes_on and other.left_behind and self.disturbed_at == NEVER:
                swept = sorted(other.left_behind - self.alive())
                if swept:
                    self.blame("leftovers", other.name, f"{swept} went with {person.name}")

    def reachable(self, room: str | None) -> list[Person]:
        """Whom a stop of a room, or of all, must reach."""
        return [
            person
            for person in self.people.values()
            if person.here
            and room in (None, person.step.room)
            and person.turn.settlement is None
            and not (person.scope.cancel_called or self.cancelled)
        ]
