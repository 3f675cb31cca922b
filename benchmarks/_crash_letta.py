"""A Letta server that records, on loopback: for `crash_points.py`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from _crash_judge import Work, overlapping

from turnstop.adapters.letta import open_letta
from turnstop.testing.recording.letta import RecordingLetta
from turnstop.testing.recording.letta.served import open_served

WORDS = ["park", "park", "park", "answer"]
LONGEST = 0.5
AGENT = "agent-1"
# It ends a stream when the model's next piece comes, and lets go of the model some time later.
ENDS_AFTER, DROPS_AFTER = 0.05, 0.1
ARRIVES_AFTER = 0.02
ANSWERS_AFTER = 0.1
LOOKS_EVERY = 0.02


@asynccontextmanager
async def open_backend(url: str) -> AsyncGenerator[tuple[Any, Any], None]:
    async with open_letta(url, agent_id=AGENT) as letta:
        yield letta, lambda token, word: f"{word} {token}"


@attrs.define(eq=False)
class Far:
    """The server, as it records what it works on."""

    letta: RecordingLetta
    url: str
    exact: bool = True
    tolerance: float = 0.0
    _offset: float = attrs.field(factory=lambda: time.monotonic() - trio.current_time())

    @property
    def options(self) -> dict[str, Any]:
        return {"url": self.url}

    def works(self) -> list[Work]:
        return [
            Work(one.text.split()[1], one.began_at + self._offset, self._end(one.ended_at))
            for one in self.letta.works
            if one.began_at is not None
        ]

    def _end(self, at: float | None) -> float | None:
        return None if at is None else at + self._offset

    def early(self) -> list[str]:
        return overlapping(self.works())

    async def at_work(self) -> list[str]:
        await trio.lowlevel.checkpoint()
        return sorted({work.token for work in self.works() if work.ended is None})

    async def settled(self, token: str) -> None:
        await trio.lowlevel.checkpoint()

    async def answer(self) -> None:
        """What the model does by itself."""
        while True:
            await trio.sleep(LOOKS_EVERY)
            for work in self.letta.works:
                if work.runs and trio.current_time() > work.asked_at + ANSWERS_AFTER:
                    self.letta.say(work, "more ")
                    if work.text.startswith("answer"):
                        self.letta.end(work)


@asynccontextmanager
async def open_far(folder: Path) -> AsyncGenerator[Far, None]:
    async with trio.open_nursery() as nursery:
        letta = RecordingLetta(nursery)
        letta.ends_after, letta.drops_after = ENDS_AFTER, DROPS_AFTER
        letta.arrives_after = ARRIVES_AFTER
        async with open_served(letta) as url:
            far = Far(letta, url)
            nursery.start_soon(far.answer)
            yield far
        nursery.cancel_scope.cancel()
