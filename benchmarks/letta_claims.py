"""Stops of a real Letta server's turns, each held against the model's end of the call.

    python benchmarks/letta_claims.py          # 50 stops over four modes
    python benchmarks/letta_claims.py --small  # a smoke: one of each

Letta answers `cancelled` at once, whatever its model call does. So a settlement that says `gone`
while the endpoint still sees that call open is a lie; there must be none, in conversations and in
agents' own histories, with a model that goes on saying tokens and with one that is silent. Prints
JSON; status 1 where one lied. Needs the extras `lab` and `letta`, and the server:
`PYTHONPATH=. python tests/real/letta_server.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import trio

import turnstop
from turnstop.adapters.letta import open_letta
from turnstop.lab import Behaviour, Lab, MissingProgram, open_lab, write_prompt
from turnstop.lab.letta import VERSION, make_agent, start_letta

STOPS, SMALL = 50, 4
PATIENCE = 120.0
RUNS_FOR = 0.3
# What the endpoint has yet to read of a connection that is closed.
SEEN_WITHIN = 0.05
WORDS = {"tokens that run": Behaviour("drip", 20), "parked": Behaviour("park", 2)}
PLACES = {"conversation": True, "agent": False}
MODES = tuple(itertools.product(PLACES, WORDS))


@attrs.frozen
class Stop:
    """One stop.

    Attributes:
        asked_to_ended: milliseconds to the end; None where none was seen.
        asked_to_settled: milliseconds to the settlement.
        asked_to_dropped: milliseconds until the endpoint saw the model call end; None where it had
            not by the end of the watch, and was ended then.
        lied: whether it was called gone with the model call open.
    """

    mode: tuple[str, str]
    ending: str
    gone: bool
    asked_to_ended: float | None
    asked_to_settled: float
    asked_to_dropped: float | None
    lied: bool


async def stop_one(
    rooms: turnstop.Rooms[Any], lab: Lab, mode: tuple[str, str], number: int, watch: float
) -> Stop:
    """Stop a turn while its model call is open, and look at both ends of that."""
    token, prompt = write_prompt(WORDS[mode[1]])
    async with rooms.turn(f"room-{number}", prompt) as turn:
        await lab.parked(token)
        await trio.sleep(RUNS_FOR)
        turn.stop()
    settlement = turn.settlement
    assert settlement is not None
    assert settlement.asked_at is not None
    with trio.move_on_after(SEEN_WITHIN):
        await lab.gone(token)
    lied = settlement.gone and bool(lab.alive(token))
    with trio.move_on_after(watch):
        await lab.gone(token)
    dropped = lab.gone_at(token)
    lab.release(token)
    asked, ended = settlement.asked_at, settlement.ended_at
    return Stop(
        mode=mode,
        ending=settlement.ending.value,
        gone=settlement.gone,
        # An end that is only claimed is none.
        asked_to_ended=(ended - asked) * 1e3 if ended is not None and settlement.gone else None,
        asked_to_settled=(settlement.settled_at - asked) * 1e3,
        asked_to_dropped=None if dropped is None else (dropped - asked) * 1e3,
        lied=lied,
    )


async def measure(stops: int, watch: float) -> dict[str, Any]:
    """Take the modes in turn."""
    url = await start_letta()
    done: list[Stop] = []
    async with open_lab() as lab:
        one = await make_agent(url, lab.url)

        async def agent_of(room: str) -> str:
            return await make_agent(url, lab.url)

        agents = {"conversation": one, "agent": agent_of}
        for place, conversations in PLACES.items():
            async with (
                open_letta(url, agent_id=agents[place], conversations=conversations) as letta,
                turnstop.open_rooms(letta) as rooms,
            ):
                modes = [mode for mode in MODES if mode[0] == place]
                share = stops // 2 + (stops % 2 if place == "conversation" else 0)
                for number, mode in zip(range(share), itertools.cycle(modes)):
                    with trio.fail_after(PATIENCE):
                        done.append(await stop_one(rooms, lab, mode, number, watch))
        faults = [str(fault) for fault in lab.faults]
    return report(done, faults)


def report(done: Sequence[Stop], faults: Sequence[str]) -> dict[str, Any]:
    """The figures, all together and by mode."""
    return {
        "benchmark": "letta claims",
        "program": f"letta {VERSION}",
        "stops": len(done),
        "gone_with_the_model_call_open": sum(stop.lied for stop in done),
        "modes": {
            ", ".join(mode): by_mode([stop for stop in done if stop.mode == mode]) for mode in MODES
        },
        "faults": list(faults),
    }


def by_mode(stops: Sequence[Stop]) -> dict[str, Any]:
    """The figures of one mode."""
    dropped = [stop.asked_to_dropped for stop in stops]
    return {
        "n": len(stops),
        "endings": dict(Counter(stop.ending for stop in stops)),
        "asked_to_ended_ms": spread([stop.asked_to_ended for stop in stops]),
        "asked_to_settled_ms": spread([stop.asked_to_settled for stop in stops]),
        "asked_to_model_call_closed_ms": spread(dropped),
        "model_call_open_to_the_end_of_the_watch": dropped.count(None),
    }


def spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """The median, and the ends."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return {
        "n": len(known),
        "min": round(known[0], 1),
        "median": round(statistics.median(known), 1),
        "max": round(known[-1], 1),
    }


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help=f"{SMALL} stops: a smoke")
    parser.add_argument("--stops", type=int, default=None, help=f"how many; {STOPS} by default")
    parser.add_argument(
        "--watch", type=float, default=1.0, help="seconds that the call is watched afterwards"
    )
    given = parser.parse_args()
    stops = given.stops or (SMALL if given.small else STOPS)
    # Those that are not confirmed are counted.
    logging.getLogger("turnstop").addHandler(logging.NullHandler())
    try:
        figures = trio.run(partial(measure, stops, given.watch))
    except MissingProgram as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(figures, indent=2))
    return 1 if figures["gone_with_the_model_call_open"] or figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
