"""One customer message to an engine, from the moment it is processed to the end of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import trio

from ..._errors import BackendLost, BackendMisbehaved
from ...abc import Emit, End, How, Leftover
from ...transports.aio import Aio, Bridged
from ...transports.reading import Reader
from ._account import Account
from ._engine import Engine, Posted

__all__ = ["ParlantTurn"]


@final
class ParlantTurn:
    """A message, and the tasks that the engine has made of it.

    Attributes:
        session: the id of the session, which the room's next turn continues.
        reader: takes the events that were read, and the news that there is something to look at.
    """

    def __init__(self, aio: Aio, engine: Engine, session: str, poll_every: float) -> None:
        self.session = session
        self.reader: Reader[Sequence[Any] | Exception] = Reader()
        self._aio = aio
        self._engine = engine
        self._poll_every = poll_every
        self._posted: Posted | None = None
        self._account = Account(0)
        self._over = False
        self._cancelled = False
        self._error: BaseException | None = None
        self._stopped = False

    def reveal(self, posted: Posted) -> None:
        """Say what the engine has taken the message for."""
        self._posted = posted
        self._account.offset = posted.offset + 1

    def processed(self, cancelled: bool, error: BaseException | None) -> None:
        """Say that the processing task is over, and how it ended."""
        self._over, self._cancelled, self._error = True, cancelled, error
        self.reader.post(())

    async def read(self) -> None:
        """The reader's task: looks for events now and then, for the engine tells of none."""
        try:
            while True:
                self.reader.post(await self._look())
                await trio.sleep(self._poll_every)
        except Exception as error:
            self.reader.post(error)

    async def undo(self) -> None:
        """End what has begun though nobody waits for it any more."""
        await self._aio.end_owned()

    async def follow(self, emit: Emit) -> End:
        try:
            while not self._over:
                self._hear(await self.reader.receive(), emit)
            # What was said last is in the session by now.
            self._hear(await self._look(), emit)
            end = self._account.end(self._stopped, self._cancelled, self._error)
            if end.how is not How.COMPLETED:
                await self._see_it_gone()
            return end
        finally:
            self.reader.close()

    async def _see_it_gone(self) -> None:
        """Return when nothing works for the turn any more: its end says that, too."""
        if not self._stopped:
            # The engine forgets what it has started for a turn that failed.
            _expect_none(await self._aio.sweep(self._aio.owned()))
        while self._aio.owned():
            await self.reader.receive()

    async def cancel(self, sent: Callable[[], None]) -> None:
        self._stopped = True
        sent()
        # The processing task is the oldest. Told twice, or its children before it, it would say
        # "cancelled" of a message that is emitted all the same.
        await self._aio.end_owned()
        self.reader.post(())

    async def kill(self) -> None:
        _expect_none(await self._aio.sweep(self._aio.owned()))
        self.reader.post(())

    async def leftovers(self) -> Sequence[Leftover]:
        return self._aio.owned()

    async def sweep(self, leftovers: Sequence[Leftover]) -> Sequence[Leftover]:
        return await self._aio.sweep(tuple(one for one in leftovers if isinstance(one, Bridged)))

    async def _look(self) -> Sequence[Any]:
        assert self._posted is not None
        try:
            return await self._aio.call_unowned(
                self._engine.read, self._posted, self._account.offset
            )
        except Exception as error:
            raise BackendLost(
                f"the events of session {self.session} cannot be read: {error!r}",
                gone=self._over and not self._aio.owned(),
            ) from error

    def _hear(self, item: Sequence[Any] | Exception, emit: Emit) -> None:
        if isinstance(item, Exception):
            raise item
        for event in item:
            self._account.hear(event, emit)


def _expect_none(alive: Sequence[Bridged]) -> None:
    if alive:
        names = ", ".join(map(str, alive))
        raise BackendMisbehaved(f"it refuses to end, and works on in this process: {names}")
