"""Rooms that are served from a feed in memory, whose calls are recorded and have levers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
from kernel.backend import COMPLETED, Recorder, settle

from turnstop import (
    Applied,
    Control,
    ControlKind,
    Delivery,
    Inbox,
    Message,
    Rooms,
    Settlement,
    StopBudget,
    open_rooms,
    serve_rooms,
)
from turnstop.feeds import MemoryFeed

STOP, INTERRUPT, PLAY = ControlKind.STOP, ControlKind.INTERRUPT, ControlKind.PLAY
CALLS = {"receive", "rooms", "next", "claim", "release", "acknowledge", "fail", "refuse", "applied"}
Lever = Callable[..., Awaitable[Any]]


class Tap:
    """A feed that records what it is called for.

    Attributes:
        log: the call, the room or the message or the kind of control, and the time.
        levers: by the name of a call: what is done in its place; it is given the call itself.
    """

    def __init__(self, feed: Any) -> None:
        self.feed = feed
        self.log: list[tuple[str, str, float]] = []
        self.levers: dict[str, Lever] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.feed, name)
        if name not in CALLS:
            return call

        async def tapped(*args: Any) -> Any:
            about = args[0] if args else ""
            if isinstance(about, Message):
                about = about.id
            elif isinstance(about, Control):
                about = about.kind.value
            self.log.append((name, about, trio.current_time()))
            lever = self.levers.get(name)
            return await (call(*args) if lever is None else lever(call, *args))

        tapped.__name__ = name
        return tapped

    def at(self, name: str, about: str | None = None) -> list[float]:
        return [when for call, what, when in self.log if call == name and about in (None, what)]

    def told(self, *names: str) -> list[tuple[str, str]]:
        return [(name, about) for name, about, _ in self.log if name in names]

    def slow(self, name: str, seconds: float) -> None:
        """A call takes so long, and is then what it is."""

        async def lever(call: Lever, *args: Any) -> Any:
            await trio.sleep(seconds)
            return await call(*args)

        self.levers[name] = lever

    def answer_late(self, name: str, seconds: float) -> None:
        """A call is what it is, and is answered so late."""

        async def lever(call: Lever, *args: Any) -> Any:
            found = await call(*args)
            await trio.sleep(seconds)
            return found

        self.levers[name] = lever

    def break_(self, name: str, times: float = float("inf")) -> None:
        """A call fails so many times."""
        left = times

        async def lever(call: Lever, *args: Any) -> Any:
            nonlocal left
            if left > 0:
                left -= 1
                raise OSError("the feed is broken")
            return await call(*args)

        self.levers[name] = lever


@attrs.define(eq=False, slots=False)
class World:
    """What a scenario plays in.

    Attributes:
        began, done: messages whose handler has begun, and has finished.
        live: messages whose handler has begun and not left.
        settlements: of every turn.
    """

    backend: Recorder
    feed: Tap
    rooms: Rooms[Any] = attrs.field(init=False)
    inbox: Inbox = attrs.field(init=False)
    nursery: trio.Nursery = attrs.field(init=False)
    began: list[str] = attrs.field(factory=list)
    done: list[str] = attrs.field(factory=list)
    live: list[str] = attrs.field(factory=list)
    settlements: list[Settlement] = attrs.field(factory=list)

    async def handle(self, delivery: Delivery) -> None:
        async with self.handling(delivery):
            async with delivery.turn() as turn:
                async for _ in turn:
                    pass

    @asynccontextmanager
    async def handling(self, delivery: Delivery) -> AsyncGenerator[None, None]:
        name = delivery.message.id
        self.began.append(name)
        self.live.append(name)
        try:
            yield
            self.done.append(name)
        finally:
            self.live.remove(name)

    def press(self, kind: ControlKind, room: str | None = "a", **more: Any) -> Applied:
        return self.inbox.control(Control(kind, room, **more))

    async def finish(self) -> None:
        """The newest turn finishes, and all that follows from it."""
        self.backend.remote.finish(COMPLETED)
        await settle()

    async def post(self, *ids: str, room: str = "a") -> None:
        for name in ids:
            self.feed.post(room, f"work on {name}", id=name)
        await settle()

    def left(self, room: str = "a") -> list[str]:
        return [message.id for message in self.feed.unfinished(room)]

    @property
    def failed(self) -> dict[str, str]:
        """Why messages have failed for good."""
        return {name: reason for (_, name), reason in self.feed.failed.items()}

    def requests(self) -> list[Any]:
        """What each turn's stop was, None where it had none."""
        return [one.request and one.request.kind for one in self.settlements]


@asynccontextmanager
async def serving(
    *,
    backend: Recorder | None = None,
    feed: Any = None,
    world: World | None = None,
    handle: Callable[[World, Delivery], Awaitable[object]] | None = None,
    budget: StopBudget | None = None,
    **more: Any,
) -> AsyncGenerator[World, None]:
    """Serve rooms; at the end everything is cancelled, as when a program is ended."""
    made = world or World(backend or Recorder(), feed or Tap(MemoryFeed()))
    serve_with = made.handle if handle is None else partial(handle, made)
    with trio.CancelScope() as scope:
        async with open_rooms(
            made.backend, budget=budget, observers=[made.settlements.append]
        ) as made.rooms:
            async with trio.open_nursery() as made.nursery:
                serve = partial(serve_rooms, made.rooms, serve_with, made.feed, **more)
                made.inbox = await made.nursery.start(serve)
                await settle()
                yield made
                scope.cancel()
