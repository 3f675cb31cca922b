"""The peer's half of `against_band.py`: band-sdk's `BackendTurns` with backends that do nothing.

Run by path with a Python that has band-sdk; asyncio only, and nothing of turnstop. One JSON
object a line: first `{"versions": ...}`, then for each `{"figure", "n"}` on stdin its value.
"""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import statistics
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from time import perf_counter, thread_time

from band.core.turn_lifecycle import BackendTurns

Cancel = Callable[[list[float]], Awaitable[None]]

PIECES = 20


async def note_cancel(began: list[float]) -> None:
    began.append(perf_counter())


async def own(turns: BackendTurns[list[float]], room: str, handle: list[float]) -> None:
    async with turns.running(room, handle):
        await asyncio.get_running_loop().create_future()


async def follow_up(
    turns: BackendTurns[list[float]], room: str, owner: asyncio.Task[None]
) -> float:
    # A room's messages are handled one after another: the next comes when the owner is done.
    await asyncio.wait({owner})
    async with turns.running(room):
        return perf_counter()


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def one_stop() -> tuple[float, float, float]:
    turns = BackendTurns(note_cancel, provider="bench")
    began: list[float] = []
    owner = asyncio.create_task(own(turns, "room", began))
    await settle()
    after = asyncio.create_task(follow_up(turns, "room", owner))
    await settle()
    asked = perf_counter()
    turns.cancel("room")
    owner.cancel()
    returned = perf_counter()
    admitted = await after
    return returned - asked, began[0] - asked, admitted - asked


async def stops(n: int) -> list[float]:
    found = [await one_stop() for _ in range(n)]
    return [statistics.median(column) * 1e6 for column in zip(*found, strict=True)]


async def stop_many(n: int, cancel: Cancel) -> float:
    turns = BackendTurns(cancel, provider="bench")
    owners = [asyncio.create_task(own(turns, str(room), [])) for room in range(n)]
    await settle()
    gc.collect()
    asked = thread_time()
    for room, owner in enumerate(owners):
        turns.cancel(str(room))
        owner.cancel()
    await asyncio.wait(owners)
    await turns.drain()
    return (thread_time() - asked) * 1e3


async def stop_many_unanswered(n: int) -> float:
    return await stop_many(n, note_cancel)


async def stop_many_acknowledged(n: int) -> float:
    pending: list[asyncio.Future[None]] = []
    wake = asyncio.Event()

    async def cancel(_: list[float]) -> None:
        answer = asyncio.get_running_loop().create_future()
        pending.append(answer)
        wake.set()
        await answer

    async def backend() -> None:
        while True:
            await wake.wait()
            wake.clear()
            while pending:
                pending.pop().set_result(None)

    serving = asyncio.create_task(backend())
    try:
        return await stop_many(n, cancel)
    finally:
        serving.cancel()


async def finished_turns(n: int) -> float:
    turns = BackendTurns(note_cancel, provider="bench")
    found = []
    for _ in range(PIECES):
        began = thread_time()
        for _ in range(n // PIECES):
            await finished_turn(turns)
        found.append((thread_time() - began) / (n // PIECES) * 1e6)
    return statistics.median(found)


async def finished_turn(turns: BackendTurns[list[float]]) -> None:
    async def start() -> list[float]:
        return []

    async with turns.running("room"):
        await turns.started("room", start())


async def live_bytes(n: int) -> float:
    turns = BackendTurns(note_cancel, provider="bench")
    await asyncio.gather(*(asyncio.create_task(settle()) for _ in range(n)))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    owners = [asyncio.create_task(own(turns, str(room), [])) for room in range(n)]
    await settle()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for owner in owners:
        owner.cancel()
    await asyncio.wait(owners)
    await turns.drain()
    return used / n


FIGURES: dict[str, Callable[[int], Awaitable[object]]] = {
    "stops": stops,
    "many": stop_many_unanswered,
    "many_acknowledged": stop_many_acknowledged,
    "turn": finished_turns,
    "live": live_bytes,
}


def say(fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def main() -> None:
    gc.collect()
    gc.freeze()
    say({"python": platform.python_version(), "band-sdk": version("band-sdk")})
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()
        say(asyncio.run(FIGURES[order["figure"]](order["n"])))


if __name__ == "__main__":
    main()
