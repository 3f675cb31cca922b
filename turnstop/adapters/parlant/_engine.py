"""A Parlant server that serves, and what is asked of its engine. All of it is asyncio-flavoured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs

from ..._errors import BackendMisbehaved, BackendRefused
from ._library import Library
from ._tools import Live, ParlantSession, Tools

__all__ = ["Engine", "OpenSession", "Posted", "Prepare", "gave_up", "serve"]

Prepare: TypeAlias = Callable[[Any], Awaitable[Any]]
OpenSession: TypeAlias = Callable[[Any, str], Awaitable[Any]]
Ended: TypeAlias = Callable[[bool, BaseException | None], object]


@attrs.frozen
class Posted:
    """A customer message that the engine processes.

    Attributes:
        session_id: the session.
        trace_id: the name that all the events of this message have, and no other.
        offset: where the message's own event is in the session.
        root: the task that processes it, whose name tells the session's.
    """

    session_id: str
    trace_id: str
    offset: int
    root: Any


@final
@attrs.define(eq=False)
class Engine:
    """What is asked of a server.

    Attributes:
        server: the server.
        agent_id: who answers, where a session is opened here.
        customer_id: who asks, where a session is opened here.
        moderation: the setting that messages are sent with.
        open_session: opens a room's session instead.
    """

    server: Any
    agent_id: str
    customer_id: str
    moderation: Any
    open_session: OpenSession | None
    _library: Library
    _live: Live

    async def begin_session(self, room: str) -> ParlantSession:
        """Open a session for a room.

        Raises:
            BackendMisbehaved: what was opened has no id.

        **Cancellation:** a session may have been opened, in which nothing happens.
        """
        if self.open_session is not None:
            opened = await self.open_session(self.server, room)
        else:
            opened = await self._sessions.create(
                customer_id=self.customer_id, agent_id=self.agent_id
            )
        return self._live.open(_id_of(opened, f"the session of room {room!r}"))

    async def recall(self, session_id: str) -> ParlantSession:
        """Go on in a session that another process has opened.

        Raises:
            Exception: this server has no such session, or nobody who would answer in it.

        **Cancellation:** changes nothing.
        """
        application = self.server.container[self._library.application]
        found = await application.sessions.read(session_id)
        await application.agents.read(found.agent_id)
        return self._live.open(_id_of(found, f"session {session_id}"))

    async def post(self, session: ParlantSession, text: str, tools: str, ended: Ended) -> Posted:
        """Send a customer message; it is processed from then on.

        Args:
            session: where.
            text: what.
            tools: what the tools are filed under that are called for it.
            ended: is told when the processing task has ended, from the loop: whether as cancelled,
                and what it raised.

        Raises:
            BackendMisbehaved: nothing is to be seen of what it began.

        **Cancellation:** it may be processed all the same.
        """
        # As the server's own requests have it, for tools and hooks that ask for the server.
        self.server._current_server_var.set(self.server)
        before = self._root(session.id)
        session.tools = tools

        def end(root: Any) -> None:
            session.tools = None
            ended(root.cancelled(), None if root.cancelled() else root.exception())

        try:
            # The engine's events take their trace from here.
            with self.server.container[self._library.tracer].span("turnstop.turn"):
                event = await self._send(session.id, text)
        finally:
            # Nothing is awaited between its beginning and here; what began is never missed.
            root = self._root(session.id)
            if root is None or root is before:
                session.tools = None
            else:
                root.set_name(_name(session.id))
                root.add_done_callback(end)
        if root is None or root is before or not isinstance(getattr(event, "offset", None), int):
            kind = type(event).__name__
            raise BackendMisbehaved(f"Parlant took a message, and answered what is of type {kind}")
        return Posted(session.id, event.trace_id, event.offset, root)

    async def stop(self, posted: Posted) -> None:
        """Tell the processing task to stop.

        Not by Parlant's own `cancel`: that waits for a lock, which another session's next message
        holds for as long as the task before it does not end.

        **Cancellation:** it is told all the same.
        """
        posted.root.cancel("the turn is stopped")

    async def read(self, posted: Posted, offset: int) -> Sequence[Any]:
        """The events of a message, from an offset on, in their order.

        Raises:
            BackendMisbehaved: what is found are no events.

        **Cancellation:** changes nothing.
        """
        found = await self._sessions.find_events(
            session_id=posted.session_id,
            min_offset=offset,
            source=None,
            kinds=[],
            trace_id=posted.trace_id,
        )
        events = [*found] if isinstance(found, Sequence) else [found]
        if not all(isinstance(getattr(one, "offset", None), int) for one in events):
            kinds = {type(one).__name__ for one in events}
            raise BackendMisbehaved(f"Parlant has no events, but what is of type {sorted(kinds)}")
        return sorted(events, key=lambda event: event.offset)

    async def _send(self, session_id: str, text: str) -> Any:
        return await self._sessions.create_customer_message(
            session_id=session_id,
            moderation=self.moderation,
            message=text,
            source=self._library.customer,
            trigger_processing=True,
            metadata=None,
        )

    @property
    def _sessions(self) -> Any:
        return self.server.container[self._library.application].sessions

    def _root(self, session_id: str) -> Any:
        tasks = self.server.container[self._library.tasks]._tasks
        return tasks.get(_name(session_id))


async def serve(
    library: Library,
    prepare: Prepare,
    options: Mapping[str, Any],
    make: Callable[[Any, str, Live], object],
) -> None:
    """Make a server, have it prepared, and serve for as long as it serves.

    Args:
        library: Parlant.
        prepare: makes the agent.
        options: of `parlant.sdk.Server`.
        make: is told the server, the agent's id and the table of its live turns, once it is
            prepared; `server.ready` is set later.

    Raises:
        BackendRefused: Parlant wanted to end the program, as it does where it cannot come up.

    **Cancellation:** the server ends, and what its engine works on.
    """
    try:
        async with library.server(**{"host": "127.0.0.1", **options}) as server:
            live = Live()
            server._plugin_server.tools = Tools(live)
            agent_id = _id_of(await prepare(server), "the agent that `prepare` returns")
            make(server, agent_id, live)
        # Leaving the block is what serves.
    except SystemExit as error:
        raise gave_up(error) from error


def gave_up(error: object) -> BackendRefused:
    """What is said of a server that does not come up."""
    return BackendRefused(
        "the Parlant server gave up: its log says why, such as a key that is missing, or a port "
        f"that is taken ({error!r})"
    )


def _name(session_id: str) -> str:
    return f"process-session({session_id})"


def _id_of(found: Any, what: str) -> str:
    found_id = found if isinstance(found, str) else getattr(found, "id", None)
    if not isinstance(found_id, str) or not found_id:
        raise BackendMisbehaved(f"{what} has no id: it is {found!r}")
    return found_id
