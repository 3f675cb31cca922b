"""Tasks that answer a peer's requests for as long as somebody listens to the peer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar, final

import trio

from .._errors import Silenced
from .._unwrap import open_private_nursery
from ..abc import Emit
from ..events import Ask
from .dialect import Incoming

__all__ = ["Numbered", "Serving", "ask_person", "decliner", "open_serving"]


class Numbered(Protocol):
    """A request of a peer: `Incoming`, or what another protocol has in its place."""

    @property
    def number(self) -> object:
        """The peer's name for it."""


Asked = TypeVar("Asked", bound=Numbered)


@final
class Serving:
    """Serves each request in a task of its own. Made by `open_serving`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: dict[object, trio.CancelScope] = {}

    def start(self, request: Asked, serve: Callable[[Asked], Awaitable[object]]) -> None:
        """Serve a request. An error of `serve` cancels the body and leaves `open_serving`."""
        # Here and not in the task: the peer may take it back before that has begun.
        scope = self._scopes[request.number] = trio.CancelScope()
        self._nursery.start_soon(self._serve, scope, request, serve)

    def withdraw(self, number: object) -> None:
        """Cancel the serving of the request with this id, if it goes on."""
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()

    async def _serve(
        self,
        scope: trio.CancelScope,
        request: Asked,
        serve: Callable[[Asked], Awaitable[object]],
    ) -> None:
        with scope:
            try:
                await serve(request)
            finally:
                self._scopes.pop(request.number, None)


@asynccontextmanager
async def open_serving() -> AsyncGenerator[Serving, None]:
    """Serve requests until the body leaves; one error leaves as itself.

    **Cancellation:** cancels what is being served. A request is to be answered on the way out,
    which never waits.
    """
    async with open_private_nursery() as nursery:
        yield Serving(nursery)
        nursery.cancel_scope.cancel()


def ask_person(
    emit: Emit,
    ask: Ask,
    to_answer: Callable[[Incoming, object], object],
    cancelled: Callable[[Incoming], object],
    silenced: Callable[[], Awaitable[object]] | None = None,
) -> Callable[[Incoming], Awaitable[None]]:
    """Serve a request by asking a person; for `Serving.start`.

    Args:
        emit: the turn's.
        ask: what the person is asked.
        to_answer: what the peer is answered after a person's reply.
        cancelled: what it is answered when nobody will reply: also when it has taken its request
            back, or the turn is over, which does it no harm.
        silenced: waited for before that, where the turn was stopped.
    """

    async def serve(request: Incoming) -> None:
        try:
            request.reply(to_answer(request, await emit.ask(ask)))
        except Silenced:
            if silenced is not None:
                await silenced()
        finally:
            request.reply(cancelled(request))

    return serve


def decliner(
    to_ask: Callable[[Incoming], Ask | None], cancelled: Callable[[Incoming], object]
) -> Callable[[Incoming], None]:
    """Make what answers a peer that nobody listens to; a notification needs nothing.

    Args:
        to_ask: what a person would be asked; None where the peer asks the client itself, which
            is refused.
        cancelled: what the peer is answered when nobody will reply.
    """

    def decline(incoming: Incoming) -> None:
        if to_ask(incoming) is None:
            incoming.refuse(f"turnstop does not serve {incoming.method}")
        else:
            incoming.reply(cancelled(incoming))

    return decline
