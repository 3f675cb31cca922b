"""What must hold between the turns of a room: order, no overlap, one conversation."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import combinations, pairwise

from .._probe import Work
from ._person import NEVER, Fault, Person
from ._world import World

__all__ = ["check_rooms"]


def check_rooms(world: World) -> Generator[Fault]:
    """All of it."""
    for room in dict.fromkeys(person.step.room for person in world.people.values()):
        people = [person for person in world.people.values() if person.step.room == room]
        for check in (_check_order, _check_handover, _check_overlap, _check_session):
            for promise, who, text in check(world, room, people):
                yield Fault(promise, who, text)


Found = Iterator[tuple[str, str, str]]


def _check_order(_world: World, _room: str, people: list[Person]) -> Found:
    """First come, first served."""
    entered = [person for person in people if person.entered_at < NEVER]
    entered.sort(key=lambda person: person.entered_order)
    for first, second in pairwise(entered):
        if second.queued_order < first.queued_order:
            yield "order", second.name, f"came before {first.name}, and was let in after it"


def _check_handover(world: World, room: str, people: list[Person]) -> Found:
    """A room is never free while somebody waits for it."""
    for person in people:
        if person.entered_at == NEVER:
            continue
        due = [person.queued_at]
        due += [one.left_at for one in people if one.queued_order < person.queued_order]
        due += [end for name, _, end in world.retired if name == room]
        if person.entered_at > max(due) + world.tolerance:
            text = f"waited until {person.entered_at}, and the room was free at {max(due)}"
            yield "handover", person.name, text


def _check_overlap(world: World, _room: str, people: list[Person]) -> Found:
    """No turn's work is asked for, or goes on, beside another's."""
    entered = [person for person in people if person.entered_at < NEVER]
    entered.sort(key=lambda person: person.entered_order)
    for first, second in combinations(entered, 2):
        if second.entered_at < first.left_at - world.tolerance:
            yield "overlap", second.name, f"is let in before {first.name} has left"
        for work in world.works_of(second):
            if work.asked_at < first.left_at - world.tolerance:
                yield "overlap", second.name, f"is asked for before {first.name} has left"
        settlement = first.turn.settlement
        for one in world.works_of(first):
            for other in world.works_of(second):
                # Not known to be gone: that it may go on is what was said of it.
                if settlement is not None and settlement.gone and _meet(world, one, other):
                    yield "overlap", second.name, f"works while {first.name} works"


def _meet(world: World, one: Work, other: Work) -> bool:
    if one.began_at is None or other.began_at is None:
        return False
    over = NEVER if one.ended_at is None else one.ended_at
    return over > other.began_at + world.tolerance


def _check_session(world: World, room: str, people: list[Person]) -> Found:
    """A turn goes on with the conversation, and never with one whose work may be alive."""
    worked = [(person, world.work_of(person)) for person in people]
    began = [(p, w) for p, w in worked if w is not None and w.began_at is not None]
    began.sort(key=lambda pair: pair[1].asked_at)
    tolerance = world.tolerance
    for (first, one), (second, other) in pairwise(began):
        settlement = first.turn.settlement
        if settlement is None or one.session is None or other.session is None:
            continue
        if other.asked_at >= world.disturbed_at - world.tolerance:
            return
        same = one.session == other.session
        retired = any(
            name == room and began >= one.asked_at - world.tolerance and began <= other.asked_at
            for name, began, _ in world.retired
        )
        if same and not settlement.gone:
            text = f"goes on with {first.name}, whose work may be alive"
            yield "session", second.name, text
        forgotten = any(
            name == room and one.asked_at + tolerance < began and end + tolerance < other.asked_at
            for name, began, end in world.retired
        )
        if same and forgotten:
            yield "session", second.name, f"goes on with {first.name}, and the room was retired"
        known = world.revealed_at(one) + world.prompt < settlement.settled_at
        if not same and settlement.gone and known and not retired and _keeps(world):
            yield "session", second.name, f"does not go on with the session of {first.name}"


def _keeps(world: World) -> bool:
    return "session" not in world.probe.unable
