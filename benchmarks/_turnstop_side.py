"""Our half of `against_band.py`: the kernel with backends that do nothing, on Trio.

One JSON object a line: first `{"versions": ...}`, then for each `{"figure", "n"}` on stdin its
value.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter, thread_time

import trio

import turnstop
from turnstop.abc import Emit, End, How, Request

PIECES = 20


class Parked:
    """A remote turn that ends as soon as it is told to."""

    session = None

    def __init__(self) -> None:
        self.began = 0.0
        self.told = trio.Event()

    async def follow(self, emit: Emit) -> End:
        await self.told.wait()
        return End(How.CANCELLED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        self.began = perf_counter()
        sent()
        self.told.set()


class Acknowledging(Parked):
    """The same, with a backend's task between the request and its answer."""

    def __init__(self, pending: list[tuple[Parked, trio.Event]], wake: list[trio.Event]) -> None:
        super().__init__()
        self.pending, self.wake = pending, wake

    async def cancel(self, sent: Callable[[], None]) -> None:
        answer = trio.Event()
        self.pending.append((self, answer))
        sent()
        self.wake[0].set()
        await answer.wait()


class Done:
    """A remote turn that is over at once."""

    session = None

    async def follow(self, emit: Emit) -> End:
        return End(How.COMPLETED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        raise AssertionError("nothing to cancel")


class Backend:
    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make
        self.last: object = None
        self.turn_id = ""

    async def start(self, request: Request[str]) -> object:
        self.turn_id = request.turn_id
        self.last = self.make()
        return self.last


async def own(rooms: turnstop.Rooms, room: str) -> None:
    async with rooms.turn(room, "") as turn:
        async for _ in turn:
            pass


async def follow_up(rooms: turnstop.Rooms, room: str, admitted: list[float]) -> None:
    async with rooms.turn(room, ""):
        admitted.append(perf_counter())


async def settle() -> None:
    for _ in range(6):
        await trio.lowlevel.checkpoint()


async def one_stop(rooms: turnstop.Rooms, backend: Backend, waiting: bool) -> list[float]:
    admitted: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own, rooms, "room")
        await settle()
        remote = backend.last
        assert isinstance(remote, Parked)
        if waiting:
            nursery.start_soon(follow_up, rooms, "room", admitted)
            await settle()
        # Without an id the waiting turn would be stopped too, which the peer cannot do.
        named = backend.turn_id if waiting else None
        asked = perf_counter()
        rooms.stop("room", turn_id=named)
        returned = perf_counter()
    if waiting:
        return [admitted[0] - asked]
    return [returned - asked, remote.began - asked]


async def stops(n: int) -> list[float]:
    backend = Backend(Parked)
    async with turnstop.open_rooms(backend) as rooms:
        alone = [await one_stop(rooms, backend, False) for _ in range(n)]
        before = [await one_stop(rooms, backend, True) for _ in range(n)]
    columns = [*zip(*alone, strict=True), *zip(*before, strict=True)]
    return [statistics.median(column) * 1e6 for column in columns]


async def stop_many(n: int, backend: Backend) -> float:
    async with turnstop.open_rooms(backend) as rooms:
        async with trio.open_nursery() as nursery:
            for room in range(n):
                nursery.start_soon(own, rooms, str(room))
            await settle()
            gc.collect()
            asked = thread_time()
            for room in range(n):
                rooms.stop(str(room))
        return (thread_time() - asked) * 1e3


async def stop_many_unanswered(n: int) -> float:
    return await stop_many(n, Backend(Parked))


async def stop_many_acknowledged(n: int) -> float:
    pending: list[tuple[Parked, trio.Event]] = []
    wake = [trio.Event()]

    async def backend() -> None:
        while True:
            await wake[0].wait()
            wake[0] = trio.Event()
            while pending:
                remote, answer = pending.pop()
                answer.set()
                remote.told.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(backend)
        took = await stop_many(n, Backend(lambda: Acknowledging(pending, wake)))
        nursery.cancel_scope.cancel()
    return took


async def finished_turns(n: int) -> list[float]:
    """A turn, and a bare nursery: piece by piece, so that both find the same machine."""
    turns, bare = [], []
    async with turnstop.open_rooms(Backend(Done)) as rooms:
        for _ in range(PIECES):
            turns.append(await each(n // PIECES, partial(own, rooms, "room")))
            bare.append(await each(n // PIECES, one_nursery))
    return [statistics.median(turns), statistics.median(bare)]


async def each(n: int, one: Callable[[], Awaitable[None]]) -> float:
    began = thread_time()
    for _ in range(n):
        await one()
    return (thread_time() - began) / n * 1e6


async def nothing() -> None:
    pass


async def one_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nothing)


async def live_bytes(n: int) -> float:
    async with turnstop.open_rooms(Backend(Parked)) as rooms, trio.open_nursery() as nursery:
        # Trio's own containers have grown before anything is counted.
        async with trio.open_nursery() as warm:
            for _ in range(2 * n):
                warm.start_soon(settle)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for room in range(n):
            nursery.start_soon(own, rooms, str(room))
        await settle()
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        rooms.stop_all()
    return used / n


FIGURES: dict[str, Callable[[int], Awaitable[object]]] = {
    "stops": stops,
    "many": stop_many_unanswered,
    "many_acknowledged": stop_many_acknowledged,
    "turn": finished_turns,
    "live": live_bytes,
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
    gc.collect()
    gc.freeze()
    say(
        {"python": platform.python_version(), **dict(map(installed, ("turnstop", "trio", "attrs")))}
    )
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()
        say(trio.run(FIGURES[order["figure"]], order["n"]))


if __name__ == "__main__":
    main()
