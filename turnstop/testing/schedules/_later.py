"""What must have come to pass a moment after something was done."""

from __future__ import annotations

import trio

from .._probe import Work
from ._person import NEVER, Person
from ._world import World

__all__ = ["look_for_answer", "look_for_word"]


async def look_for_answer(world: World, person: Person, work: Work, reply: str) -> None:
    """An answer that was taken reaches the work as it was given.

    **Cancellation:** nobody looks any more; so with the next one.
    """
    began = trio.current_time()
    await trio.sleep(world.prompt)
    if world.disturbed_at < NEVER or not world.outlives(work, began):
        return
    if len(work.replies) < person.answers:
        world.blame("asks", person.name, "an answer was taken, and has not arrived")
    elif not any(world.probe.carries(told, reply) for told in work.replies):
        text = f"the reply was {reply!r}, and {work.replies} was told"
        world.blame("asks", person.name, text)


async def look_for_word(world: World, person: Person, due: int) -> None:
    """A word is heard by whoever reads, whatever becomes of others."""
    await trio.sleep(world.prompt)
    inside = person.entered_at < NEVER and person.body_left_at == NEVER
    reads = inside and person.step.how in ("read", "forgive") and person.turn.state == "live"
    meddled = person.scope.cancel_called or world.disturbed_at < NEVER
    # Whoever asks may wait for the answer before it says more.
    waits = len(person.asks) > person.answers
    told = "end_seen" not in world.probe.unable
    if reads and told and not meddled and not waits and len(person.heard) < due:
        world.blame("words", person.name, f"has not heard its word {due}")
