"""One turn of opencode: followed to its own end, aborted, swept up after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import trio

from ..._errors import BackendError, BackendLost, Silenced
from ...abc import Emit, End
from ...transports.eventstream import Gap, Listener
from ...transports.offspring import Look
from ...transports.pace import wait_at_most
from ...transports.proctable import TableEntry, find_marked
from ...transports.serving import Serving, open_serving
from ._address import to_address
from ._asks import PERMISSION, QUESTION, Asked, read_asked, settled_in
from ._events import Frame, as_mapping
from ._left import Left, Processes, SubAgent, SubAgents, UnknownAgents
from ._progress import Progress
from ._server import Heard, Server
from ._session import OpenCodeSession
from ._stopping import LEAVES_WITHIN, Stopping
from ._wire import NotThere

OpenCodeContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of opencode may be asked: a text, or opencode's own list of a message's parts."""

_LOOK_AGAIN = 0.25
_DOUBTS_FOR = 0.03
_TRUSTS_FOR = 0.25
_DOUBTS = 8
_NEWEST = 20
_LOOKS = 5
_UNDO_LOOKS = 40
# A message whose sender is gone may still be between it and the server.
_ON_ITS_WAY = (0.05, 0.2, 1.0)


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
        self._stopping = Stopping(server, session, message, self._progress, self._agents)
        self._doubts = 0
        self._taken_up = False
        self._missed = False
        self._trusted = False

    def __repr__(self) -> str:
        return f"<OpenCodeTurn {self._message} of session {self._known}>"

    @property
    def address(self) -> str:
        """Where it is: in its session, or with a server that is ours in that."""
        return to_address(self._server, self._known, self._message)

    async def follow(self, emit: Emit) -> End:
        """Read what is said of the session until this turn is over."""
        self._progress.followed = True
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
            self._progress.followed = False
            self._listener.close()
        return self._progress.end()

    async def take_up(self) -> bool:
        """Learn how a turn stands that another process has begun, before it is told to stop.

        Returns:
            False where it is certain that nothing was begun, and that nothing will.

        Raises:
            BackendError: that cannot be told.
        """
        self._taken_up = self._missed = self._agents.unsure = True
        for pause in (*_ON_ITS_WAY, None):
            messages, _, busy = await self._fetch()
            if any(as_mapping(one.get("info")).get("id") == self._message for one in messages):
                self._progress.look(messages, busy=busy)
                return True
            if pause is not None:
                await trio.sleep(pause)
        if busy or messages:
            # A plugin may hold a message up for as long as it likes, and nothing tells of it.
            raise BackendLost(
                f"session {self._known} has no message {self._message} yet, and one may come late: "
                "look at what it does"
            )
        await self._server.delete(self._known)
        await self._server.abort_deleted(self._known)
        return False

    async def _next(self) -> Heard | Gap | None:
        """What is said next; None where something is in doubt and nothing more is said."""
        if self._missed:
            self._missed = False
            return Gap()
        # Whatever comes of an abort is said about when that is answered.
        self._trusted = self._stopping.is_under_way()
        if self._progress.doubtful:
            # Where an answer has begun, its end is nearly always on its way.
            seconds = _TRUSTS_FOR if self._progress.answering else _DOUBTS_FOR
            return await self._listener.receive_within(seconds)
        return await self._listener.receive()

    def _may_look(self) -> bool:
        """Whether to ask the server now, which takes time in which its events are not read.

        Not where it still aborted when the silence began: it will say more by itself.
        """
        self._doubts += 1
        return not self._trusted or self._doubts % _DOUBTS == 0

    def _keep(self) -> None:
        """Keep what the room's next turn needs to know of the session."""
        abort = self._stopping.abort
        if abort is not None:
            abort.hit = self._progress.aborted
        self.session = OpenCodeSession(
            self._known,
            self._server,
            calls=self._known.calls.union(self._progress.translator.calls),
            children=self._known.children.union(self._agents.sessions),
            abort=abort,
        )

    def _hear(self, serving: Serving, emit: Emit, heard: Heard) -> None:
        kind, properties = str(heard["type"]), heard["properties"]
        if (number := settled_in(kind, properties)) is not None:
            self._asked.pop(number, None)
            serving.withdraw(number)
        elif (asked := read_asked(kind, properties)) is not None:
            self._ask(serving, emit, asked)
        elif kind == "session.created":
            self._adopt(as_mapping(properties.get("info")).get("id"))
        elif properties.get("sessionID") == self._known:
            for event in self._progress.hear(kind, properties, heard):
                emit(event)
            for child in self._progress.translator.children - self._agents.sessions:
                self._adopt(child)
        elif kind == "message.part.updated":
            # A sub-agent's tools: their processes are this turn's.
            self._progress.translator.part(as_mapping(properties.get("part")), heard)

    def _adopt(self, child: object) -> None:
        if isinstance(child, str) and child not in (self._known, *self._agents.sessions):
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
                self._server.post_aside(*request.refusal(), request.refused)
                return
            await self._reply(*request.answer(reply))

        serving.start(asked, serve)

    async def _reply(self, path: str, body: Any) -> None:
        """Tell opencode a reply, again where nobody knows whether it was taken."""
        for times in range(1, _LOOKS):
            try:
                await self._server.wire.post(path, body)
            except NotThere:
                return  # It was taken, or somebody else has answered.
            except BackendError:
                if times == _LOOKS - 1 and not self._server.broken.is_set():
                    raise
            else:
                return
            if self._server.broken.is_set():
                return  # Whoever follows is told how it was lost.
            await trio.sleep(times * _LOOK_AGAIN)

    async def _look(self, serving: Serving, emit: Emit) -> None:
        """Ask the server how things stand, since something that it said was missed."""
        messages, waiting, busy = await self._fetch()
        for event in self._progress.look(messages, busy=busy):
            emit(event)
        for kind, properties in waiting:
            if (asked := read_asked(kind, properties)) is not None:
                self._ask(serving, emit, asked)

    async def _fetch(self) -> tuple[list[Frame], list[tuple[str, Frame]], bool]:
        wire = self._server.wire
        for looks in range(1, _LOOKS + 1):
            try:
                # The status first: what ends after it was read is told by the stream.
                busy = await self._server.is_busy(self._known)
                try:
                    messages = await self._fetch_messages()
                except NotThere:
                    busy, messages = self._goes_on_deleted(), []
                waiting: list[tuple[str, Frame]] = []
                for kind in () if self._progress.told else (PERMISSION, QUESTION):
                    listed = await wire.listed(f"/{kind.partition('.')[0]}")
                    waiting += [(kind, one) for one in listed]
            except BackendError:
                if looks == _LOOKS or self._server.broken.is_set():
                    raise
                await trio.sleep(looks * _LOOK_AGAIN)
            else:
                break
        mine = {str(self._known), *self._agents.sessions}
        return messages, [one for one in waiting if one[1].get("sessionID") in mine], busy

    def _goes_on_deleted(self) -> bool:
        """Whether a turn goes on whose session was deleted: no status tells of it any more.

        Only an abort ends what it works on. Without one it is lost, and will be told to stop.
        """
        if not self._progress.told:
            raise BackendLost(f"session {self._known} was deleted, and what it works on may go on")
        return not self._stopping.is_answered()

    async def _fetch_messages(self) -> list[Frame]:
        """The session's messages, back to this turn's own at least."""
        path = f"/session/{self._known}/message"
        newest = await self._server.wire.listed(path, limit=_NEWEST)
        if any(as_mapping(one.get("info")).get("id") == self._message for one in newest):
            return newest
        return await self._server.wire.listed(path)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Abort the sub-agents and the turn; see that it was not too early for that."""
        if self._taken_up and self._progress.is_over():
            # An abort is the session's, and would end what somebody else does there now.
            return
        # A refusal that comes first ends a turn that waits for one without the quarter of a
        # second for which opencode waits for a tool. No answer of the model comes of it.
        self._progress.told = True
        for asked in list(self._asked.values()):
            await wait_at_most(asked.refused, LEAVES_WITHIN)
        await self._stopping.run(sent)

    async def undo(self) -> None:
        """End a turn that began when nobody waited for it any more."""
        self._progress.told = self._agents.unsure = True
        try:
            # Nobody else bounds it.
            await self._stopping.run(lambda: None, _UNDO_LOOKS)
        finally:
            self._listener.close()

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
