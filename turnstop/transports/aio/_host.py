"""A loop, whoever runs it: how code gets onto its side, and back."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, Protocol

import attrs
import trio

from ._filing import Filing, Task

__all__ = ["EAGER", "Doorway", "Host"]

logger = logging.getLogger("turnstop.aio")

EAGER: Final = sys.version_info >= (3, 12)
"""Whether a task may take its first step at once."""


class Host(Protocol):
    """What a loop is to the rest of the bridge.

    Attributes:
        ready: it may be used.
        over: it is closed.
    """

    ready: trio.Event
    over: trio.Event

    @property
    def filing(self) -> Filing:
        """Its tasks."""

    @property
    def running(self) -> bool:
        """Whether it still runs callbacks."""

    async def serve(self) -> None:
        """Run it until it is closed."""

    def spawn(self, coro: Coroutine[Any, Any, Any], context: Context) -> Task:
        """Start a task in this context. On the loop's side."""

    def run(self, fn: Callable[..., object], *args: Any) -> None:
        """Have a function run on the loop's side, soon, in the order of asking.

        Never, where the loop has ended.
        """

    def tell(self, fn: Callable[..., object], *args: Any) -> None:
        """Have a function run in Trio's thread, soon; from any side and thread."""


@attrs.define(eq=False)
class Doorway:
    """The way into Trio's thread, and a loop's unclaimed errors.

    Attributes:
        fatal: told what must end the program, in Trio's thread.
        errors: how many errors had nobody to go to.
    """

    fatal: Callable[[BaseException], None]
    errors: int = 0
    _token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    _thread: int = attrs.field(factory=threading.get_ident)

    def tell(self, fn: Callable[..., object], *args: Any) -> None:
        """Run a function in Trio's thread: now where this is it, and never once Trio is over."""
        if threading.get_ident() == self._thread:
            fn(*args)
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(fn, *args)

    def refuse_stop(self) -> None:
        """Not stop the loop. In the place of a loop's `stop`, which is not a library's to call."""
        self.errors += 1
        logger.error("asyncio code has told the loop to stop, which others use: it goes on")

    def report(self, context: dict[str, Any]) -> None:
        """Log an error that nobody awaits. A loop's default exception handler.

        Left to trio_asyncio, it would cancel everybody who uses the loop; and so it is where a
        library's own handler passes the error on to the loop's, or fails.
        """
        error = context.get("exception")
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return  # it ended the loop already, and with that the program
        self.errors += 1
        logger.error(
            "unhandled in asyncio code, and nobody awaits it: %s",
            context.get("message") or error,
            exc_info=error,
        )
