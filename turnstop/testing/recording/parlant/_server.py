"""A `parlant.sdk.Server`, as far as the adapter sees it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import Any, Protocol

import attrs

from ..._probe import Work
from ._events import Event, EventStore, Kind, NoSuchAgent, NoSuchSession, Session, Source
from ._processing import Levers, Processing, now
from ._tasks import BackgroundTasks

__all__ = ["APPLICATION", "TASKS", "TRACER", "RecordingServer", "ToolContext", "ToolEntry"]

APPLICATION, TASKS, TRACER = "Application", "BackgroundTaskService", "Tracer"

_current_server: ContextVar[object] = ContextVar("parlant_current_server")
_trace: ContextVar[str] = ContextVar("trace", default="<main>")


class FarEnd(Levers, Protocol):
    """What a server is of."""

    works: list[Work]
    store: EventStore
    agents: set[str]

    def begin(self, work: Work) -> Processing:
        """Take a message that is about to be processed."""
        ...


@attrs.frozen
class ToolContext:
    """What a tool is told."""

    session_id: str
    call: str


@attrs.frozen
class ToolEntry:
    """A tool of the server."""

    tool: str
    function: Callable[..., Any]


@attrs.define(eq=False)
class _Tracer:
    _names: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    @contextmanager
    def span(self, name: str) -> Generator[None]:
        token = _trace.set(f"trace-{next(self._names)}")
        yield
        _trace.reset(token)


@attrs.define(eq=False)
class _Sessions:
    far_end: FarEnd
    tasks: BackgroundTasks

    async def create(self, *, customer_id: str, agent_id: str) -> Session:
        return self.far_end.store.open()

    async def read(self, session_id: str) -> Session:
        self.far_end.store.all_of(session_id)
        return Session(session_id)

    async def create_customer_message(
        self, *, session_id: str, message: str, source: Source, **_: object
    ) -> Event:
        work = Work(_trace.get(), message, session_id, now())
        self.far_end.works.append(work)
        if self.far_end.refuses:
            await self.far_end.held.wait()
            raise NoSuchSession(session_id)
        event = self.far_end.store.add(
            session_id, source, Kind.MESSAGE, work.name, {"message": message}
        )
        work.began_at = now()
        processing = self.far_end.begin(work)
        root = await self.tasks.restart(processing.run(), tag=f"process-session({session_id})")
        if not self.far_end.held.is_set():
            await self.far_end.held.wait()
            if self.far_end.refuses:
                await root
                raise NoSuchSession(session_id)
        return event

    async def find_events(
        self, *, session_id: str, min_offset: int, trace_id: str | None, **_: object
    ) -> Sequence[Any]:
        return self.far_end.store.find(session_id, min_offset, trace_id)


@attrs.define(eq=False)
class _Agents:
    far_end: FarEnd

    async def read(self, agent_id: str) -> str:
        if agent_id not in self.far_end.agents:
            raise NoSuchAgent(agent_id)
        return agent_id


class RecordingServer:
    """It is prepared inside its block, and serves when that is left.

    Attributes:
        options: what it was made with.
        container: what it has, by its keys.
        ready: it serves.
        ends: set by whoever ends it.
    """

    _current_server_var: ContextVar[object] = _current_server

    def __init__(self, far_end: FarEnd, **options: object) -> None:
        self.options = options
        self.ready, self.ends = asyncio.Event(), asyncio.Event()
        self._tasks = BackgroundTasks()
        self.container: Mapping[str, Any] = {
            APPLICATION: SimpleNamespace(
                sessions=_Sessions(far_end, self._tasks), agents=_Agents(far_end)
            ),
            TASKS: self._tasks,
            TRACER: _Tracer(),
        }
        self._plugin_server = SimpleNamespace(tools={})
        self._requests: list[asyncio.Future[Any]] = []
        self._far_end = far_end

    async def __aenter__(self) -> RecordingServer:
        self._context, self._loop = copy_context(), asyncio.get_running_loop()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            return
        self.ready.set()
        try:
            await self.ends.wait()
        finally:
            self._far_end.dying = True
            self._tasks.cancel_all()

    def call_tool(self, name: str, context: ToolContext) -> None:
        """Call a tool, as its server does: in a task of a request that came over HTTP."""

        async def answer() -> None:
            tool = self._plugin_server.tools[name].function(context)
            self._requests.append(asyncio.ensure_future(tool))

        # Not in the context of whoever calls it.
        self._requests.append(self._context.copy().run(self._loop.create_task, answer()))
