"""turnstop as a runner, over any backend."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import trio
import trio.lowlevel

from ... import BackendError, Rooms, Settlement, Turn, open_rooms
from ..._unwrap import open_private_nursery
from ...abc import Backend, RemoteTurn, Request
from ...events import Ask
from .model import Outcome

_YES = ("allow", "accept", "approve", "proceed", "once", "yes")


class _Noting:
    """A backend that says when its start calls leave, and is otherwise itself."""

    def __init__(self, backend: Backend[str]) -> None:
        self._backend = backend
        self.left: dict[str, trio.Event] = {}
        if forget := getattr(backend, "forget", None):
            self.forget = forget

    async def start(self, request: Request[str]) -> RemoteTurn:
        self.left[request.turn_id].set()
        return await self._backend.start(request)


@attrs.define(eq=False)
class _Run:
    _turn: Turn
    _grants: bool
    _left: trio.Event = attrs.field(factory=trio.Event)
    _asked: trio.Event = attrs.field(factory=trio.Event)
    _admitted: trio.Event = attrs.field(factory=trio.Event)
    _admitted_at: float = 0.0

    async def work(self) -> None:
        """The application: it reads until the end."""
        try:
            async with self._turn as turn:
                self._admitted_at = trio.current_time()
                self._admitted.set()
                async for event in turn:
                    if isinstance(event, Ask):
                        self._asked.set()
                        if self._grants:
                            turn.answer(event, consent(event.choices))
        except BackendError:
            pass  # Told by the settlement.

    async def asks(self) -> None:
        await self._asked.wait()

    async def stop_after_start(self, seconds: float) -> None:
        await self._left.wait()
        await trio.sleep(seconds)
        self._turn.stop()

    async def stop(self) -> None:
        self._turn.stop()

    async def settled(self) -> Outcome:
        return _outcome(await self._turn.wait_settled())

    async def admitted(self) -> float:
        await self._admitted.wait()
        return self._admitted_at


class _Ours:
    def __init__(self, rooms: Rooms[str], noting: _Noting, nursery: trio.Nursery) -> None:
        self._rooms = rooms
        self._noting = noting
        self._nursery = nursery

    async def begin(
        self, room: str, content: str, stop_after: float | None = None, *, grants: bool = True
    ) -> _Run:
        turn = self._rooms.turn(room, content)
        run = _Run(turn, grants)
        self._noting.left[turn.turn_id] = run._left
        self._nursery.start_soon(run.work)
        if stop_after is not None:
            self._nursery.start_soon(run.stop_after_start, stop_after)
        # Queued, in this order, before anything is begun after it.
        await trio.lowlevel.checkpoint()
        return run

    async def discard(self, room: str) -> None:
        with suppress(BackendError):
            await self._rooms.retire(room)


@asynccontextmanager
async def open_ours(backend: Backend[str]) -> AsyncGenerator[_Ours, None]:
    """Run turns of a backend through rooms."""
    noting = _Noting(backend)
    async with open_rooms(noting) as rooms, open_private_nursery() as nursery:
        yield _Ours(rooms, noting, nursery)
        nursery.cancel_scope.cancel()


def consent(choices: Sequence[str]) -> str:
    """The choice that lets the agent do it, this once where it may be told."""
    fits = [choice for choice in choices if any(word in choice.lower() for word in _YES)]
    return min(fits, key=lambda choice: "always" in choice.lower(), default=choices[0])


def _outcome(settlement: Settlement) -> Outcome:
    return Outcome(
        ending=settlement.ending.name,
        gone=settlement.gone,
        asked_at=settlement.asked_at,
        sent_at=settlement.sent_at,
        acked_at=settlement.acked_at,
        ended_at=settlement.ended_at,
        settled_at=settlement.settled_at,
        survivors=settlement.survivors,
    )
