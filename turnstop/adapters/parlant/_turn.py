"""One customer message to an engine, from the moment it is processed to the end of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved
from ...abc import Emit, End, How, Leftover
from ...transports.aio import Aio, Bridged
from ...transports.reading import Reader
from ._account import Account
from ._engine import Engine, Posted
from ._tools import ParlantSession, owner

__all__ = ["ParlantTurn"]


@final
class ParlantTurn:
    """A message, and the tasks that the engine has made of it.

    Attributes:
        session: the session, which the room's next turn continues.
        address: the process that it is in, and the session.
        tools: what the tools are filed under that it has called.
        reader: takes the events that were read, and the news that there is something to look at.
    """

    acknowledges: ClassVar[bool] = False

    def __init__(
        self,
        aio: Aio,
        engine: Engine,
        turn_id: str,
        session: ParlantSession,
        address: str,
        poll_every: float,
    ) -> None:
        self.session = session
        self.address = address
        self.tools = f"tools of {turn_id}"
        self.reader: Reader[Sequence[Any] | Exception] = Reader()
        self._turn_id = turn_id
        self._aio = aio
        self._engine = engine
        self._poll_every = poll_every
        self._posted: Posted | None = None
        self._account = Account(0)
        self._over = False
        self._cancelled = False
        self._error: BaseException | None = None
        self._stopped = False
        self._told: set[Bridged] = set()

    @property
    def posted(self) -> Posted:
        """What the engine has taken the message for."""
        assert self._posted is not None
        return self._posted

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
        """End what has begun though nobody waits for it any more, as far as it lets itself be."""
        # The processing task first, and alone: what it has started may be its message.
        await self._aio.sweep(self._owned(self._turn_id)[:1])
        await self._aio.sweep(self._owned(self._turn_id))
        await self._aio.sweep(self._owned(self.tools))

    @property
    def works(self) -> bool:
        """Whether the engine does anything for it."""
        return bool(self._owned(self._turn_id))

    async def follow(self, emit: Emit) -> End:
        try:
            while not self._over:
                self._hear(await self.reader.receive(), emit)
            # What was said last is in the session by now.
            self._hear(await self._look(), emit)
            end = self._account.end(self._stopped, self._cancelled, self._error)
            if end.how is not How.COMPLETED:
                await self._see_it_gone()
            if end.how is How.CANCELLED and not self._stopped:
                raise BackendLost(
                    "the engine was told to stop it, and not from here: another message came into "
                    f"{self.session}, or the server ends",
                    gone=True,
                )
            return end
        finally:
            self.reader.close()

    async def _see_it_gone(self) -> None:
        """End what the engine forgets, and return when nothing works for the turn any more."""
        alive = await self._end_tasks()
        if not self._stopped:
            _expect_none(alive)
        while self.works:
            await self.reader.receive()

    async def cancel(self, sent: Callable[[], None]) -> None:
        self._stopped = True
        # Only the processing task, and once. Told twice, or what it has started before it, it says
        # "cancelled" of a message that is emitted all the same.
        await self._aio.call_unowned(self._engine.stop, self.posted)
        sent()

    async def kill(self) -> None:
        _expect_none(await self._end_tasks())
        self.reader.post(())

    async def leftovers(self) -> Sequence[Leftover]:
        return (*self._owned(self._turn_id), *self._owned(self.tools))

    async def sweep(self, leftovers: Sequence[Leftover]) -> Sequence[Leftover]:
        left = [one for one in leftovers if isinstance(one, Bridged) and one.alive]
        # Who was told is not waited for again. The processing task, told again, would lie.
        root = self.posted.root.get_name()
        told = [one for one in left if one in self._told or one.name == root]
        return [*told, *await self._aio.sweep(tuple(one for one in left if one not in told))]

    async def _end_tasks(self) -> Sequence[Bridged]:
        tasks = self._owned(self._turn_id)
        self._told.update(tasks)
        return await self._aio.sweep(tasks)

    def _owned(self, name: str) -> tuple[Bridged, ...]:
        with owner(name):
            return self._aio.owned()

    async def _look(self) -> Sequence[Any]:
        try:
            return await self._aio.call_unowned(
                self._engine.read, self.posted, self._account.offset
            )
        except BackendError:
            raise
        except Exception as error:
            raise BackendLost(
                f"the events of {self.session} cannot be read: {error!r}",
                gone=self._over and not self.works,
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
