"""The real server of a2a-sdk: for `crash_points.py`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from _crash_judge import Work, overlapping

from turnstop.adapters.a2a import open_a2a
from turnstop.lab.a2a import A2AServer, open_a2a_server

WORDS = ["park", "park", "park", "late", "stream", "answer"]
LONGEST = 0.4
ORDERS = {"late": "seconds=0.1", "stream": "seconds=0.05 count=4"}


@asynccontextmanager
async def open_backend(url: str) -> AsyncGenerator[tuple[Any, Any], None]:
    async with open_a2a(url) as agent:
        yield agent, lambda token, word: f"{word} token={token} {ORDERS.get(word, '')}".strip()


@attrs.define(eq=False)
class Far:
    """The server, as its executor tells."""

    server: A2AServer
    exact: bool = True
    tolerance: float = 0.0
    _offset: float = attrs.field(factory=lambda: time.monotonic() - trio.current_time())

    @property
    def options(self) -> dict[str, Any]:
        return {"url": self.server.url}

    def works(self) -> list[Work]:
        return [
            Work(token, one.began_at + self._offset, one.ended_at and one.ended_at + self._offset)
            for token, works in self.server._work.items()
            for one in works
        ]

    def early(self) -> list[str]:
        return overlapping(self.works())

    async def at_work(self) -> list[str]:
        await trio.lowlevel.checkpoint()
        return sorted({work.token for work in self.works() if work.ended is None})

    async def settled(self, token: str) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_far(folder: Path) -> AsyncGenerator[Far, None]:
    async with open_a2a_server() as server:
        yield Far(server)
