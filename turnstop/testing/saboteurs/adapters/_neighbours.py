"""Adapters whose rooms wait for each other, or that reach beyond their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio

from ....abc import Emit, End, Request
from ....events import Event
from .._saboteur import in_adapter
from .._wrap import Backend, Ears, Turn

Sent = Callable[[], None]


def _lock(home: Backend) -> trio.Lock:
    """The backend's only one."""
    lock: trio.Lock = vars(home).setdefault("lock", trio.Lock())
    return lock


@in_adapter("rooms_do_not_wait_for_each_other")
class CancelsTakeTurns(Turn):
    """One cancel at a time, over all rooms."""

    async def tell(self, sent: Sent) -> None:
        async with _lock(self.home):
            await self.remote.cancel(sent)


@in_adapter("starts_do_not_wait_for_each_other")
class StartsTakeTurns(Backend):
    """One start at a time, over all rooms."""

    async def start(self, request: Request[Any]) -> Turn:
        async with _lock(self):
            return await super().start(request)


@in_adapter("rooms_do_not_wait_for_each_other")
class StartsWaitForStops(Backend):
    """A start waits while another room's turn is being stopped."""

    async def start(self, request: Request[Any]) -> Turn:
        while any(turn.stopping for turn in self.turns):  # noqa: ASYNC110  nobody signals it
            await trio.sleep(0.05)
        return await super().start(request)


@in_adapter("rooms_do_not_wait_for_each_other", needs=("say",))
class WordsWaitForStops(Turn):
    """What the far end says is kept back while another room's turn is being stopped."""

    async def listen(self, emit: Emit) -> End:
        kept: list[Event] = []

        def hear(event: Event) -> None:
            kept.append(event)
            if not any(turn.stopping for turn in self.home.turns if turn is not self):
                while kept:
                    emit(kept.pop(0))

        end: End = await self.remote.follow(Ears(hear, emit.ask))
        return end


@in_adapter("force_stays_with_its_turn")
class KillIsOfEverybody(Turn):
    """Kill ends all that the backend works on, and is a cancel where nothing kills."""

    async def kill(self) -> None:
        for turn in self.home.turns:
            if turn.lives:
                await self._end(turn)
        if hasattr(self.remote, "kill"):
            await self.remote.kill()

    async def _end(self, turn: Turn) -> None:
        if hasattr(turn.remote, "kill"):
            await turn.remote.kill()
            return
        with suppress(Exception), trio.move_on_after(0.1):
            await turn.remote.cancel(lambda: None)


@in_adapter("leftovers_are_swept")
class SweepIsOfEverybody(Turn):
    """Sweep ends what any turn of the backend has left."""

    async def sweep(self, leftovers: Sequence[Any]) -> Sequence[Any]:
        for turn in self.home.turns:
            if turn is not self:
                await turn.remote.sweep(await turn.remote.leftovers())
        alive: Sequence[Any] = await self.remote.sweep(leftovers)
        return alive
