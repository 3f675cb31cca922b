"""What must hold once a play is over: what a user relies on, held against the far end's truth."""

from __future__ import annotations

from . import _check_ends, _check_people, _check_rooms, _check_stops
from ._person import Fault
from ._seen import Seen
from ._world import World

__all__ = ["check_all"]

OF_A_TURN = (*_check_people.CHECKS, *_check_stops.CHECKS, *_check_ends.CHECKS)


def check_all(world: World) -> None:
    """Add to the world's faults whatever does not hold."""
    for person in world.people.values():
        for promise, text in _check_people.check_settled(person, world):
            world.faults.append(Fault(promise, person.name, text))
        if person.turn.settlement is not None:
            seen = Seen(world, person, person.turn.settlement)
            for check in OF_A_TURN:
                for promise, text in check(seen):
                    world.faults.append(Fault(promise, person.name, f"{text} [{seen}]"))
    for fault in _check_rooms.check_rooms(world):
        world.faults.append(fault)
