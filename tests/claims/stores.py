"""Stores that do what real ones do on bad days."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from turnstop.claims import ClaimLapsed, MemoryStore


class Moody:
    """A store that fails, or hangs, where it is told to."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.asked: list[str] = []
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        # What was asked is done, and the answer gets lost.
        self.mute: set[str] = set()
        # It says by an error that there is no such lease.
        self.denying: set[str] = set()
        # Seconds until what was asked is answered.
        self.slow: dict[str, float] = {}

    async def _do(self, name: str, *args: Any) -> Any:
        self.asked.append(name)
        if name in self.failing:
            await trio.lowlevel.checkpoint()
            raise OSError("no route to the store")
        if name in self.denying:
            await trio.lowlevel.checkpoint()
            raise ClaimLapsed(1, "a")
        if name in self.hanging:
            await trio.sleep_forever()
        found = await getattr(self.inner, name)(*args)
        if name in self.mute:
            await trio.sleep_forever()
        await trio.sleep(self.slow.get(name, 0))
        return found

    async def acquire(self, wanted: Any) -> int:
        return await self._do("acquire", wanted)

    async def renew(self, lease: str, ttl: float) -> bool:
        return await self._do("renew", lease, ttl)

    async def release(self, lease: str) -> None:
        await self._do("release", lease)

    async def check(self, token: int, scope: str) -> bool:
        return await self._do("check", token, scope)

    async def write(self, token: int, scope: str, fn: Callable[[], Any]) -> Any:
        return await self._do("write", token, scope, fn)
