"""Stops of the real Parlant engine, and every task that its turns leave on the loop.

    python benchmarks/parlant_stops.py          # 60 stops
    python benchmarks/parlant_stops.py --small  # a smoke

A turn is stopped while guidelines are matched, while its preamble is generated, and while its
message is; beside it a neighbour waits in each of these places. When a turn is settled none of its
tasks may be alive, and all of the neighbours' have to be; they answer in the end. The tasks are
counted by the agent's own hooks, and not by turnstop. Prints JSON; status 1 where one of that is
not so. Needs the extra `parlant`, best in an environment of its own (tests/real/parlant_env.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from contextlib import AsyncExitStack, redirect_stdout
from typing import Any

import attrs
import trio

import turnstop
from turnstop.lab.parlant import ParkedModel

STOPS, SMALL = 60, 6
PLACES = ("matching", "preamble", "generation")
PATIENCE = 30.0
# What only watches over a preamble has ended by itself then.
CALM = 0.3


@attrs.define
class Tally:
    """What was seen, by the place where a turn was stopped."""

    alive: dict[str, list[str]] = attrs.field(factory=lambda: {place: [] for place in PLACES})
    endings: Counter[str] = attrs.field(factory=Counter)
    took: dict[str, list[float]] = attrs.field(factory=lambda: {place: [] for place in PLACES})
    neighbours_lost: list[str] = attrs.field(factory=list)
    unanswered: list[str] = attrs.field(factory=list)


async def live(rooms: turnstop.Rooms[str], place: str, message: str, tally: Tally) -> None:
    """A neighbour, who is let go of in the end."""
    async with rooms.turn(f"neighbour in {place}", message) as turn:
        async for _ in turn:
            pass
    if turn.settlement.ending is not turnstop.Ending.FINISHED:
        tally.unanswered.append(f"the neighbour in {place}: {turn.settlement.ending.value}")


async def stop(rooms: turnstop.Rooms[str], model: ParkedModel, place: str, tally: Tally) -> None:
    """One stop, and the room's next turn."""
    token, message = model.write(f"park {place}")
    async with rooms.turn(place, message) as turn:
        await model.parked(token)
        turn.stop()
    settlement = turn.settlement
    tally.alive[place] += model.alive(token)
    tally.endings[f"{place}: {settlement.ending.value}"] += 1
    tally.took[place].append((settlement.ended_at - settlement.asked_at) * 1e3)
    _, message = model.write("answer")
    async with rooms.turn(place, message) as turn:
        async for _ in turn:
            pass
    if turn.settlement.ending is not turnstop.Ending.FINISHED:
        tally.unanswered.append(f"after a stop in {place}: {turn.settlement.ending.value}")


async def measure(stops: int, thread: bool) -> dict[str, Any]:
    """All of it."""
    from turnstop.adapters.parlant import open_parlant

    model, tally = ParkedModel(), Tally()
    async with AsyncExitStack() as stack:
        opening = open_parlant(model.prepare, thread=thread, **model.options())
        with redirect_stdout(sys.stderr):
            backend = await stack.enter_async_context(opening)
        rooms = await stack.enter_async_context(turnstop.open_rooms(backend))
        async with trio.open_nursery() as nursery:
            neighbours = {}
            for place in PLACES:
                neighbours[place], message = model.write(f"park {place}")
                nursery.start_soon(live, rooms, place, message, tally)
                await model.parked(neighbours[place])
            await trio.sleep(CALM)
            before = {place: model.alive(token) for place, token in neighbours.items()}
            for number in range(stops):
                with trio.fail_after(PATIENCE):
                    await stop(rooms, model, PLACES[number % len(PLACES)], tally)
                for place, token in neighbours.items():
                    lost = set(before[place]) - {*model.alive(token)}
                    tally.neighbours_lost += [f"{one} in {place}" for one in lost]
            for token in neighbours.values():
                model.release(token)
        left = [one for token in neighbours.values() for one in model.alive(token)]
    return report(stops, tally, {"neighbours_tasks": before, "left_at_the_end": left})


def report(stops: int, tally: Tally, more: dict[str, Any]) -> dict[str, Any]:
    """As JSON values."""
    return {
        "stops": stops,
        "tasks_alive_after_their_stop": {place: len(tally.alive[place]) for place in PLACES},
        "alive": tally.alive,
        "neighbours_lost": tally.neighbours_lost,
        "unanswered": tally.unanswered,
        "endings": dict(tally.endings),
        "asked_to_ended_ms": {
            place: {"median": round(statistics.median(took), 2), "max": round(max(took), 2)}
            for place, took in tally.took.items()
        },
        **more,
    }


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help=f"{SMALL} stops, and not {STOPS}")
    parser.add_argument("--thread", action="store_true", help="the loop in a thread of its own")
    options = parser.parse_args()
    found = trio.run(measure, SMALL if options.small else STOPS, options.thread)
    print(json.dumps(found, indent=1))
    wrong = [*found["neighbours_lost"], *found["unanswered"], *found["left_at_the_end"]]
    return int(any(found["tasks_alive_after_their_stop"].values()) or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
