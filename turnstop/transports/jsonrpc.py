"""JSON-RPC over newline-delimited streams: calls in two phases, and requests both ways.

One task writes, one reads. A caller hands over a whole frame and waits for what becomes of it, so
a cancelled caller never leaves half a frame on the wire, and a peer that stops reading holds
nobody beyond their own cancellation. The reader only sorts: it waits for no topic.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, final

import attrs
import trio

from .._errors import BackendError, BackendLost, BackendMisbehaved
from .._service import Service, open_service
from ._lines import MAX_LINE, LineSplitter
from .backlog import MAX_UNREAD, Backlog
from .dialect import Dialect, Frame, Incoming, JsonRpc, Reply, RpcError, decode

__all__ = ["Connection", "Incoming", "RpcError", "Topic", "open_connection"]

_LAST_WORDS = 0.5


@final
class Topic:
    """What the peer says about one thing, in order. Made by `Connection.subscribe`."""

    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._keys = {key}
        self._unread: Backlog[Incoming] = Backlog()
        self._flooded = False

    async def receive(self) -> Incoming:
        """Return the next frame: see `Backlog.receive`.

        Raises:
            BackendLost: the connection is lost, or the topic was closed, and every frame from
                before has been returned.
            BackendMisbehaved: more has come than is kept for one who does not read.

        **Cancellation:** loses no frame.
        """
        try:
            return await self._unread.receive()
        except trio.EndOfChannel:
            if self._flooded:
                raise BackendMisbehaved(
                    f"it said more than {MAX_UNREAD} things before any was read"
                ) from None
            loss = self._connection._loss
            raise BackendLost("the topic is closed") if loss is None else loss() from None

    def take(self) -> list[Incoming]:
        """What has come and was not received yet. Never waits."""
        return self._unread.take()

    def _hear(self, incoming: Incoming) -> None:
        if len(self._unread) < MAX_UNREAD:
            self._unread.post(incoming)
        else:
            self._flooded = True
            self.close()
            self._connection._fall_back(incoming)

    def also(self, key: str) -> None:
        """Hear from now on what the peer says about `key` too."""
        self._keys.add(key)
        self._connection._topics.setdefault(key, {})[self] = None

    def close(self) -> None:
        """Let go: unread requests are handed to the connection's fallback."""
        for key in self._keys:
            self._connection._unsubscribe(key, self)
        self._unread.close()
        for incoming in self.take():
            self._connection._fall_back(incoming)


@attrs.define(eq=False)
class _Call:
    late: Callable[[Any], Awaitable[object]] | None
    written: trio.Event = attrs.field(factory=trio.Event)
    done: trio.Event = attrs.field(factory=trio.Event)
    left: bool = False
    abandoned: bool = False
    result: Any = None
    error: Exception | None = None

    def end(self, result: Any = None, error: Exception | None = None) -> None:
        self.result, self.error = result, error
        self.written.set()
        self.done.set()


