"""One turn over the bridge whose asyncio code swallows cancellations for ever, stopped.

    python benchmarks/_bridge_refusing.py WHERE [--thread]

WHERE is what refuses: start, follow, cancel, or a child that the turn left. Prints one JSON object
when the turn is settled, and ends, which is part of the figure: asyncio alone would not.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import attrs
import trio

import turnstop
from turnstop.abc import Emit, End, How, Request
from turnstop.transports.aio import Aio, Bridged, open_aio

BUDGET = turnstop.StopBudget(cancel_within=0.5, kill_within=0.2)
KEPT: set[asyncio.Task[None]] = set()


async def refuse() -> NoReturn:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@attrs.define(eq=False)
class Refusing:
    """A backend, and its only remote turn."""

    aio: Aio
    where: str
    session: object | None = None

    async def _do(self, part: str) -> None:
        if part == self.where:
            await refuse()

    async def _open(self) -> None:
        if self.where == "child":
            KEPT.add(asyncio.get_running_loop().create_task(refuse(), name="child"))
        await self._do("start")

    async def _wait(self) -> None:
        await self._do("follow")
        await asyncio.sleep(3600)

    async def start(self, request: Request[str]) -> Refusing:
        await self.aio.call(self._open)
        return self

    async def follow(self, emit: Emit) -> End:
        await self.aio.call(self._wait)
        return End(How.COMPLETED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        await self.aio.call(self._do, "cancel")
        await self.aio.end_owned()

    async def leftovers(self) -> Sequence[Bridged]:
        return self.aio.owned()

    async def sweep(self, leftovers: Sequence[Bridged]) -> Sequence[Bridged]:
        return await self.aio.sweep(tuple(leftovers))


async def main(where: str, thread: bool) -> None:
    async with open_aio(thread=thread, close_within=0.1) as aio:
        async with turnstop.open_rooms(Refusing(aio, where), budget=BUDGET) as rooms:
            turn = rooms.turn("room", "")
            with trio.move_on_after(0.1):
                async with turn:
                    async for _ in turn:
                        pass
            settlement = turn.settlement
            assert settlement is not None
            assert settlement.asked_at is not None
    found = {
        "took": settlement.settled_at - settlement.asked_at,
        "ending": settlement.ending.value,
        "survivors": settlement.survivors,
        "cancel_within": BUDGET.cancel_within,
        "kill_within": BUDGET.kill_within,
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], "--thread" in sys.argv)
