"""One stream of server-sent events for many listeners, taken up again where it breaks.

What the server says while a stream is broken is missed, and nothing on the wire shows it. So every
listener is handed a `Gap` once the next stream is there: whoever hears one asks the server how
things stand. The stream is opened first and the asking comes second, so that nothing falls between.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeAlias, TypeVar, final

import attrs
import trio

from .._errors import BackendError, BackendLost, BackendMisbehaved
from .._service import open_service
from .._unwrap import open_private_nursery
from .backlog import MAX_UNREAD, Backlog
from .sse import EventParser, ServerEvent

__all__ = ["EventStream", "Gap", "Listener", "Patience", "open_event_stream"]

Item = TypeVar("Item")
Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncIterable[bytes]]]
Sort: TypeAlias = Callable[[ServerEvent], tuple[Iterable[str], Item]]


@attrs.frozen
class Gap:
    """Some of what was said was missed: the stream was broken and is back, or nobody read it."""


@attrs.frozen
class Patience:
    """How a broken stream is taken up again. All in seconds.

    Attributes:
        first: the pause before the first attempt; doubled for each further one, up to `longest`.
        longest: the longest pause; a stream that has spoken for as long is a good one, and patience
            begins anew.
        total: how long a stream may stay broken and yet be tried once more.
        silence: how long a stream may be silent, or take to open, before it is taken for broken;
            a server that has nothing to say sends a heartbeat.
    """

    first: float = 0.02
    longest: float = 1.0
    total: float = 10.0
    silence: float = 30.0


@final
class Listener(Generic[Item]):
    """What is said about some keys, in order. Made by `EventStream.listen`."""

    def __init__(self, stream: EventStream[Item], key: str) -> None:
        self._stream = stream
        self._keys = {key}
        self._unread: Backlog[Item | Gap] = Backlog()

    async def receive(self) -> Item | Gap:
        """Return what was said next: see `Backlog.receive`.

        Raises:
            BackendLost: the stream is lost, or the listener was closed, and all that was said
                before has been returned.

        **Cancellation:** loses nothing.
        """
        try:
            return await self._unread.receive()
        except trio.EndOfChannel:
            loss = self._stream._loss
            raise BackendLost("the listener is closed") if loss is None else loss() from None

    async def receive_within(self, seconds: float) -> Item | Gap | None:
        """As `receive`, but for at most so long: None where nothing was said.

        Raises:
            BackendLost: as `receive`.

        **Cancellation:** loses nothing.
        """
        with trio.move_on_after(seconds):
            return await self.receive()
        return None

    def also(self, key: str) -> None:
        """Hear from now on what is said about `key` too."""
        self._keys.add(key)
        self._stream._listeners.setdefault(key, {})[self] = None

    def close(self) -> None:
        """Let go; what was not received is dropped."""
        for key in self._keys:
            listeners = self._stream._listeners.get(key, {})
            listeners.pop(self, None)
            if not listeners:
                self._stream._listeners.pop(key, None)
        self._unread.close()

    def _hear(self, item: Item | Gap) -> None:
        if len(self._unread) >= MAX_UNREAD:
            # It was not read, so it was missed, as what is said while a stream is broken.
            self._unread.take()
            self._unread.post(Gap())
        self._unread.post(item)


@final
class EventStream(Generic[Item]):
    """The events of one server, sorted by key. Made by `open_event_stream`.

    Attributes:
        broken: set when the stream is given up, or by whoever knows that the server is gone. Its
            listeners are told after its owner has declared the loss, when that knows more.
        why: what went wrong last; None where nothing did.
    """

    def __init__(self, sort: Sort[Item], patience: Patience, broken: trio.Event) -> None:
        self.broken = broken
        self.why: BackendError | None = None
        self._sort = sort
        self._patience = patience
        self._opened = trio.Event()
        self._listeners: dict[str, dict[Listener[Item], None]] = {}
        self._loss: Callable[[], BackendError] | None = None

    def listen(self, key: str) -> Listener[Item]:
        """Hear what is said about `key` from now on, until the listener is closed."""
        listener = Listener(self, key)
        self._listeners.setdefault(key, {})[listener] = None
        if self._loss is not None:
            listener._unread.close()
        return listener

    @property
    def keys(self) -> list[str]:
        """What somebody listens to."""
        return list(self._listeners)

    def declare_lost(self, loss: Callable[[], BackendError]) -> None:
        """Tell every listener. The first declaration stands."""
        if self._loss is None:
            self._loss = loss
            self.broken.set()
            for listener in self._everybody():
                listener._unread.close()

    def _everybody(self) -> set[Listener[Item]]:
        return {one for listeners in self._listeners.values() for one in listeners}

    async def _run(self, connect: Connect) -> None:
        pause = self._patience.first
        deadline = math.inf
        while not self.broken.is_set():
            if await self._read(connect):
                pause, deadline = self._patience.first, math.inf
            now = trio.current_time()
            deadline = min(deadline, now + self._patience.total)
            # The first stream has not begun: whoever opened it is told at once.
            if now >= deadline or not self._opened.is_set():
                self.broken.set()
                return
            await trio.sleep(pause)
            pause = min(2 * pause, self._patience.longest)

    async def _read(self, connect: Connect) -> bool:
        """Read one stream to its end; whether it spoke, and for longer than a server that falls.

        Some greet each stream and then drop it: that is no reason to try again at once, for ever.
        """
        began = math.inf
        parser, silence = EventParser(), self._patience.silence
        try:
            with trio.move_on_after(silence) as scope:
                async with connect() as chunks:
                    async for chunk in chunks:
                        scope.deadline = trio.current_time() + silence
                        for event in parser.feed(chunk):
                            self._hear(event, first=began == math.inf)
                            began = min(began, trio.current_time())
            how = f"was silent for {silence:g} s" if scope.cancelled_caught else "ended"
            self.why = BackendLost(f"the server's stream of events {how}")
        except BackendError as error:
            self.why = error
        return trio.current_time() - began >= self._patience.longest

    def _hear(self, event: ServerEvent, *, first: bool) -> None:
        try:
            keys, item = self._sort(event)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise BackendMisbehaved(f"it sent no event: {event.data[:200]!r}") from error
        if first:
            # Of the very first stream nobody hears this: who opens it still waits for it.
            for listener in self._everybody():
                listener._hear(Gap())
        self._opened.set()
        for listener in {one for key in keys for one in self._listeners.get(key, ())}:
            listener._hear(item)


@asynccontextmanager
async def open_event_stream(
    connect: Connect,
    sort: Sort[Item],
    *,
    patience: Patience | None = None,
    broken: trio.Event | None = None,
    within: float = 30.0,
) -> AsyncGenerator[EventStream[Item], None]:
    """Listen to a server; the body runs once its first event is here.

    Args:
        connect: opens a stream, and raises a `BackendError` where it cannot, or breaks.
        sort: who hears of an event, and what. An event of a shape that it does not know, and so
            raises any of what that raises, breaks the stream as one that makes no sense.
        patience: how a stream that breaks is taken up again.
        broken: set by somebody else when the server is gone, or by the stream when it gives up.
        within: seconds that the first event may take.

    Raises:
        BackendError: the first stream could not be opened, or said nothing.

    **Cancellation:** the stream is read until the body has left.
    """
    broken = trio.Event() if broken is None else broken
    stream: EventStream[Item] = EventStream(sort, patience or Patience(), broken)
    async with open_service() as service:
        service.start_soon(stream._run, connect)
        with trio.move_on_after(within):
            await _first(stream._opened, stream.broken)
        if not stream._opened.is_set():
            lost = BackendLost(f"the server's stream of events said nothing for {within:g} s")
            raise stream.why or lost
        yield stream


async def _first(*events: trio.Event) -> None:
    """Wait until one of them is set."""
    async with open_private_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)
