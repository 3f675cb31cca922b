"""An adapter between the kernel and any adapter: what a saboteur does not touch passes through."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, ClassVar, TypeAlias

import attrs
import trio

from ..._budget import StopBudget
from ..._life import Life
from ..._service import open_service
from ...abc import Emit, End, Request
from ...events import Ask, Event
from .._probe import Probe

__all__ = ["Backend", "Ears", "Sabotage", "Turn", "wrap"]


def long(budget: StopBudget) -> float:
    """Seconds, more than any stop may take."""
    return 1.5 * (budget.cancel_within + 2 * budget.kill_within)


@attrs.define(eq=False, slots=False)
class Backend:
    """Any adapter's backend.

    Attributes:
        backend: the adapter's own.
        service: outlives the adapter, and starts tasks.
        around: what that is made by. Tasks of the usual one are reached by no cancellation.
        budget: the bound of each stop.
        turns: every turn that was made, oldest first.
        kind: what the turns are made of.
    """

    around: ClassVar[Callable[[], AbstractAsyncContextManager[Any]]] = open_service
    backend: Any
    service: Any
    budget: StopBudget
    kind: type[Turn] | None = None
    turns: list[Turn] = attrs.field(factory=list, init=False)

    async def start(self, request: Request[Any]) -> Turn:
        turn = (self.kind or Turn)(await self.backend.start(request), self, request)
        self.turns.append(turn)
        return turn

    @property
    def pause(self) -> float:
        """Seconds, less than a cancel may take, and enough to be told from nothing."""
        return 0.75 * self.budget.cancel_within

    async def take_up(self, address: str) -> Any:
        """Take up a turn that another process has begun, where the adapter offers that.

        **Cancellation:** as `attach`.
        """
        remote = await self.backend.attach(address)
        return (self.kind or Turn)(remote, self, Request("", "", ""))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.backend, name)
        return self.take_up if name == "attach" else found


@attrs.define(eq=False, slots=False)
class Turn:
    """Any adapter's remote turn.

    Attributes:
        remote: the adapter's own.
        home: the backend that it was started by.
        request: what that was asked.
        told: whether it was told to stop.
        over: whether its follow has come back.
        made_at: when the start was answered (Trio's clock).
        around: what the service of its home is made by.
    """

    around: ClassVar[Callable[[], AbstractAsyncContextManager[Any]]] = open_service
    remote: Any
    home: Backend
    request: Request[Any]
    told: bool = attrs.field(default=False, init=False)
    over: bool = attrs.field(default=False, init=False)
    made_at: float = attrs.field(factory=trio.current_time, init=False)

    async def follow(self, emit: Emit) -> End:
        try:
            return await self.listen(emit)
        finally:
            self.over = True

    async def listen(self, emit: Emit) -> End:
        """Follow the adapter's own turn.

        **Cancellation:** as `follow`.
        """
        end: End = await self.remote.follow(emit)
        return end

    async def cancel(self, sent: Callable[[], None]) -> None:
        self.told = True
        await self.tell(sent)

    async def tell(self, sent: Callable[[], None]) -> None:
        """Cancel the adapter's own turn.

        **Cancellation:** as `cancel`.
        """
        await self.remote.cancel(sent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.remote, name)

    @property
    def lives(self) -> bool:
        """It is neither told to stop nor over."""
        return not (self.told or self.over)

    @property
    def stopping(self) -> bool:
        """It is told to stop and not over."""
        return self.told and not self.over


Sabotage: TypeAlias = Turn | Backend
Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


@attrs.define(eq=False)
class Ears:
    """An `Emit` between an adapter and the kernel's own."""

    hear: Callable[[Event], None]
    wait: Callable[[Ask], Awaitable[object]]

    def __call__(self, event: Event) -> None:
        """Hear an event."""
        self.hear(event)

    def ask(self, ask: Ask) -> Awaitable[object]:
        """Hear a question."""
        return self.wait(ask)


def tell_unasked(life: Life) -> None:
    """Cancel a turn behind the kernel's back."""

    async def tell() -> None:
        if life._remote is not None:
            with suppress(Exception), trio.move_on_after(long(life.house.budget), shield=True):
                await life._remote.cancel(lambda: None)

    life._spawn(tell, "unasked")


def wrap(probe: Probe, kind: type[Turn] | type[Backend]) -> Probe:
    """Have a probe open its adapter with one promise removed; its levers stay what they are."""

    @asynccontextmanager
    async def open_sabotaged(honest: Opening) -> AsyncGenerator[Any, None]:
        async with kind.around() as service, honest() as backend:
            if issubclass(kind, Turn):
                yield Backend(backend, service, probe.budget, kind)
            else:
                yield kind(backend, service, probe.budget)

    # On the object, and not on its class: which levers a probe has is told by its class.
    vars(probe)["open"] = partial(open_sabotaged, probe.open)
    vars(probe)["open_again"] = partial(open_sabotaged, probe.open_again)
    return probe
