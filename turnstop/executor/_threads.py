"""Threads of tasks: waited for whatever happens, but for one that its executor leaves behind."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import attrs
import trio

__all__ = ["Threads"]

logger = logging.getLogger("turnstop.executor")

# Not Trio's own limiter: who is cancelled while it waits for a thread would begin all the same.
_UNLIMITED = math.inf


@attrs.define(eq=False)
class Threads:
    """The threads of one task.

    A cancellation does not end the wait for one, since what it writes at is claimed; only `leave`
    does, and then whoever waited is cancelled.

    Attributes:
        left: one of them was left behind.
    """

    name: str
    note_left: Callable[[], None]
    left: bool = attrs.field(default=False, init=False)
    _alive: set[object] = attrs.field(factory=set, init=False)
    _waits: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    _leaving: bool = attrs.field(default=False, init=False)

    @property
    def alive(self) -> bool:
        """Whether one of them runs."""
        return bool(self._alive)

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call it in a thread, and return what it returns."""
        if self._leaving:
            # Nobody would wait for it. Its task has left nothing behind.
            raise RuntimeError(f"the executor is closing, and begins no thread of {self.name}")
        me = object()

        def call() -> Any:
            self._alive.add(me)
            try:
                return fn(*args)
            finally:
                self._alive.discard(me)

        with trio.CancelScope(shield=True) as waiting:
            self._waits.add(waiting)
            try:
                return await trio.to_thread.run_sync(
                    call,
                    thread_name=self.name,
                    limiter=trio.CapacityLimiter(_UNLIMITED),
                    abandon_on_cancel=True,
                )
            finally:
                self._waits.discard(waiting)
        if not self.left:
            self.left = True
            logger.warning("a thread of %s has not ended, and is left behind", self.name)
            self.note_left()
        await trio.lowlevel.checkpoint()
        # Whoever waited has shielded itself.
        raise RuntimeError(f"the executor is closing, and has left a thread of {self.name} behind")

    def leave(self) -> None:
        """Wait for none of them any more."""
        self._leaving = True
        for waiting in tuple(self._waits):
            waiting.cancel()
