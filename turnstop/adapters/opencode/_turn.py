"""One turn of opencode: followed to its own end, aborted, swept up after."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, final

import trio

from ..._errors import BackendError, BackendRefused, Silenced
from ...abc import Emit, End
from ...transports.eventstream import Gap, Listener
from ...transports.offspring import Look
from ...transports.pace import wait_at_most
from ...transports.proctable import TableEntry, find_marked
from ...transports.reading import Reader
from ...transports.serving import Serving, open_serving
from ._asks import PERMISSION, QUESTION, Asked, read_asked, settled_in
from ._left import Left, Processes, SubAgent, SubAgents, UnknownAgents
from ._progress import Progress
from ._server import Heard, Server
from ._session import Abort, OpenCodeSession
from ._wire import NotThere

OpenCodeContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of opencode may be asked: a text, or opencode's own list of a message's parts."""

_LEAVES_WITHIN = 0.05
_LOOK_EVERY = 0.25
_DOUBTS_FOR = 0.03
_TRUSTS_FOR = 0.25
_DOUBTS = 8
_NEWEST = 20
_SOON = 2
_NEVER = 8
_LOOKS = 5


@final
class OpenCodeTurn:
    """A message that opencode has taken.

    Attributes:
        session: the session; it is known to be idle once the turn was seen to end.
    """

    def __init__(
        self,
        server: Server,
        listener: Listener[Heard],
        session: OpenCodeSession,
        message: str,
        began: int,
        look: Look = find_marked,
    ) -> None:
        self.session = session
        self._known = session
        self._server = server
        self._listener = listener
        self._message = message
        self._progress = Progress(session, message)
        self._agents = SubAgents(server.wire, session, session.children)
        self._processes = Processes(server.mark, began, session.calls, look)
        self._asked: dict[str, Asked] = {}
        self._abort: Abort | None = None
        self._doubts = 0

    def __repr__(self) -> str:
        return f"<OpenCodeTurn {self._message} of session {self._known}>"

    async def follow(self, emit: Emit) -> End:
        """Read what is said of the session until this turn is over."""
        try:
            async with open_serving() as serving:
                while not self._progress.is_over():
                    heard = await self._next()
                    if heard is None:
                        if self._may_look():
                            await self._look(serving, emit)
                    elif isinstance(heard, Gap):
                        self._agents.unsure = True
                        await self._look(serving, emit)
                    else:
                        self._hear(serving, emit, heard)
                self._keep()
        finally:
            self._listener.close()
        return self._progress.end()

    async def _next(self) -> Heard | Gap | None:
        """What is said next; None where something is in doubt and nothing more is said."""
        if self._progress.doubtful:
            # Where an answer has begun, its end is nearly always on its way.
            seconds = _TRUSTS_FOR if self._progress.answering else _DOUBTS_FOR
            return await self._listener.receive_within(seconds)
        return await self._listener.receive()

    def _may_look(self) -> bool:
        """Whether to ask the server now: while it aborts, it will say more by itself."""
        self._doubts += 1
        aborting = self._abort is not None and not self._abort.over.is_set()
        return not aborting or self._doubts % _DOUBTS == 0

    def _keep(self) -> None:
        """Keep what the room's next turn needs to know of the session."""
        if self._abort is not None:
            self._abort.hit = self._progress.aborted
        self.session = OpenCodeSession(
            self._known,
            self._server,
            calls=self._known.calls.union(self._progress.translator.calls),
            children=self._known.children.union(self._agents.sessions),
            abort=self._abort,
        )

    def _hear(self, serving: Serving, emit: Emit, heard: Heard) -> None:
        kind, properties = str(heard["type"]), heard["properties"]
        if (number := settled_in(kind, properties)) is not None:
            self._asked.pop(number, None)
            serving.withdraw(number)
        elif (asked := read_asked(kind, properties)) is not None:
            self._ask(serving, emit, asked)
        elif kind == "session.created":
            self._adopt(str(properties["info"].get("id")))
        elif properties.get("sessionID") == self._known:
            for event in self._progress.hear(kind, properties, heard):
                emit(event)
            for child in self._progress.translator.children - self._agents.sessions:
                self._adopt(child)
        elif kind == "message.part.updated":
            # A sub-agent's tools: their processes are this turn's.
            self._progress.translator.part(properties["part"], heard)

    def _adopt(self, child: str) -> None:
        if child not in (self._known, *self._agents.sessions):
            self._agents.sessions.add(child)
            self._listener.also(child)

    def _ask(self, serving: Serving, emit: Emit, asked: Asked) -> None:
        if asked.number in self._asked:
            return
        self._asked[asked.number] = asked

        async def serve(request: Asked) -> None:
            try:
                reply = await emit.ask(request.to_ask())
            except Silenced:
                # In a task that outlives the turn: else opencode would list it for ever.
                self._post_aside(*request.refusal(), request.refused)
                return
            path, body = request.answer(reply)
            with suppress(NotThere):  # somebody else has answered it
                await self._server.wire.post(path, body)

        serving.start(asked, serve)

    def _post_aside(self, path: str, body: Any, left: trio.Event) -> None:
        async def post() -> None:
            try:
                await self._server.wire.post(path, body, sent=left.set)
            except (BackendError, NotThere):
                left.set()

        self._server.reading.start(Reader(), post, name=f"opencode {path}")

    async def _look(self, serving: Serving, emit: Emit) -> None:
        """Ask the server how things stand, since something that it said was missed."""
        messages, waiting, busy = await self._fetch()
        for event in self._progress.look(messages, busy=busy):
            emit(event)
        for kind, properties in waiting:
            if (asked := read_asked(kind, properties)) is not None:
                self._ask(serving, emit, asked)

    async def _fetch(self) -> tuple[list[Any], list[tuple[str, Any]], bool]:
        wire = self._server.wire
        for looks in range(1, _LOOKS + 1):
            try:
                # The status first: what ends after it was read is told by the stream.
                busy = await self._server.is_busy(self._known)
                messages = await self._fetch_messages()
                waiting: list[tuple[str, Any]] = []
                for kind in () if self._progress.told else (PERMISSION, QUESTION):
                    listed = await wire.get(f"/{kind.partition('.')[0]}")
                    waiting += [(kind, one) for one in listed]
            except NotThere:
                return [], [], False
            except BackendError:
                if looks == _LOOKS or self._server.broken.is_set():
                    raise
                await trio.sleep(looks * _LOOK_EVERY)
            else:
                break
        mine = {str(self._known), *self._agents.sessions}
        return messages, [one for one in waiting if one[1].get("sessionID") in mine], busy

    async def _fetch_messages(self) -> list[Any]:
        """The session's messages, back to this turn's own at least."""
        path = f"/session/{self._known}/message"
        newest: list[Any] = await self._server.wire.get(path, limit=_NEWEST)
        if any(one["info"].get("id") == self._message for one in newest):
            return newest
        whole: list[Any] = await self._server.wire.get(path)
        return whole

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Abort the sub-agents and the turn; see that it was not too early for that."""
        self._progress.told = True
        # A refusal that comes first ends a turn that waits for one without the quarter of a
        # second for which opencode waits for a tool. No answer of the model comes of it.
        for asked in list(self._asked.values()):
            await wait_at_most(asked.refused, _LEAVES_WITHIN)
        await self._abort_agents()
        early = not self._progress.begun.is_set()
        await self._tell(sent)
        for looks in itertools.count(1) if early else ():
            if await wait_at_most(self._progress.begun, _LOOK_EVERY):
                break
            if await self._server.is_busy(self._known):
                self._progress.begun.set()
            elif looks >= self._looks_enough() and await self._withdraw():
                return
        # opencode answers an abort that finds nothing to abort as any other, and the turn runs on.
        lost = early and (self._progress.idled or self._agents.unsure)
        if lost and await self._server.is_busy(self._known):
            await self._tell(lambda: None)

    def _looks_enough(self) -> int:
        # An abort that finds the message there has most probably found its run as well.
        return _SOON if self._progress.idled_since else _NEVER

    async def _withdraw(self) -> bool:
        """Take the message back, which opencode does not do where it works; whether it has.

        An abort between the message and the first word about it ends the run, and nothing tells.
        """
        try:
            await self._server.wire.delete(f"/session/{self._known}/message/{self._message}")
        except (BackendRefused, NotThere):
            return False
        return True

    async def _abort_agents(self) -> None:
        try:
            await self._agents.enumerate()
        except BackendError:
            self._agents.unsure = True
        for session in sorted(self._agents.sessions):
            left = trio.Event()
            self._post_aside(f"/session/{session}/abort", None, left)
            await wait_at_most(left, _LEAVES_WITHIN)

    async def _tell(self, sent: Callable[[], None]) -> None:
        """Send an abort, in a task that outlives the turn, for the next one must know its answer.

        An abort is the session's and not the turn's: one that is late would end the next turn.
        """
        abort = self._abort = Abort()

        async def post() -> None:
            try:
                await self._server.wire.post(f"/session/{self._known}/abort", sent=abort.left.set)
            except NotThere:
                pass  # The session was deleted, and its work with it.
            except BackendError as error:
                abort.error = error
            finally:
                abort.end()

        self._server.reading.start(Reader(), post, name=f"opencode abort {self._known}")
        await abort.left.wait()
        if not isinstance(abort.error, BackendRefused):
            sent()
        await abort.over.wait()
        if abort.error is not None:
            raise abort.error

    async def undo(self) -> None:
        """End a turn that began when nobody waited for it any more."""
        await self.cancel(lambda: None)

    async def leftovers(self) -> list[Left]:
        """The sub-agents that still work, and the processes of the turn's tools."""
        agents = await self._agents.find()
        return [*agents, *await self._processes.find(self._sessions())]

    async def sweep(self, leftovers: Sequence[object]) -> list[Left]:
        """End them, and whatever they have started since."""
        # A sub-agent starts processes: it is ended first.
        agents = await self._agents.end(
            [one for one in leftovers if isinstance(one, SubAgent | UnknownAgents)]
        )
        processes = [one for one in leftovers if isinstance(one, TableEntry)]
        return [*agents, *await self._processes.end(self._sessions(), processes)]

    def _sessions(self) -> set[str]:
        return {str(self._known), *self._agents.sessions}
