"""The asyncio peer as a runner: `turnstop.cli.band`, in the words of the bench."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio
import trio.lowlevel

from ..._ending import Ending
from ..band import BandAbsent, BandFailed, BandRunner, BandTurn, find_band_python, open_band
from .model import BenchFailed, Missing, Outcome

_ENDINGS = {
    "completed": Ending.FINISHED,
    "interrupted": Ending.STOPPED,
    "failed": Ending.FAILED,
    "TASK_STATE_COMPLETED": Ending.FINISHED,
    "TASK_STATE_CANCELED": Ending.STOPPED,
    "TASK_STATE_FAILED": Ending.FAILED,
}
_NO_END = "SETTLED"
"""The peer called the turn settled, and no end of it was seen."""


@attrs.frozen(eq=False)
class _Run:
    _runner: BandRunner
    _turn: BandTurn
    _offset: float

    async def asks(self) -> None:
        """Never: the peer answers its agents by itself."""
        await trio.sleep_forever()

    async def stop(self) -> None:
        await self._runner.stop(self._turn)

    async def settled(self) -> Outcome:
        """The peer says no more than that the next turn may come in: it takes the work for gone."""
        settled_at = await self._turn.reached("settled")
        # A stream of the peer may also end in no state, or in one that is no end.
        ending = _ENDINGS.get(self._turn.said.get("ended", ""))
        at = {what: when + self._offset for what, when in self._turn.at.items()}
        return Outcome(
            ending=_NO_END if ending is None else ending.name,
            gone=True,
            asked_at=at.get("asked"),
            sent_at=at.get("told"),
            acked_at=at.get("acked"),
            ended_at=at.get("ended"),
            settled_at=settled_at + self._offset,
        )

    async def admitted(self) -> float:
        return await self._turn.reached("admitted") + self._offset


class _Band:
    def __init__(self, runner: BandRunner) -> None:
        self._runner = runner
        self._numbers = itertools.count(1)
        self._offset = trio.current_time() - time.monotonic()

    async def begin(
        self, room: str, content: str, stop_after: float | None = None, *, grants: bool = True
    ) -> _Run:
        name = f"turn-{next(self._numbers)}"
        turn = await self._runner.start(room, content, turn_id=name, stop_after=stop_after)
        return _Run(self._runner, turn, self._offset)

    async def discard(self, room: str) -> None:
        """Nothing: it is one process, and the peer's own."""
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_band_runner(python: str | None, **backend: object) -> AsyncGenerator[_Band, None]:
    """Run turns of a backend in the peer's own process."""
    try:
        found = find_band_python(python)
    except BandAbsent as error:
        raise Missing(str(error)) from None
    try:
        async with open_band(found, **backend) as runner:
            yield _Band(runner)
    except BandFailed as error:
        raise BenchFailed(str(error)) from error
