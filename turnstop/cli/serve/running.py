"""A server in the foreground: it serves until it is told to end, and ends as it should."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, Protocol, final

import attrs
import trio

from ..._budget import StopBudget
from ..._unwrap import open_private_nursery
from ...feeds import MemoryFeed
from ...feeds.sqlite import open_sqlite_feed
from ...journal import Journal, open_journal
from ...server import Server, Settings, open_server
from .agents import Opener
from .descendants import kill_descendants

__all__ = ["Job", "Teller", "serve"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AFTER_KILL = 1.0
"""Seconds that are waited for what was killed to be seen as gone."""


@attrs.frozen(kw_only=True)
class Job:
    """What is served, and how.

    Attributes:
        file: where messages are kept; None: in memory.
        journal: where turns are noted; None: nowhere.
    """

    opener: Opener
    settings: Settings
    budget: StopBudget
    file: str | None
    journal: str | None


class Teller(Protocol):
    """Whoever is told how it goes. Raises nothing: nobody has to be there to hear it."""

    def serves(self, server: Server) -> None:
        """It answers now."""

    def ends(self, live: int) -> None:
        """It was told to end, with so many turns to be stopped."""

    def waits(self) -> None:
        """All had its time, and something of the agent has not ended."""

    def kills(self, processes: int) -> None:
        """It was told again, and has killed so many processes."""


@final
@attrs.define(eq=False)
class _Ending:
    """From the first signal to the last: stop, then kill, then leave.

    Attributes:
        most: seconds in which all ends that keeps within the budget.
    """

    teller: Teller
    most: float
    starting: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    told: trio.Event = attrs.field(factory=trio.Event)
    server: Server | None = None

    async def remind(self) -> None:
        await self.told.wait()
        await trio.sleep(self.most)
        self.teller.waits()

    async def watch(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if self.told.is_set():
                # A terminal that is closed says so more than once.
                if number == signal.SIGHUP:
                    continue
                await self._force(number)
            self.told.set()
            if self.server is None:
                self.starting.cancel()
                self.teller.ends(0)
            else:
                self.teller.ends(self.server.statistics().live)

    async def _force(self, number: int) -> None:
        self.teller.kills(kill_descendants())
        await trio.sleep(_AFTER_KILL)
        # Whatever is still there refuses to end; what is posted is in the file, as after a crash.
        os._exit(128 + number)


async def serve(job: Job, teller: Teller) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; then stop every turn, settle, and return.

    A second SIGINT or SIGTERM kills all processes that were started from here, and ends this one a
    second later, whatever is left. SIGHUP is left alone where it is ignored.

    Raises:
        BackendError: the agent cannot be opened.
        OSError: the address is taken.
        FeedInUse: another process serves the file.
        sqlite3.Error: a file is another program's, damaged, or cannot be written.

    **Cancellation:** as the first signal.
    """
    budget = job.budget
    most = budget.cancel_within + 2 * budget.kill_within + job.settings.close_within
    ending = _Ending(teller, most + _AFTER_KILL)
    with _hearing() as signals:
        async with open_private_nursery() as nursery:
            nursery.start_soon(ending.watch, signals)
            nursery.start_soon(ending.remind)
            with ending.starting:
                await _serve(job, ending)
            nursery.cancel_scope.cancel()


@contextmanager
def _hearing() -> Generator[AsyncIterator[int], None, None]:
    before = signal.getsignal(signal.SIGHUP)
    # Who has had it ignored, with `nohup`, wants it to stay so.
    heard = _SIGNALS if before is signal.SIG_IGN else (*_SIGNALS, signal.SIGHUP)
    # Whoever closes a terminal says so more than once: it may come while this process exits.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with trio.open_signal_receiver(*heard) as signals:
            yield signals
    except BaseException:
        signal.signal(signal.SIGHUP, before)
        raise


async def _serve(job: Job, ending: _Ending) -> None:
    async with (
        _open_feed(job.file) as feed,
        _open_journal(job.journal) as journal,
        job.opener() as backend,
        open_server(backend, feed, job.settings, budget=job.budget, journal=journal) as server,
    ):
        ending.server = server
        # What was imported stays: to look through it again and again would keep a stop waiting.
        gc.collect()
        gc.freeze()
        ending.teller.serves(server)
        await ending.told.wait()


@asynccontextmanager
async def _open_feed(file: str | None) -> AsyncGenerator[Any, None]:
    if file is None:
        yield MemoryFeed()
    else:
        async with AsyncExitStack() as stack:
            try:
                feed = await stack.enter_async_context(open_sqlite_feed(file))
            except OSError as error:
                # It may be of a file beside it, which nobody has named.
                raise OSError(error.errno, error.strerror, file) from error
            yield feed


def _open_journal(file: str | None) -> AbstractAsyncContextManager[Journal | None]:
    return nullcontext() if file is None else open_journal(file)
