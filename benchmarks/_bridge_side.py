"""Our half of `bridge.py`: turns whose remote side is asyncio code that does nothing.

One JSON object a line: first its versions, then for each `{"figure", "thread", ...}` on stdin
its value.
"""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import statistics
import sys
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

import attrs
import trio

import turnstop
from turnstop.abc import Emit, End, How, Request
from turnstop.transports.aio import Aio, Bridged, open_aio

# Short, since the kernel keeps a stopped turn until its budget is over, and memory is measured.
BUDGET = turnstop.StopBudget(cancel_within=0.5, kill_within=0.2)


@attrs.define(eq=False)
class Parked:
    """A remote turn that ends as soon as it is told to. Its three calls are asyncio's."""

    aio: Aio
    entered: float = 0.0
    began: float = 0.0
    session: object | None = None
    told: asyncio.Event | None = None
    child: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self.told = asyncio.Event()

    async def wait(self) -> None:
        assert self.told is not None
        await self.told.wait()

    async def note(self) -> None:
        self.began = perf_counter()
        assert self.told is not None
        self.told.set()

    async def follow(self, emit: Emit) -> End:
        await self.aio.call(self.wait)
        return End(How.CANCELLED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        self.entered = perf_counter()
        sent()
        await self.aio.call(self.note)


@attrs.define(eq=False)
class Leaving(Parked):
    """The same, with two tasks that it leaves, one started by the other, and a timer."""

    async def open(self) -> None:
        await super().open()
        self.child = asyncio.get_running_loop().create_task(self.stay(1))

    async def stay(self, below: int) -> None:
        if below:
            self.child = asyncio.get_running_loop().create_task(self.stay(below - 1))
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 3600)

    async def leftovers(self) -> Sequence[Bridged]:
        return self.aio.owned()

    async def sweep(self, leftovers: Sequence[Bridged]) -> Sequence[Bridged]:
        return await self.aio.sweep(tuple(leftovers))


@attrs.define(eq=False)
class Backend:
    aio: Aio
    make: Callable[[Aio], Parked]
    last: Parked | None = None

    async def start(self, request: Request[str]) -> Parked:
        self.last = remote = self.make(self.aio)
        await self.aio.call(remote.open)
        return remote


async def own(rooms: turnstop.Rooms, room: str) -> None:
    async with rooms.turn(room, "") as turn:
        async for _ in turn:
            pass


async def settle(aio: Aio) -> None:
    for _ in range(8):
        await trio.lowlevel.checkpoint()
    await aio.call(asyncio.sleep, 0)
    for _ in range(8):
        await trio.lowlevel.checkpoint()


async def one_stop(aio: Aio, rooms: turnstop.Rooms, backend: Backend) -> tuple[float, ...]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own, rooms, "room")
        await settle(aio)
        remote = backend.last
        assert remote is not None
        asked = perf_counter()
        rooms.stop("room")
    left = perf_counter()
    return remote.began - asked, remote.began - remote.entered, left - asked


async def stops(*, n: int, thread: bool) -> list[float]:
    """Microseconds: asked to cancel's first line, the bridge's share, asked to block left."""
    async with open_aio(thread=thread) as aio:
        backend = Backend(aio, Parked)
        async with turnstop.open_rooms(backend) as rooms:
            found = [await one_stop(aio, rooms, backend) for _ in range(n)]
    return [statistics.median(column) * 1e6 for column in zip(*found, strict=True)]


async def left_after(*, batches: int, n: int, thread: bool) -> dict[str, object]:
    """What is left of batches of n turns, started and stopped, and memory after each."""
    async with open_aio(thread=thread) as aio:
        backend = Backend(aio, Leaving)
        async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
            await batch(aio, rooms, n)
            threads = threading.active_count()
            tracemalloc.start()
            sizes = []
            for _ in range(batches):
                await batch(aio, rooms, n)
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
            tasks = aio.statistics().tasks
            timers = await aio.call(count_timers)
            live, stragglers = rooms.statistics().live, rooms.statistics().stragglers
    return {
        "tasks": tasks,
        "timers": timers,
        "threads": max(0, threading.active_count() - threads),
        "live": live,
        "stragglers": stragglers,
        "bytes_a_batch": [size - sizes[0] for size in sizes],
    }


async def batch(aio: Aio, rooms: turnstop.Rooms, n: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(own, rooms, f"room {number}")
        await settle(aio)
        rooms.stop_all()
    await trio.sleep(1.2 * (BUDGET.cancel_within + BUDGET.kill_within))


async def count_timers() -> int:
    """Timers that will fire on the loop that runs this."""
    loop = asyncio.get_running_loop()
    timers = getattr(loop, "_timers", None) or getattr(loop, "_scheduled", ())
    return sum(not timer.cancelled() for timer in timers)


FIGURES: dict[str, Callable[..., Awaitable[object]]] = {
    "stops": stops,
    "left": left_after,
}


def installed(name: str) -> tuple[str, str]:
    try:
        return name, version(name)
    except PackageNotFoundError:
        return name, "from the source tree"


def say(fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def main() -> None:
    names = ("turnstop", "trio", "trio-asyncio", "attrs")
    say({"python": platform.python_version(), **dict(map(installed, names))})
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()
        say(trio.run(partial(FIGURES[order.pop("figure")], **order)))


if __name__ == "__main__":
    main()
