"""People who take turns: what they do in their blocks, and what they see."""

from __future__ import annotations

import math

import trio

from ..._errors import RoomsClosed
from ...events import Ask, Event, Text
from ._schedule import Step
from ._world import NEVER, Boom, Person, World

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
        person.stopped_at = trio.current_time()
        world.note_receipt(turn.stop("early"), f"{person.name} before entering")
    person.scope.deadline = trio.current_time() + person.step.timeout
    person.queued_at, person.queued_order = trio.current_time(), world.next_order()
    world.say(person.name, f"wants the {turn.room}")
    try:
        with person.scope:
            await _enter(world, person)
    finally:
        person.left_at = trio.current_time()
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
    how, lasts = person.step.how, person.step.lasts
    if how in ("read", "early"):
        await _read(world, person, math.inf)
    elif how == "some":
        await _read(world, person, lasts)
    elif how == "sleep":
        await trio.sleep(lasts)
    elif how == "fail":
        await trio.sleep(lasts)
        person.own = Boom(person.name)
        raise person.own
    elif how == "shield":
        with trio.CancelScope(shield=True):
            await trio.sleep(lasts)
        await _read(world, person, math.inf)
    else:
        await trio.sleep(lasts)
        world.note_receipt(person.turn.stop("own"), f"{person.name} from its own body")
        await trio.lowlevel.checkpoint()
        world.blame("body", person.name, "gets past a checkpoint after its own stop")


async def _read(world: World, person: Person, most: float) -> None:
    events = 0
    async for event in person.turn:
        _hear(world, person, event)
        events += 1
        if events >= most:
            return
    person.to_end = True


def _hear(world: World, person: Person, event: Event) -> None:
    if person.stopped_at < NEVER:
        world.blame("silence", person.name, f"hears {type(event).__name__} after its stop")
    if isinstance(event, Ask):
        world.say(person.name, f"is asked {event.id}")
        person.asks.append(event)
    elif isinstance(event, Text):
        world.say(person.name, f"hears {event.delta!r}")
        for word in event.delta.split():
            name, _, number = word.partition(":")
            due = len(person.heard) + 1
            if name != person.name or number != str(due):
                world.blame("words", person.name, f"hears {word!r}; its own word {due} was due")
            else:
                person.heard.append(due)
