"""A function of this program as a remote turn: async, or blocking in a thread of its own.

    async def agent(work):
        work.emit(Text("thinking about " + work.content))
        await trio.sleep(10)

    async with open_local(agent) as local, turnstop.open_rooms(local) as rooms:
        ...

An async function is stopped by cancelling it. A blocking one is asked to stop, and stops at its
next `work.checkpoint()`, or when the programs that it waits for are ended: those that have
`work.env` in their environment. A thread cannot be killed, so one that does neither is abandoned
when the budget is over and named in `Settlement.survivors`.

A function ends with its process, and is never taken up by another one. Programs that it has started
may go on: those that have `work.env` in their environment are ended with the turn, also by the next
process where the rooms have a journal.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final, TypeAlias, TypeVar, cast

import attrs
import trio

from turnstop.abc import Backend, Emit, End, How, RemoteTurn, Request, Silenced
from turnstop.events import Ask, Event
from turnstop.transports.owners import OwnerAddress, attach_owner, new_owner
from turnstop.transports.proctable import TableEntry

__all__ = ["Stopped", "ThreadWork", "Work", "open_local"]

logger = logging.getLogger("turnstop.adapters.local")

T = TypeVar("T")

_LOOK_EVERY: Final = 0.05


class Stopped(BaseException):
    """The turn of this thread is stopped; raised by `ThreadWork.checkpoint`.

    Not an `Exception`, so that a broad `except Exception` around a step does not swallow it.
    """


@attrs.define(eq=False)
class _Programs:
    """The programs that a function starts.

    Attributes:
        told: whether the function knows how they are told from others.
    """

    address: OwnerAddress
    told: bool = False

    @property
    def env(self) -> dict[str, str]:
        self.told = True
        return self.address.env

    async def find(self) -> list[TableEntry]:
        return await self.address.programs().find() if self.told else []

    async def end(self, leftovers: Sequence[object]) -> list[TableEntry]:
        found = [left for left in leftovers if isinstance(left, TableEntry)]
        return await self.address.programs().end(found) if found else []


@attrs.define(eq=False)
class Work:
    """What an async function is given.

    Attributes:
        room: the conversation.
        turn_id: the turn.
        content: what the application sent.
        session: what this room's last turn left here; leave something for the next.
        emit: tells the reader an event; never waits.
    """

    room: str
    turn_id: str
    content: object
    session: object | None
    emit: Emit
    _programs: _Programs

    @property
    def env(self) -> dict[str, str]:
        """Variables for a program that it starts, over this process's: they tell whose it is.

        What carries them is ended when the turn is stopped, wherever it went: in this process, or
        in the next one where this one was killed.
        """
        return self._programs.env

    async def ask(self, ask: Ask) -> object:
        """Ask a person and wait for the reply.

        Raises:
            turnstop.abc.Silenced: the turn is stopped.

        **Cancellation:** withdraws the question.
        """
        return await self.emit.ask(ask)


@attrs.define(eq=False)
class ThreadWork:
    """What a blocking function is given; its methods are called in its thread.

    Attributes:
        room: the conversation.
        turn_id: the turn.
        content: what the application sent.
        session: what this room's last turn left here; leave something for the next.
    """

    room: str
    turn_id: str
    content: object
    session: object | None
    _emit: Emit
    _token: trio.lowlevel.TrioToken
    _programs: _Programs
    _stopped: bool = attrs.field(default=False, init=False)

    @property
    def stopped(self) -> bool:
        """Whether the turn is stopped, for code that cannot be left by an exception."""
        return self._stopped

    @property
    def env(self) -> dict[str, str]:
        """As `Work.env`; what carries them is ended as soon as the turn is asked to stop."""
        return self._programs.env

    def checkpoint(self) -> None:
        """Go on, or raise `Stopped` where the turn is stopped."""
        if self._stopped:
            raise Stopped

    def emit(self, event: Event) -> None:
        """Tell the reader an event. A checkpoint."""
        self.checkpoint()
        self._call(trio.from_thread.run_sync, self._emit, event)

    def ask(self, ask: Ask) -> object:
        """Ask a person and wait for the reply. A checkpoint, also when the stop comes meanwhile."""
        self.checkpoint()
        return self._call(trio.from_thread.run, self._emit.ask, ask)

    def _call(self, run: Callable[..., object], fn: Callable[..., object], arg: object) -> object:
        try:
            return run(fn, arg, trio_token=self._token)
        except (Silenced, trio.Cancelled, trio.RunFinishedError):
            # The asker is a thread, which no Cancelled may leave: there it means "stopped".
            self._stopped = True
            raise Stopped from None


AsyncFunction: TypeAlias = Callable[[Work], Awaitable[object]]
ThreadFunction: TypeAlias = Callable[[ThreadWork], object]


@attrs.define(eq=False)
class _AsyncTurn:
    fn: AsyncFunction
    request: Request[object]
    session: object | None
    programs: _Programs
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def follow(self, emit: Emit) -> End:
        request = self.request
        work = Work(
            request.room, request.turn_id, request.content, self.session, emit, self.programs
        )
        try:
            with self._scope:
                await self.fn(work)
                return End(How.COMPLETED)
            return End(How.CANCELLED)
        except Silenced:
            # The stop reached its open question before it reached the function.
            return End(How.CANCELLED)
        except Exception as error:
            # A function that fails is over. Its own error is worth more to its reader than a
            # report of it, and kill() then shows that nothing is left.
            if self._scope.cancel_called:
                return End(How.FAILED, detail=repr(error))
            raise
        finally:
            self.session = work.session
            self._over.set()

    async def cancel(self, sent: Callable[[], None]) -> None:
        self._scope.cancel()
        sent()
        await self._over.wait()

    @property
    def kill(self) -> Callable[[], Awaitable[None]]:
        """Nothing ends a function by force; once it is over, this shows that nothing is left."""
        if not self._over.is_set():
            raise AttributeError("a function cannot be killed")
        return trio.lowlevel.checkpoint

    @property
    def address(self) -> str:
        return str(self.programs.address)

    @property
    def leftovers(self) -> Callable[[], Awaitable[Sequence[object]]]:
        """Its programs, where it was told how they are known."""
        if not self.programs.told:
            raise AttributeError("what a function starts is not known")
        return self.programs.find

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[object]:
        return await self.programs.end(leftovers)


@attrs.define(eq=False)
class _ThreadTurn:
    acknowledges: ClassVar[bool] = False
    fn: ThreadFunction
    request: Request[object]
    session: object | None
    programs: _Programs
    alive: set[_ThreadTurn]
    limiter: trio.CapacityLimiter
    _work: ThreadWork | None = attrs.field(default=None, init=False)
    _ends_programs: bool = attrs.field(default=False, init=False)

    async def follow(self, emit: Emit) -> End:
        request, token = self.request, trio.lowlevel.current_trio_token()
        work = self._work = ThreadWork(
            request.room,
            request.turn_id,
            request.content,
            self.session,
            emit,
            token,
            self.programs,
        )
        self.alive.add(self)
        try:
            return await trio.to_thread.run_sync(
                self._run, work, thread_name=str(self), abandon_on_cancel=True, limiter=self.limiter
            )
        except Exception as error:
            if work.stopped:
                return End(How.FAILED, detail=repr(error))
            raise

    def _run(self, work: ThreadWork) -> End:
        try:
            _check_result(self.fn(work))
        except Stopped:
            return End(How.CANCELLED)
        finally:
            self.session = work.session
            self.alive.discard(self)
        # One that waited for a program does not always notice that this was ended.
        return End(How.CANCELLED if self._ends_programs else How.COMPLETED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        assert self._work is not None
        self._work._stopped = True
        sent()
        while self in self.alive:
            # It may wait for one of them, and then begin the next.
            if found := await self.programs.find():
                self._ends_programs = True
                await self.programs.end(found)
            await trio.sleep(_LOOK_EVERY)

    @property
    def kill(self) -> Callable[[], Awaitable[None]]:
        """As for an async function."""
        if self in self.alive:
            raise AttributeError("a thread cannot be killed")
        return trio.lowlevel.checkpoint

    @property
    def address(self) -> str:
        return str(self.programs.address)

    async def leftovers(self) -> Sequence[object]:
        return [*([self] if self in self.alive else ()), *await self.programs.find()]

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[object]:
        # First: it may be what the thread waits for.
        programs = await self.programs.end(leftovers)
        return [*(left for left in leftovers if left in self.alive), *programs]

    def __str__(self) -> str:
        return f"thread of turn {self.request.turn_id}"


def _check_result(result: object) -> None:
    """What only makes a coroutine or a generator has done nothing: that is no finished turn."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"the function only made {result!r}: open it with thread=False")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"the function only made {result!r}: emit events, do not yield them")