@final
class Connection:
    """A JSON-RPC peer. Made by `open_connection`.

    Attributes:
        broken: set when nothing can be said or heard any more; the loss is told to callers and
            topics only after the connection's owner has declared it, when it knows more.
    """

    def __init__(
        self,
        service: Service,
        topic_of: Callable[[Incoming], str | None],
        fallback: Callable[[Incoming], object],
        dialect: Dialect,
        describe: Callable[[], str],
    ) -> None:
        self.broken = trio.Event()
        self._service = service
        self._topic_of = topic_of
        self._fall_back = fallback
        self._describe = describe
        self._dialect = dialect
        self._ids = itertools.count(1)
        self._calls: dict[object, _Call] = {}
        # The topics of a key, in the order in which they subscribed.
        self._topics: dict[str, dict[Topic, None]] = {}
        self._outbox: deque[tuple[bytes, _Call | None]] = deque()
        self._wake = trio.Event()
        self._why: BackendMisbehaved | None = None
        self._loss: Callable[[], BackendError] | None = None

    async def call(
        self,
        method: str,
        params: Frame,
        *,
        sent: Callable[[], None] | None = None,
        late: Callable[[Any], Awaitable[object]] | None = None,
    ) -> Any:
        """Call the peer; return its result.

        Args:
            method: what to call.
            params: its parameters.
            sent: called when the request has left.
            late: run, in a task of the connection, with the result that comes after this call
                was cancelled: whoever must undo what the call made does so there.

        Raises:
            RpcError: the peer answered with an error.
            BackendLost: the connection is lost.

        **Cancellation:** a request that has not begun to leave never does; one that has is sent
        whole, and its reply is dropped (see `late`).
        """
        if self._loss is not None:
            raise self._loss()
        call = _Call(late)
        number = next(self._ids)
        self._enqueue(self._dialect.call(number, method, params), call)
        self._calls[number] = call
        try:
            await call.written.wait()
            # An error answer may be here already: it left all the same, unlike after a loss.
            if sent is not None and not isinstance(call.error, BackendError):
                sent()
            await call.done.wait()
        except BaseException:
            self._abandon(number, call)
            raise
        if call.error is not None:
            raise call.error
        return call.result

    async def call_within(
        self,
        seconds: float,
        method: str,
        params: Frame,
        *,
        late: Callable[[Any], Awaitable[object]] | None = None,
    ) -> Any:
        """Call the peer, where an answer is due in `seconds`; else as `call`.

        Raises:
            RpcError: the peer answered with an error.
            BackendLost: the connection is lost, or no answer came: the peer hangs.

        **Cancellation:** as `call`.
        """
        with trio.move_on_after(seconds):
            return await self.call(method, params, late=late)
        raise BackendLost(f"{self._describe()}, and has not answered {method} for {seconds:g} s")

    def notify(self, method: str, params: Frame | None = None) -> None:
        """Send a notification; never waits. Dropped where the connection is lost."""
        self._enqueue(self._dialect.notification(method, params))

    async def tell(self, method: str, params: Frame | None = None) -> None:
        """Send a notification, and return when it has left.

        Raises:
            BackendLost: the connection is lost.

        **Cancellation:** one that has not begun to leave never does; one that has is sent whole.
        """
        if self._loss is not None:
            raise self._loss()
        call = _Call(None)
        self._enqueue(self._dialect.notification(method, params), call)
        # Under itself, for no answer will name it: only a loss ends the wait.
        self._calls[call] = call
        try:
            await call.written.wait()
        finally:
            self._abandon(call, call)
        if call.error is not None:
            raise call.error

    def subscribe(self, key: str) -> Topic:
        """Hear what the peer says about `key` from now on, until the topic is closed."""
        topic = Topic(self, key)
        self._topics.setdefault(key, {})[topic] = None
        if self._loss is not None:
            topic._unread.close()
        return topic

    @property
    def why(self) -> BackendMisbehaved | None:
        """What the peer did to break it; None where its stream just ended."""
        return self._why

    def declare_lost(self, loss: Callable[[], BackendError]) -> None:
        """Tell every caller and topic. The first declaration stands."""
        if self._loss is not None:
            return
        self.broken.set()
        self._loss = loss
        for call in self._calls.values():
            call.end(error=loss())
        self._calls.clear()
        for topics in self._topics.values():
            for topic in topics:
                topic._unread.close()
        self._outbox.clear()

    def _unsubscribe(self, key: str, topic: Topic) -> None:
        topics = self._topics.get(key, {})
        topics.pop(topic, None)
        if not topics:
            self._topics.pop(key, None)

    def _enqueue(self, frame: Frame, call: _Call | None = None) -> None:
        if self._loss is None:
            data = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
            self._outbox.append((data, call))
            self._wake.set()

    def _abandon(self, number: object, call: _Call) -> None:
        if call.done.is_set():
            # The reply was read between the cancellation and this task's next step.
            self._undo(call)
            return
        call.abandoned = True
        self._outbox = deque(entry for entry in self._outbox if entry[1] is not call)
        if not call.left or call.late is None:
            # The reply would be dropped, and a peer may never send one.
            self._calls.pop(number, None)

    async def _write(self, stream: trio.abc.SendStream) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._outbox:
                data, call = self._outbox.popleft()
                if call is not None:
                    call.left = True
                await stream.send_all(data)
                if call is not None:
                    call.written.set()

    async def _read(self, stream: trio.abc.ReceiveStream, limit: int) -> None:
        splitter = LineSplitter(limit)
        async for chunk in stream:
            for line in splitter.feed(chunk):
                if not line.isspace() and line:
                    self._sort(decode(line))

    def _sort(self, frame: Frame) -> None:
        heard = self._dialect.read(frame)
        if isinstance(heard, Reply):
            self._settle(self._calls.pop(heard.number, None), heard)
        else:
            method, params, number = heard.method, heard.params, heard.number
            self._hand_over(Incoming(method, params, frame, self._enqueue, self._dialect, number))

    def _hand_over(self, incoming: Incoming) -> None:
        key = self._topic_of(incoming)
        # One that is flooded leaves on the way.
        topics = tuple(self._topics.get(key, ())) if key is not None else ()
        for topic in topics:
            topic._hear(incoming)
        if not topics:
            self._fall_back(incoming)

    def _settle(self, call: _Call | None, reply: Reply) -> None:
        if call is None:
            return
        call.end(reply.result, reply.error)
        if call.abandoned:
            self._undo(call)

    def _undo(self, call: _Call) -> None:
        if call.late is not None and call.error is None:
            self._service.start_soon(self._run_late, call.late, call.result)

    async def _run_late(self, late: Callable[[Any], Awaitable[object]], result: Any) -> None:
        # There is nobody left to tell, and the connection is not the one at fault.
        with suppress(RpcError, BackendError):
            await late(result)

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except BackendMisbehaved as error:
            self._break(error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.run_down(BackendMisbehaved("it closed its input"))

    async def run_down(self, why: BackendMisbehaved | None = None) -> None:
        """Break, but first hear the peer's last words: half a second, at most.

        **Cancellation:** leaves the connection as it is.
        """
        with trio.move_on_after(_LAST_WORDS):
            await self.broken.wait()
        self._break(why)

    def give_up(self, why: str) -> None:
        """Break, as if the peer had done what `why` says; nothing where it is broken already."""
        self._break(BackendMisbehaved(why))

    def _break(self, why: BackendMisbehaved | None) -> None:
        if not self.broken.is_set():
            self._why = why
            self.broken.set()


@asynccontextmanager
async def open_connection(
    send: trio.abc.SendStream,
    receive: trio.abc.ReceiveStream,
    *,
    topic_of: Callable[[Incoming], str | None],
    fallback: Callable[[Incoming], object],
    dialect: Dialect | None = None,
    max_line: int = MAX_LINE,
    describe: Callable[[], str] = lambda: "the peer is connected",
) -> AsyncGenerator[Connection, None]:
    """Talk JSON-RPC over two streams, which stay the caller's.

    Args:
        send: where our lines go.
        receive: where the peer's lines come from.
        topic_of: names what an incoming frame is about; None where it is about no topic.
        fallback: given, in the reader's task, each frame that no topic takes. Must answer
            requests, at once or later.
        dialect: how the peer's protocol writes; JSON-RPC 2.0 by default.
        max_line: the longest line taken, in bytes.
        describe: says in error texts who the peer is, and how it is.

    The owner waits for `Connection.broken` and then calls `Connection.declare_lost`.

    **Cancellation:** reaches the reader and the writer only after the body has left.
    """
    async with open_service() as service:
        connection = Connection(service, topic_of, fallback, dialect or JsonRpc(), describe)

        async def read() -> None:
            await connection._read(receive, max_line)
            connection._break(None)

        service.start_soon(connection._run, read, name="JSON-RPC reader")
        service.start_soon(connection._run, lambda: connection._write(send), name="JSON-RPC writer")
        yield connection
