"""One asyncio call that a Trio task waits for, and may give up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Generic, TypeVar, final

import attrs
import trio

from ..._errors import BackendMisbehaved
from ._host import Host
from ._records import name_of, of_turn

__all__ = ["Call", "closed"]

logger = logging.getLogger("turnstop.aio")

Result = TypeVar("Result")


def closed() -> RuntimeError:
    """A new error that says what to do."""
    return RuntimeError(
        "the asyncio loop is closed: keep `async with open_aio()`, or the backend that opened it, "
        "around everything that calls it"
    )


@final
@attrs.define(eq=False)
class Call(Generic[Result]):
    """An asyncio task, and the event that its end sets.

    Attributes:
        turn_id: whose it is.
        abandoned: nobody waits for it any more, though it has not ended.
    """

    _host: Host
    _fn: Callable[..., Awaitable[Result]]
    _args: tuple[Any, ...]
    turn_id: str
    abandoned: bool = False
    _task: asyncio.Task[Result] | None = None
    _fatal: BaseException | None = None
    _unwanted: bool = False
    _over: trio.Event = attrs.field(factory=trio.Event)
    _when_over: Callable[[], None] | None = None

    @property
    def task(self) -> asyncio.Task[Result] | None:
        """The task, as soon as the loop has made it."""
        return self._task

    @property
    def over(self) -> bool:
        """Whether its task has ended."""
        return self._over.is_set()

    @property
    def name(self) -> str:
        """What it calls."""
        return name_of(self._fn)

    def start(self, context: Context) -> None:
        """Make the task, unless it is cancelled by now. On the loop's side."""
        if self._unwanted:
            self._note(None)
            return
        running: Any = self._run()
        # What asyncio's own debugging says of a step that blocks the loop names the function then.
        running.__qualname__ = self.name
        self._task = task = self._host.spawn(running, context)
        if task.done():
            self._note(task)
        else:
            task.add_done_callback(self._note)

    async def wait(self, grace: float) -> Result:
        """Return what the task returns, or raise what it raises.

        Raises:
            BackendMisbehaved: it was cancelled, and not from here.

        **Cancellation:** the task is cancelled, once. What it returns or raises within `grace`
        seconds wins; one that has not ended by then is abandoned. So with a Ctrl-C that comes
        here, over which nothing wins.
        """
        try:
            await self._over.wait()
        except (trio.Cancelled, KeyboardInterrupt) as error:
            self._unwanted = True
            self._host.run(self._cancel)
            with trio.move_on_after(grace if self._host.running else 0, shield=True):
                await self._over.wait()
            if not self.over:
                self._abandon(grace)
                raise
            if isinstance(error, KeyboardInterrupt):
                self.last_words()
                raise
            if not self._has_result:
                raise
        if self._lost:
            # Whoever opened the loop is cancelled with it, and told why.
            await trio.lowlevel.checkpoint_if_cancelled()
        return self._take()

    def when_over(self, fn: Callable[[], None]) -> None:
        """Have a function called once its task has ended."""
        self._when_over = fn
        if self.over:
            fn()

    def lose(self) -> None:
        """The loop is closed: nobody will end it."""
        self._over.set()

    def last_words(self) -> BaseException | None:
        """Of a call that nobody waits for and that has ended: what must end the program, if any."""
        task = self._task
        if self._fatal is None and task is not None and task.done() and not task.cancelled():
            # Asked for, an error is not reported as one that nobody retrieved.
            task.exception()
        return self._fatal

    @property
    def _lost(self) -> bool:
        return self._task is None or not self._task.done()

    @property
    def _has_result(self) -> bool:
        return self._task is not None and self._task.done() and not self._task.cancelled()

    async def _run(self) -> Any:
        try:
            return await self._fn(*self._args)
        except (KeyboardInterrupt, SystemExit) as error:
            # Out of a task these would kill the loop, and everybody's calls with it.
            self._fatal = error

    def _take(self) -> Result:
        if self._fatal is not None:
            raise self._fatal
        if self._task is None or self._lost:
            raise closed()
        try:
            return self._task.result()
        except asyncio.CancelledError as cause:
            raise BackendMisbehaved(
                f"{self.name} was cancelled inside the asyncio library, and nobody here asked for "
                "it: the cause of this error shows where"
            ) from cause

    def _cancel(self) -> None:
        if self._task is not None:
            # Not here: a future of somebody else's making may fail at it.
            self._task.get_loop().call_soon(self._task.cancel)

    def _note(self, _: object) -> None:
        self._host.tell(self._finish)

    def _finish(self) -> None:
        self._over.set()
        if self._when_over is not None:
            self._when_over()

    def _abandon(self, grace: float) -> None:
        self.abandoned = True
        if not self._host.running:
            return  # what ended the loop is told of elsewhere
        logger.warning(
            "%s %s has not ended %g s after it was cancelled: abandoned",
            self.name,
            of_turn(self.turn_id),
            grace,
        )