def _is_async(fn: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


@attrs.define(eq=False)
class _Local:
    name: ClassVar[str] = "local"
    announces: ClassVar[bool] = True
    fn: Callable[..., object]
    thread: bool
    alive: set[_ThreadTurn] = attrs.field(factory=set)
    # Not Trio's own limiter: a turn that waits for an approval would hold one of its tokens.
    limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(math.inf))
    _owner: OwnerAddress = attrs.field(factory=new_owner, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    async def start(self, request: Request[object]) -> RemoteTurn:
        session = None if request.previous is not None else request.session
        programs = _Programs(self._owner.of_turn(next(self._numbers)))
        await request.announce(str(programs.address))
        if self.thread:
            return _ThreadTurn(self.fn, request, session, programs, self.alive, self.limiter)
        return _AsyncTurn(cast("AsyncFunction", self.fn), request, session, programs)

    async def attach(self, address: str) -> RemoteTurn:
        return attach_owner(address)


@asynccontextmanager
async def open_local(
    fn: AsyncFunction | ThreadFunction, *, thread: bool | None = None
) -> AsyncGenerator[Backend[object], None]:
    """Make a backend of a function.

    Args:
        fn: `async def fn(work: Work)`, or a blocking `def fn(work: ThreadWork)`. An exception of
            it fails the turn and is raised in the turn's block.
        thread: whether it is blocking and runs in a thread; found out by default.

    The exit logs the threads that are still running: nothing can end them.

    **Cancellation:** has no effect of its own.
    """
    if not callable(fn):
        raise TypeError(f"a local backend is a function: got {fn!r}")
    if thread is None:
        thread = not _is_async(fn)
    local = _Local(fn, thread)
    try:
        yield local
    finally:
        # Copied: a thread that ends now takes itself out.
        for turn in tuple(local.alive):
            logger.warning("%s has not ended and cannot be killed", turn)
