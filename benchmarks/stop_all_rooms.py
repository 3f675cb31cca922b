"""One STOP for all rooms of an inbox, beside that of one room, in real time.

    python benchmarks/stop_all_rooms.py          # 1000 rooms
    python benchmarks/stop_all_rooms.py --small  # a smoke

Each room's turn hangs, and takes 50 ms to be cancelled. Measured is from the call of
`inbox.control` until the last turn is settled; and, beside it, the same of as many rooms without an
inbox, from `rooms.stop_all`. Prints JSON; status 1 where that of all rooms takes more than three
times that of one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from typing import Any

import trio

from turnstop import Control, ControlKind, Delivery, Ending, open_rooms, serve_rooms
from turnstop.abc import End, How
from turnstop.feeds import MemoryFeed

ROOMS, SMALL = 1000, 50
ROUNDS = 5
CANCEL_TAKES = 0.05
MOST = 3.0


class Remote:
    """A turn that ends when its cancel returns."""

    session = None

    def __init__(self) -> None:
        self._over = trio.Event()

    async def follow(self, emit: Any) -> End:
        await self._over.wait()
        return End(How.CANCELLED)

    async def cancel(self, sent: Any) -> None:
        sent()
        await trio.sleep(CANCEL_TAKES)
        self._over.set()


class Backend:
    """Remote turns without end."""

    async def start(self, request: Any) -> Remote:
        return Remote()


async def handle(delivery: Delivery) -> None:
    async with delivery.turn() as turn:
        async for _ in turn:
            pass


async def measure(count: int) -> tuple[float, float]:
    """Milliseconds until `control` has returned, and until the last turn is settled."""
    feed = MemoryFeed()
    async with open_rooms(Backend()) as rooms, trio.open_nursery() as nursery:
        serve = partial(serve_rooms, rooms, handle, feed, at_once=count)
        inbox = await nursery.start(serve)
        for number in range(count):
            feed.post(f"room-{number}", "work")
        while rooms.statistics().live < count:  # noqa: ASYNC110
            await trio.sleep(0.01)
        await trio.sleep(0.2)
        began = time.perf_counter()
        applied = inbox.control(Control(ControlKind.STOP))
        returned = time.perf_counter()
        settled = await applied.settled()
        ended = time.perf_counter()
        assert [one.ending for one in settled] == [Ending.STOPPED] * count
        nursery.cancel_scope.cancel()
    return (returned - began) * 1e3, (ended - began) * 1e3


async def measure_bare(count: int) -> float:
    """Milliseconds until the last turn is settled where there is no inbox."""

    async def work(number: int) -> None:
        async with rooms.turn(f"room-{number}", "work") as turn:
            async for _ in turn:
                pass

    async with open_rooms(Backend()) as rooms, trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(work, number)
        while rooms.statistics().live < count:  # noqa: ASYNC110
            await trio.sleep(0.01)
        await trio.sleep(0.2)
        began = time.perf_counter()
        settled = await rooms.stop_all().settled()
        ended = time.perf_counter()
        assert [one.ending for one in settled] == [Ending.STOPPED] * count
        nursery.cancel_scope.cancel()
    return (ended - began) * 1e3


def main() -> int:
    """Measure all three, several times, turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true")
    count = SMALL if parser.parse_args().small else ROOMS
    ones, bares, alls = [], [], []
    for _ in range(ROUNDS):
        ones.append(trio.run(measure, 1))
        bares.append(trio.run(measure_bare, count))
        alls.append(trio.run(measure, count))
    one, everything = (statistics.median(end for _, end in found) for found in (ones, alls))
    told = {
        "rooms": count,
        "rounds": ROUNDS,
        "one_ms": round(one, 2),
        "all_ms": round(everything, 2),
        "all_without_inbox_ms": round(statistics.median(bares), 2),
        "all_control_returned_ms": round(statistics.median(back for back, _ in alls), 2),
        "ratio": round(everything / one, 3),
    }
    print(json.dumps(told))
    return 0 if told["ratio"] <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
