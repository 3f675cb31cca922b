"""People who take turns: what they do in their blocks, and what they see."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from ..._errors import RoomsClosed
from ...events import Ask, Event, Text
from .._probe import has_lever
from ._person import NEVER, Boom, Person
from ._schedule import Step
from ._world import World

__all__ = ["come", "take_turn"]


def come(world: World, step: Step) -> Person:
    """Somebody who wants a turn."""
    turn = world.rooms.turn(step.room, world.probe.content(step.who), turn_id=step.who)
    person = world.people[step.who] = Person(step, turn)
    return person


async def take_turn(world: World, person: Person) -> None:
    """Take it, whatever happens.

    **Cancellation:** as the turn's.
    """
    turn = person.turn
    if person.step.how == "early":
        what = f"{person.name} before entering"
        world.note_receipt(turn.stop(what), what, person.step.room)
    person.scope.deadline = trio.current_time() + person.step.timeout
    person.queued_at, person.queued_order = trio.current_time(), world.next_order()
    world.say(person.name, f"wants the {turn.room}")
    try:
        with person.scope:
            await _enter(world, person)
    finally:
        person.left_at = trio.current_time()
        person.cancelled |= person.scope.cancel_called
        world.say(person.name, f"has left: {turn!r}")


async def _enter(world: World, person: Person) -> None:
    try:
        async with person.turn:
            person.entered_at, person.entered_order = trio.current_time(), world.next_order()
            world.say(person.name, "enters")
            try:
                await _body(world, person)
            finally:
                person.body_left_at = trio.current_time()
                world.say(person.name, "leaves its body")
    except trio.Cancelled:
        person.cancelled = True
        raise
    except RoomsClosed as error:
        person.shut_out = True
        if person.entered_at < NEVER or world.closing > trio.current_time():
            person.error = error
    except Exception as error:
        world.say(person.name, f"is given {error!r}")
        person.error = error


async def _body(world: World, person: Person) -> None:
    await BODY[person.step.how](world, person, person.step.lasts)


async def _body_read(world: World, person: Person, _lasts: float) -> None:
    await _read(world, person, math.inf)


async def _body_slow(world: World, person: Person, lasts: float) -> None:
    await _read(world, person, math.inf, pause=lasts)


async def _body_apart(world: World, person: Person, lasts: float) -> None:
    world.aside.start_soon(_read_apart, world, person)
    await trio.sleep(lasts)


async def _read_apart(world: World, person: Person) -> None:
    await _body_forgive(world, person, 0.0)
    person.read_until = trio.current_time()


async def _body_forgive(world: World, person: Person, _lasts: float) -> None:
    try:
        await _read(world, person, math.inf)
    except Exception as error:
        world.say(person.name, f"its reader bears {error!r}")
        person.caught = error


async def _body_sleep(_world: World, _person: Person, lasts: float) -> None:
    await trio.sleep(lasts)


async def _body_fail(_world: World, person: Person, lasts: float) -> None:
    await trio.sleep(lasts)
    person.own = Boom(person.name)
    raise person.own


async def _body_shield(world: World, person: Person, lasts: float) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(lasts)
    await _read(world, person, math.inf)


async def _body_cling(world: World, person: Person, lasts: float) -> None:
    try:
        await _read(world, person, math.inf)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(lasts)


async def _body_own(world: World, person: Person, lasts: float) -> None:
    await trio.sleep(lasts)
    what = f"{person.name} from its own body"
    world.note_receipt(person.turn.stop(what), what, person.step.room)
    await trio.lowlevel.checkpoint()
    world.blame("body", person.name, "gets past a checkpoint after its own stop")


BODY: dict[str, Callable[[World, Person, float], Awaitable[None]]] = {
    "read": _body_read,
    "some": lambda world, person, lasts: _read(world, person, lasts),
    "slow": _body_slow,
    "apart": _body_apart,
    "forgive": _body_forgive,
    "sleep": _body_sleep,
    "fail": _body_fail,
    "shield": _body_shield,
    "cling": _body_cling,
    "own": _body_own,
    "early": _body_read,
}


async def _read(world: World, person: Person, most: float, pause: float = 0.0) -> None:
    events = 0
    async for event in person.turn:
        _hear(world, person, event)
        events += 1
        if events >= most:
            return
        if pause:
            await trio.sleep(pause)
    person.to_end = person.step.how != "apart"


def _hear(world: World, person: Person, event: Event) -> None:
    if person.stopped_at < NEVER:
        world.blame("silence", person.name, f"hears {type(event).__name__} after its stop")
    if isinstance(event, Ask):
        world.say(person.name, f"is asked {event.id}")
        person.asks.append(event)
    elif isinstance(event, Text):
        world.say(person.name, f"hears {event.delta!r}")
        # What says nothing on order says words of its own.
        for word in event.delta.split() if has_lever(world.probe, "say") else ():
            name, _, number = word.partition(":")
            due = len(person.heard) + 1
            if name != person.name or number != str(due):
                world.blame("words", person.name, f"hears {word!r}; its own word {due} was due")
            else:
                person.heard.append(due)
