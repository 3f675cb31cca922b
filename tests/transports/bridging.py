"""What the tests of the bridge share: a way to open one, and asyncio code that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, TypeAlias

import attrs

from turnstop.transports.aio import Aio

Opener: TypeAlias = Callable[..., AbstractAsyncContextManager[Aio]]


async def wait_for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


@attrs.define(eq=False)
class Stubborn:
    """Swallows every cancellation until it is let go, and counts them."""

    cancelled: int = 0
    tell: Callable[[], None] = lambda: None
    let_go: asyncio.Event | None = None

    async def work(self) -> str:
        self.let_go = asyncio.Event()
        self.tell()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        return "at last"

    async def work_and_fail(self) -> NoReturn:
        raise ValueError(await self.work())

    async def release(self) -> None:
        assert self.let_go is not None
        self.let_go.set()
