"""The bare protocols as runners: what a careful client of a few lines does, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import trio
import trio.lowlevel

from ..._ending import Ending
from .model import Outcome


class Refused(Exception):
    """An error answer, or none since the program has ended."""


@attrs.define(eq=False)
class RawRun:
    """A turn; the protocol's code notes its facts.

    Attributes:
        grants: give the permissions that it asks for.
        left: set it when the start call leaves.
        asked: is set when the stop is asked for.
        pending: set it when the turn asks for a permission.
    """

    grants: bool = True
    left: trio.Event = attrs.field(factory=trio.Event)
    asked: trio.Event = attrs.field(factory=trio.Event)
    pending: trio.Event = attrs.field(factory=trio.Event)
    sent_at: float | None = None
    acked_at: float | None = None
    _asked_at: float | None = None
    _admitted_at: float = 0.0
    _admitted: trio.Event = attrs.field(factory=trio.Event)
    _outcome: Outcome | None = None
    _over: trio.Event = attrs.field(factory=trio.Event)

    async def asks(self) -> None:
        """Wait until it asks for a permission."""
        await self.pending.wait()

    async def stop(self) -> None:
        """Ask for its stop, or do nothing where it is over."""
        if self._asked_at is None and self._outcome is None:
            self._asked_at = trio.current_time()
            self.asked.set()

    async def stop_after_start(self, seconds: float) -> None:
        """The same, once the start call has left for so long."""
        await self.left.wait()
        await trio.sleep(seconds)
        await self.stop()

    async def settled(self) -> Outcome:
        """The end is the settlement: the protocols know no other."""
        await self._over.wait()
        assert self._outcome is not None
        return self._outcome

    async def admitted(self) -> float:
        """When it was begun."""
        await self._admitted.wait()
        return self._admitted_at

    def note_admitted(self) -> None:
        """The room has let it in."""
        self._admitted_at = trio.current_time()
        self._admitted.set()

    def note_sent(self) -> None:
        """The cancel request has left."""
        self.sent_at = trio.current_time()

    def note_acked(self) -> None:
        """The cancel request was answered."""
        self.acked_at = trio.current_time()

    def note_end(self, ending: Ending, at: float) -> None:
        """The protocol's own end of the turn was seen."""
        self._outcome = Outcome(
            ending=ending.name,
            gone=True,
            asked_at=self._asked_at,
            sent_at=self.sent_at,
            acked_at=self.acked_at,
            ended_at=at,
            settled_at=at,
        )
        self._over.set()


Work: TypeAlias = Callable[[RawRun, str, str], Awaitable[None]]
"""Given the run, its room and its prompt: work on it to its end, and note that."""


def _keep(room: str) -> None:
    """What is shared by all rooms stays."""


class RawRunner:
    """Turns in order in each room, by one protocol.

    Args:
        work: works on a turn.
        nursery: for the turns.
        leave: ends what is there for a room only.
    """

    def __init__(
        self, work: Work, nursery: trio.Nursery, leave: Callable[[str], None] = _keep
    ) -> None:
        self._do = work
        self._nursery = nursery
        self._leave = leave
        self._turns: defaultdict[str, trio.StrictFIFOLock] = defaultdict(trio.StrictFIFOLock)
        self._scopes: defaultdict[str, list[trio.CancelScope]] = defaultdict(list)

    async def begin(
        self, room: str, content: str, stop_after: float | None = None, *, grants: bool = True
    ) -> RawRun:
        """Queue a turn."""
        run = RawRun(grants)
        self._nursery.start_soon(self._work, run, room, content)
        if stop_after is not None:
            self._nursery.start_soon(run.stop_after_start, stop_after)
        await trio.lowlevel.checkpoint()
        return run

    async def discard(self, room: str) -> None:
        """Give its turns up, and what is there for the room only."""
        for scope in self._scopes.pop(room, ()):
            scope.cancel()
        self._leave(room)

    async def _work(self, run: RawRun, room: str, content: str) -> None:
        with trio.CancelScope() as scope:
            self._scopes[room].append(scope)
            async with self._turns[room]:
                run.note_admitted()
                try:
                    await self._do(run, room, content)
                except Refused:
                    run.note_end(Ending.FAILED, trio.current_time())
            self._scopes[room].remove(scope)
