"""Connections that are brought back when they are needed again, a few times a minute and no more.

One connection serves everybody (`open_restarting`), or each is somebody's own and comes with the
first who needs it (`open_restartings`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from typing import Generic, Protocol, TypeVar, final

import attrs
import trio

from .._errors import BackendError, BackendLost
from .._service import Service, open_service

__all__ = [
    "RestartRule",
    "Restarting",
    "Restartings",
    "open_restarting",
    "open_restartings",
]


class Restartable(Protocol):
    """What is brought back: it says when it is of no use any more, and why."""

    @property
    def broken(self) -> trio.Event:
        """Set once, when it can no longer be used."""

    def loss(self) -> BackendLost:
        """A new error that says why."""


T = TypeVar("T", bound=Restartable)


@attrs.frozen
class RestartRule:
    """How often a connection is brought back.

    Attributes:
        limit: restarts within `window`; the first start is none.
        window: seconds.
        backoff: seconds before the second restart within the window; doubled for each further
            one. The first comes at once.
    """

    limit: int = 3
    window: float = 60.0
    backoff: float = 0.25


@attrs.define(eq=False)
class _Life(Generic[T]):
    delay: float
    ready: trio.Event = attrs.field(factory=trio.Event)
    over: trio.Event = attrs.field(factory=trio.Event)
    connection: T | None = None
    error: BackendError | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def connection_in_use(self) -> T | None:
        unusable = self.connection is None or self.connection.broken.is_set()
        return None if unusable or self.scope.cancel_called else self.connection


@final
class Restarting(Generic[T]):
    """Hands out the one live connection. Made by `open_restarting`, or `Restartings.add`."""

    def __init__(
        self,
        service: Service,
        connect: Callable[[], AbstractAsyncContextManager[T]],
        rule: RestartRule,
    ) -> None:
        self._service = service
        self._connect = connect
        self._rule = rule
        self._life: _Life[T] | None = None
        self._last: BackendError | None = None
        self._restarts: deque[float] = deque()

    @property
    def current(self) -> T | None:
        """The connection that is in use, or None."""
        return None if self._life is None else self._life.connection

    async def get(self) -> T:
        """Return the live connection; start one where there is none.

        Raises:
            BackendRefused: the program is missing.
            BackendLost: it was lost too often lately.

        **Cancellation:** a start that has begun goes on, for the next who asks.
        """
        while True:
            life = self._life or self._begin()
            await life.ready.wait()
            if life.error is not None and not isinstance(life.error, BackendLost):
                raise type(life.error)(*life.error.args)
            if (connection := life.connection_in_use) is not None:
                return connection
            # Only when the old one is gone for certain may a new one take its place.
            await life.over.wait()

    async def end(self) -> None:
        """End the connection, where there is one, and return when it is gone.

        That was no loss: whoever asks next gets a new one at once.

        **Cancellation:** it is ended all the same.
        """
        life = self._life
        if life is None:
            await trio.lowlevel.checkpoint()
            return
        self.end_soon()
        await life.over.wait()

    def end_soon(self) -> None:
        """End the connection as `end` does, and do not wait for that."""
        if self._life is not None:
            self._life.scope.cancel()

    def _begin(self) -> _Life[T]:
        # Nothing was lost yet: this is the first start, which is no restart.
        life = _Life[T](0.0 if self._last is None else self._admit())
        # It is nobody's: not even the turn's that happens to be the first to need it.
        Context().run(self._service.start_soon, self._live, life)
        self._life = life
        return life

    def _admit(self) -> float:
        now = trio.current_time()
        while self._restarts and self._restarts[0] <= now - self._rule.window:
            self._restarts.popleft()
        count = len(self._restarts)
        if count >= self._rule.limit:
            raise self._too_often(self._restarts[0] + self._rule.window - now)
        self._restarts.append(now)
        return self._rule.backoff * 2 ** (count - 1) if count else 0.0

    def _too_often(self, seconds: float) -> BackendLost:
        gone = not isinstance(self._last, BackendLost) or self._last.gone
        error = BackendLost(
            f"lost {self._rule.limit + 1} times within {self._rule.window:g} s, and not started "
            f"again for the next {seconds:.0f} s; the last time: {self._last}",
            gone=gone,
        )
        error.__cause__ = self._last
        return error

    async def _live(self, life: _Life[T]) -> None:
        try:
            with life.scope:
                await trio.sleep(life.delay)
                async with self._connect() as connection:
                    life.connection = connection
                    life.ready.set()
                    await connection.broken.wait()
            self._last = None if life.scope.cancelled_caught else connection.loss()
        except* BackendError as group:
            # Together with a cancellation that it met in one step, it leaves as a group.
            self._last = life.error = _first(group)
        finally:
            life.ready.set()
            life.over.set()
            self._life = None


def _first(group: BaseExceptionGroup[BackendError]) -> BackendError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


@asynccontextmanager
async def open_restarting(
    connect: Callable[[], AbstractAsyncContextManager[T]], rule: RestartRule | None = None
) -> AsyncGenerator[Restarting[T], None]:
    """Keep one connection at a time, opened by `connect` when somebody asks for it.

    **Cancellation:** reaches the connection only after the body has left.
    """
    async with open_service() as service:
        yield Restarting(service, connect, rule or RestartRule())


@final
class Restartings:
    """Where connections of their own live. Made by `open_restartings`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add(
        self,
        connect: Callable[[], AbstractAsyncContextManager[T]],
        rule: RestartRule | None = None,
    ) -> Restarting[T]:
        """One more, opened by `connect` when somebody asks for it; gone, it leaves nothing here."""
        return Restarting(self._service, connect, rule or RestartRule())


@asynccontextmanager
async def open_restartings() -> AsyncGenerator[Restartings, None]:
    """Keep any number of connections, each brought back for itself.

    **Cancellation:** reaches them only after the body has left, and all of them at once.
    """
    async with open_service() as service:
        yield Restartings(service)
