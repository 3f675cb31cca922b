"""`open_aio`: the owner of a loop, and the way to it."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, final

import trio
from trio.lowlevel import enable_ki_protection

from ..._service import open_service
from ..._unwrap import open_private_nursery, reraise
from ...abc import current_turn
from ..distribution import check_distribution
from ._call import Call, closed
from ._filing import NOBODY, Filed, tasks_of
from ._host import Doorway, Host
from ._iterating import Iteration
from ._jobs import Job
from ._joining import close_generators, end_tasks
from ._nesting import descends, encloses
from ._records import AioStatistics, Bridged, describe, name_of, of_turn

__all__ = ["Aio", "open_aio"]

logger = logging.getLogger("turnstop.aio")

_LOOK_EVERY = 0.01
_NAMED = 10

Args = TypeVarTuple("Args")
Result = TypeVar("Result")
Item = TypeVar("Item")


@final
class Aio:
    """Calls asyncio code from Trio tasks. Made by `open_aio`."""

    def __init__(self, host: Host, doorway: Doorway, nursery: trio.Nursery, grace: float) -> None:
        self._host = host
        self._doorway = doorway
        self._nursery = nursery
        self._grace = grace
        self._calls: dict[Call[Any], None] = {}
        self._abandoned: dict[Call[Any], None] = {}
        self._closed = False
        self._closing = trio.CancelScope(shield=True)

    async def call(self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """Run an asyncio-flavoured async function, and return what it returns.

        Its task, and every task that comes of it, is filed under the current turn. On Python 3.12
        and newer it takes its first step at once.

        Raises:
            BackendMisbehaved: the function was cancelled, and not from here.
            RuntimeError: the loop is closed.
            BaseException: whatever the function raises, as the same object.

        **Cancellation:** before the call has begun, it never does. After that its task is
        cancelled once, and has the grace that `open_aio` was given. What it returns within that
        is returned, though the call was cancelled: this is the only place where a value answers a
        cancellation, since it may be the only handle on something remote. Trio delivers the
        cancellation again at the next checkpoint. A task that has not ended by then is abandoned:
        it is logged and counted, stays in `owned` of its turn, and ends with the loop at the
        latest.

        A function of Trio's flavour, or of its own, is none for this loop: what comes of it is an
        error that speaks of something else.
        """
        return await self._call(current_turn.get(NOBODY), copy_context(), fn, args)

    async def call_unowned(self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """Like `call`, for what belongs to no turn: a connection, a session, a reader.

        **Cancellation:** as with `call`.
        """
        context = copy_context()
        context.run(current_turn.set, NOBODY)
        return await self._call(NOBODY, context, fn, args)

    async def _call(
        self, turn_id: str, context: Context, fn: Callable[..., Awaitable[Result]], args: Any
    ) -> Result:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not (self._host.running or self._closed):
            # Whoever opened a loop that has ended by itself is cancelled, and told why.
            await self._host.over.wait()
            await trio.lowlevel.checkpoint()
        self._check_open()
        call = Call(self._host, fn, args, turn_id)
        self._calls[call] = None
        try:
            self._host.run(call.start, context)
            return await call.wait(self._grace)
        finally:
            del self._calls[call]
            if call.abandoned:
                self._keep(call)

    def _keep(self, call: Call[Any]) -> None:
        self._abandoned[call] = None
        call.when_over(partial(self._let_go, call))

    def _let_go(self, call: Call[Any]) -> None:
        self._abandoned.pop(call, None)
        if (error := call.last_words()) is not None:
            self._doorway.fatal(error)

    @asynccontextmanager
    async def iterate(
        self, fn: Callable[[*Args], AsyncIterable[Item]], *args: *Args
    ) -> AsyncGenerator[AsyncIterator[Item], None]:
        """Read an asyncio-flavoured async iterable, such as the generator that `fn` returns.

        A task on the loop reads it, some way ahead, and closes it at the end; it is filed like a
        `call`. What it raises is raised by the `async for`, behind everything that came before; and
        what it raises when it is closed, by the end of the block.

        **Cancellation:** the reading task is ended as a `call` is. What was not read is lost.
        """
        iteration = Iteration(self._host, fn, args)
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._pump, iteration, name_of(fn))
            yield iteration
            iteration.close()
            nursery.cancel_scope.cancel()
        iteration.check_end()

    async def _pump(self, iteration: Iteration[Any], name: str) -> None:
        async def pump() -> None:
            await iteration.pump()

        pump.__qualname__ = name
        try:
            await self.call(pump)
        except Exception as error:
            iteration.end(error)
        else:
            iteration.end(None)

    def post(self, fn: Callable[[*Args], object], *args: *Args) -> None:
        """Have a plain function run in Trio's thread: how a library's callbacks tell Trio.

        Never waits, from any thread. Where the loop is in Trio's thread, it runs at once.
        """
        self._doorway.tell(fn, *args)

    def owned(self) -> tuple[Bridged, ...]:
        """What the current turn has left on the loop, or in a thread of it, the oldest first.

        Not the tasks of its calls that somebody waits for. None, where there is no current turn.
        """
        turn_id = current_turn.get(NOBODY)
        return tuple(self._describe(one, turn_id) for one in self._left_by(turn_id))

    def _describe(self, one: Filed, turn_id: str) -> Bridged:
        names = {call.task: call.name for call in (*self._calls, *self._abandoned)}
        return describe(one, turn_id, None if isinstance(one, Job) else names.get(one))

    def _left_by(self, turn_id: str) -> list[Filed]:
        if not turn_id:
            return []
        waited_for = {call.task for call in self._calls}
        return [one for one in self._host.filing.alive(turn_id) if one not in waited_for]

    def find(self, matches: Callable[[Any], bool]) -> tuple[Bridged, ...]:
        """Tasks of no turn whose coroutine object `matches` knows; the oldest first.

        For work that a turn has begun by way of a server in the same process: its context is the
        server's, and only what the coroutine holds tells whose it is.
        """
        unowned = tasks_of(self._host.filing.alive(NOBODY))
        return tuple(describe(task, NOBODY) for task in unowned if matches(task.get_coro()))

    async def end_owned(self) -> None:
        """End what the current turn has left on the loop: each is cancelled once, and joined.

        The oldest goes first, and alone: what it has to finish, it finishes while those that it
        has started still work for it. New ones are ended too. A thread cannot be ended, and is not
        waited for. For a remote turn's `cancel`.

        **Cancellation:** it waits no longer. Those which were not reached stay.
        """
        turn_id = current_turn.get(NOBODY)
        await trio.lowlevel.checkpoint_if_cancelled()
        while tasks := tasks_of(self._left_by(turn_id)):
            await end_tasks(self._host, tasks[:1])
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def sweep(self, tasks: tuple[Bridged, ...]) -> tuple[Bridged, ...]:
        """Cancel these tasks, all at once, and return what is alive after half the grace.

        For a remote turn's `sweep`, of what its `leftovers` found by `owned`. Half, since what
        refuses has mostly been cancelled before, and a settlement waits for this.

        **Cancellation:** they are cancelled all the same.
        """
        with trio.move_on_after(self._grace / 2):
            await end_tasks(self._host, tasks_of(one._filed for one in tasks))
            while any(one.alive for one in tasks):  # noqa: ASYNC110 - a thread gives no event
                await trio.sleep(_LOOK_EVERY)
        return tuple(one for one in tasks if one.alive)

    def check_nesting(self) -> None:
        """Raise RuntimeError where the loop closes before what this task opens now, or has closed.

        For a backend's `check_nesting`.
        """
        self._check_open()
        here = trio.lowlevel.current_task()
        if not encloses(self._nursery, here):
            owner = self._nursery.parent_task
            stands = "inside the nursery in which this task runs"
            if not descends(here, owner):
                stands = f"in {owner.name}, another task of a nursery around this one"
            raise RuntimeError(
                "the backend's asyncio loop would close before these rooms: its `async with "
                f"open_...()` stands {stands}. Move it out, around that nursery, or open both in "
                "one task, the backend first"
            )

    def statistics(self) -> AioStatistics:
        """A snapshot of the bridge."""
        filing = self._host.filing
        return AioStatistics(
            tasks=len(filing.all_tasks()),
            threads=len(filing.all_alive()) - len(filing.all_tasks()),
            calls=len(self._calls),
            turns=filing.count_turns(),
            abandoned=len(self._abandoned),
            errors=self._doorway.errors,
        )

    def _check_open(self) -> None:
        if self._closed or not self._host.running:
            raise closed()

    async def _close(self, within: float) -> None:
        # Everything that was opened inside has left: what is still here is nobody's any more.
        self._closed = True
        if left := [(turn_id, one) for turn_id, one in self._alive_at_last() if turn_id]:
            logger.warning(
                "turns have left something, which leftovers() of a remote turn can tell of by "
                "owned(): %s",
                self._name_some(left),
            )
        self._closing.deadline = trio.current_time() + within
        with self._closing:
            await self._end_all()
            await self._end_generators()
            await self._end_all()
        if left := self._alive_at_last():
            logger.warning(
                "left behind, with the loop closed, for it does not end: %s", self._name_some(left)
            )

    async def _end_all(self) -> None:
        while self._host.running and (tasks := self._host.filing.all_tasks()):
            await end_tasks(self._host, tasks)

    async def _end_generators(self) -> None:
        context = copy_context()
        context.run(current_turn.set, NOBODY)
        call = Call(self._host, close_generators, (), NOBODY)
        ended = trio.Event()
        call.when_over(ended.set)
        self._host.run(call.start, context)
        await ended.wait()
        if (error := call.last_words()) is not None:
            self._doorway.fatal(error)

    # Ctrl-C in the middle of a loop's opening or its end would leave one that nobody stops.
    @enable_ki_protection
    async def _serve(self) -> None:
        try:
            await self._host.serve()
        finally:
            # Who is outside, or shielded, may still wait, for what nobody will run any more.
            for call in self._calls:
                call.lose()
            self._closing.cancel()

    def _alive_at_last(self) -> list[tuple[str, Filed]]:
        # Where the loop has ended by itself, nothing could end; and why is told of elsewhere.
        return self._host.filing.all_alive() if self._host.running else []

    def _name_some(self, found: list[tuple[str, Filed]]) -> str:
        names = [
            f"{self._describe(one, turn_id)} {of_turn(turn_id)}" for turn_id, one in found[:_NAMED]
        ]
        return "; ".join(names) + (f"; {more} more" if (more := len(found) - _NAMED) > 0 else "")


def _note_late_exit(error: BaseException) -> None:
    logger.warning("asyncio code that was left behind has raised %r, which ends nothing", error)


def _host_of(thread: bool) -> Callable[[Doorway], Any]:
    if thread:
        from ._threaded import ThreadedLoop

        return ThreadedLoop
    if sys.version_info >= (3, 14):
        raise ImportError(
            "trio-asyncio does not run on Python 3.14: take open_aio(thread=True), or Python 3.13"
        )
    check_distribution("trio-asyncio", "0.16", extra="aio", needed_by="open_aio")
    from ._hosted import HostedLoop

    return HostedLoop


@asynccontextmanager
@enable_ki_protection
async def open_aio(
    *, thread: bool = False, grace: float = 0.1, close_within: float = 1.0
) -> AsyncGenerator[Aio, None]:
    """Open an asyncio loop for Trio tasks to call.

    Args:
        thread: run it in a thread of its own, by asyncio itself. Each call costs more, each step
            of asyncio code much less, and code that blocks the loop does not block Trio. The only
            way on Python 3.14.
        grace: seconds that a cancelled asyncio task has to end, before nobody waits for it.
        close_within: seconds that the exit waits for tasks to end.

    Raises:
        ImportError: trio-asyncio is missing, too old, or does not run on this Python.

    **Cancellation:** reaches the loop when the body has left. The exit is bounded: a task that
    does not end is logged and left behind, and so is a thread that blocks.
    """
    make_host = _host_of(thread)
    async with open_private_nursery() as nursery:

        async def die(error: BaseException) -> None:
            reraise(error)

        doorway = Doorway(lambda error: nursery.start_soon(die, error))
        host = make_host(doorway)
        aio = Aio(host, doorway, nursery, grace)
        async with open_service() as service:
            service.start_soon(aio._serve, name="turnstop asyncio loop")
            try:
                await host.ready.wait()
                yield aio
            finally:
                try:
                    await aio._close(close_within)
                    host.close()
                    with trio.move_on_after(close_within, shield=True) as closing:
                        await host.over.wait()
                    if closing.cancelled_caught:
                        with_it = ", with its thread" if thread else ""
                        logger.warning("the asyncio loop is blocked: left behind%s", with_it)
                finally:
                    # Of one that was left behind, nobody is there to be told.
                    doorway.fatal = _note_late_exit
        nursery.cancel_scope.cancel()
