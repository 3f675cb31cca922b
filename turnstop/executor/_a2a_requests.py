"""Requests of an A2A server that are being answered: joined, and waited for. In asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from a2a.types import a2a_pb2 as wire

__all__ = ["Answering", "Cancels"]

logger = logging.getLogger("turnstop.executor.a2a")

Answer: TypeAlias = "asyncio.Future[wire.Task | None]"
Ask: TypeAlias = "partial[Coroutine[Any, Any, wire.Task | None]]"


class Cancels:
    """What the SDK is asked to cancel: one request for each task, whoever asks meanwhile."""

    def __init__(self) -> None:
        self._asked: dict[str, Answer] = {}

    async def ask(self, task_id: str, ask: Ask, until: float) -> wire.Task | None:
        """The SDK's answer; None where there is none at `until`, of the loop's clock.

        **Cancellation:** (asyncio's) it is asked for all the same.
        """
        loop = asyncio.get_running_loop()
        while (joined := self._asked.get(task_id)) is not None and not joined.done():
            await asyncio.wait({joined}, timeout=until - loop.time())
            if not joined.done():
                # It is the second one that has waited in vain. The next one has its own.
                joined.cancel()
                return None
            # Another's error tells this one nothing.
            if not joined.cancelled() and joined.exception() is None:
                return joined.result()
        asked = self._asked[task_id] = asyncio.ensure_future(ask())
        asked.add_done_callback(partial(self._forget, task_id))
        await asyncio.wait({asked}, timeout=until - loop.time())
        return asked.result() if asked.done() and not asked.cancelled() else None

    def _forget(self, task_id: str, asked: Answer) -> None:
        if self._asked.get(task_id) is asked:
            del self._asked[task_id]
        if not asked.cancelled() and (error := asked.exception()) is not None:
            logger.debug("a cancel was answered by %r", error)

    def drop(self) -> None:
        for asked in self._asked.values():
            asked.cancel()


class Answering:
    """Messages and subscriptions that are being answered."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], str | None] = {}

    @contextmanager
    def one(self, task_id: str | None = None) -> Iterator[None]:
        """While one is answered: a message, or the subscription of a task."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[over] = task_id
        try:
            yield
        finally:
            del self._open[over]
            over.set_result(None)

    def of(self, tasks: Collection[str]) -> list[asyncio.Future[None]]:
        """All messages, whose tasks are not known, and the subscriptions of these tasks."""
        return [over for over, task in self._open.items() if task is None or task in tasks]
