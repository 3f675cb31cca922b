"""Copilot by the bare SDK: `copilot_child`, in the words of the bench.

The SDK does not tell when a request has left, so there is no `sent_at`.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio
import trio.lowlevel

from ..._ending import Ending
from ..band import BandFailed, BandRunner, BandTurn, open_child
from .model import BenchFailed, Outcome

_CHILD = Path(__file__).with_name("copilot_child.py")
_ENDINGS = {"finished": Ending.FINISHED, "stopped": Ending.STOPPED, "failed": Ending.FAILED}


@attrs.frozen(eq=False)
class _Run:
    _runner: BandRunner
    _turn: BandTurn
    _offset: float

    async def asks(self) -> None:
        await self._turn.reached("asks")

    async def stop(self) -> None:
        await self._runner.stop(self._turn)

    async def settled(self) -> Outcome:
        """The end is the settlement: the SDK knows no other."""
        ended_at = await self._turn.reached("ended") + self._offset
        at = {what: when + self._offset for what, when in self._turn.at.items()}
        return Outcome(
            ending=_ENDINGS[self._turn.said["ended"]].name,
            gone=True,
            asked_at=at.get("asked"),
            acked_at=at.get("acked"),
            ended_at=ended_at,
            settled_at=ended_at,
        )

    async def admitted(self) -> float:
        return await self._turn.reached("admitted") + self._offset


class _Copilot:
    def __init__(self, runner: BandRunner) -> None:
        self._runner = runner
        self._numbers = itertools.count(1)
        self._offset = trio.current_time() - time.monotonic()

    async def begin(
        self, room: str, content: str, stop_after: float | None = None, *, grants: bool = True
    ) -> _Run:
        name = f"turn-{next(self._numbers)}"
        turn = await self._runner.start(
            room, content, turn_id=name, stop_after=stop_after, grants=grants
        )
        return _Run(self._runner, turn, self._offset)

    async def discard(self, room: str) -> None:
        """Nothing: one process serves all rooms."""
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_raw_copilot(
    command: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    provider: Mapping[str, str],
    model: str,
) -> AsyncGenerator[_Copilot, None]:
    """Run turns of Copilot by the SDK alone, which starts the program by itself."""
    given = {
        "command": list(command),
        "cwd": cwd,
        "env": dict(env),
        "provider": dict(provider),
        "model": model,
    }
    try:
        async with open_child(sys.executable, _CHILD, given) as runner:
            yield _Copilot(runner)
    except BandFailed as error:
        raise BenchFailed(str(error)) from error
