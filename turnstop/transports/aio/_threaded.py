"""A loop in a thread of its own: asyncio's, untouched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, final

import attrs
import outcome
import trio

from ._filing import Filing, Task
from ._forsaking import forsake
from ._host import EAGER, Doorway
from ._threads import Threads

__all__ = ["ThreadedLoop"]


@final
@attrs.define(eq=False)
class ThreadedLoop:
    """A loop that `serve` has run elsewhere. See `Host`."""

    _doorway: Doorway
    filing: Filing = attrs.field(factory=Filing)
    ready: trio.Event = attrs.field(factory=trio.Event)
    over: trio.Event = attrs.field(factory=trio.Event)
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.SelectorEventLoop)

    @property
    def running(self) -> bool:
        return self._loop.is_running()

    def spawn(self, coro: Coroutine[Any, Any, Any], context: Context) -> Task:
        options = {"eager_start": True} if EAGER else {}
        return self.filing.make(self._loop, coro, context=context, **options)

    def run(self, fn: Callable[..., object], *args: Any) -> None:
        # It may have ended of itself, and that is on its way here.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(fn, *args)

    def tell(self, fn: Callable[..., object], *args: Any) -> None:
        self._doorway.tell(fn, *args)

    async def serve(self) -> None:
        """Start the thread, and wait for its end.

        **Cancellation:** the loop is closed as soon as nothing blocks it, and nobody waits for
        that. Its thread keeps no program from ending.
        """
        trio.lowlevel.start_thread_soon(self._main, self._bury, name="turnstop asyncio")
        try:
            await self.over.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Have the loop closed, when whatever blocks it has let go of it."""
        self.run(type(self._loop).stop, self._loop)

    def _main(self) -> None:
        loop = self._loop
        loop.set_task_factory(self.filing.make)  # type: ignore[arg-type]
        loop.set_default_executor(Threads(self.filing))
        loop.stop = self._doorway.refuse_stop  # type: ignore[method-assign]
        loop.default_exception_handler = self._doorway.report  # type: ignore[method-assign]
        loop.call_soon(self.tell, self.ready.set)
        try:
            loop.run_forever()
        except BaseException as error:
            # Not behind what its tasks do at their end, which may block for ever.
            self.tell(self._doorway.fatal, error)
        finally:
            asyncio._set_running_loop(loop)
            try:
                forsake(loop)
            finally:
                asyncio._set_running_loop(None)
                loop.close()

    def _bury(self, result: outcome.Outcome[None]) -> None:
        if isinstance(result, outcome.Error):
            self.tell(self._doorway.fatal, result.error)
        self.tell(self.over.set)
