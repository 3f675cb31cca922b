"""`open_server`: what nests in what, from the connections down to the rooms."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, final

import attrs
import trio

from .._budget import StopBudget
from .._house import Journal
from .._inbox import Feed, Inbox, Message, serve_rooms
from .._records import Statistics
from .._rooms import Rooms, open_rooms
from .._unwrap import open_private_nursery
from ..abc import Backend
from ._address import listening
from ._app import make_app
from ._connections import Connections
from ._desk import Desk
from ._hearing import Overheard
from ._routes import Front
from ._settings import Settings

__all__ = ["Server", "open_server"]


@final
@attrs.define(eq=False)
class Server:
    """A server that answers. Made by `open_server`.

    Attributes:
        url: where it is, without a slash at its end.
        rooms: the rooms that it serves.
        inbox: what serves them.
    """

    url: str
    rooms: Rooms[Any] = attrs.field(repr=False)
    inbox: Inbox = attrs.field(repr=False)

    def statistics(self) -> Statistics:
        """A snapshot of its rooms."""
        return self.rooms.statistics()


def _poster(feed: Any) -> Callable[..., Awaitable[Message | None]]:
    """A feed in memory keeps a message at once, others when they have written it."""

    async def post(room: str, content: str, *, id: str | None) -> Message | None:
        found = feed.post(room, content, id=id)
        message: Message | None = await found if inspect.isawaitable(found) else found
        return message

    return post


@asynccontextmanager
async def open_server(
    backend: Backend[Any],
    feed: Feed,
    settings: Settings,
    *,
    budget: StopBudget | None = None,
    journal: Journal | None = None,
) -> AsyncGenerator[Server, None]:
    """Serve rooms over HTTP, with a page.

    Args:
        backend: what works on turns; what an adapter's `open_*` yields.
        feed: keeps the messages. It can `post` too, as `MemoryFeed` and what `open_sqlite_feed`
            yields.
        settings: where it listens, its token, and what it allows.
        budget: the bound of each stop.
        journal: as `turnstop.open_rooms` has it. What becomes of the turns of a process that is
            gone is told in their rooms, and logged as a warning where their work may be alive.

    Raises:
        OSError: the address is taken, or is none.

    When the body is left, no more is taken, every turn is stopped and settled within the budget,
    and unfinished messages stay in the feed; whoever listens hears that; then the connections end,
    within `close_within`, whoever does not read.

    **Cancellation:** does the same, and drops the connections at once.
    """
    desk = Desk(settings, _poster(feed))
    over = trio.Event()
    # The address before any turn: one that is taken is found while nothing has begun.
    async with listening(settings) as address, open_private_nursery() as connections:
        try:
            async with open_rooms(
                backend, budget=budget, journal=journal, observers=[desk.note_recovered]
            ) as rooms:
                async with open_private_nursery() as nursery:
                    inbox = await nursery.start(_serving(rooms, desk, feed))
                    desk.open(inbox)
                    nursery.start_soon(desk.watch)
                    app = make_app(Front(desk, rooms.statistics), _version(), address.hosts)
                    serve = Connections(app, settings).serve
                    await connections.start(serve, address.listeners, over)
                    try:
                        yield Server(address.url, rooms, inbox)
                    finally:
                        desk.closing = True
                    nursery.cancel_scope.cancel()
        finally:
            # Not before the rooms have closed: whoever listens hears how their turns ended.
            desk.close()
            over.set()


def _serving(rooms: Rooms[Any], desk: Desk, feed: Feed) -> Callable[..., Awaitable[Any]]:
    settings = desk.settings
    return partial(
        serve_rooms,
        rooms,
        desk.handle,
        Overheard(feed, desk),
        at_once=settings.at_once,
        retire_after=settings.retire_after,
        observe=desk.note_control,
    )


def _version() -> str:
    try:
        return importlib.metadata.version("turnstop")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
