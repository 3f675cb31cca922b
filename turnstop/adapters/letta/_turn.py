"""One message to a Letta agent, from the first ping of its run to the end of its model call."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, final

import attrs
import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...abc import Emit, End, How, Proof
from ...events import Event
from ...transports.backlog import Backlog
from ...transports.reading import Reader
from ._account import Account
from ._address import Address, Place
from ._events import Asked, Frame, Message, ask_all, denial
from ._session import LettaSession
from ._wire import Wire

LettaContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of a Letta agent may be asked: a text, or Letta's own list of content parts."""

# A cancelled run's model call is let go of by the server's garbage collector: most within some
# tenths of a second, a few much later.
_LOOKS: Final = (0.0, 0.02, 0.05, 0.1, *itertools.repeat(0.25, 15))


Begin: TypeAlias = Literal["here", "fresh", "forked"]
"""Where a turn begins: in the history that its session names, in a new one, or in one like it."""

_Item: TypeAlias = Event | End | Exception | list[Asked]


@final
class LettaTurn:
    """A message, and the run that it began."""

    def __init__(
        self,
        wire: Wire,
        session: LettaSession,
        content: LettaContent,
        begin: Begin,
        announce: Callable[[str], Awaitable[None]],
    ) -> None:
        self.reader: Reader[_Item] = Reader()
        self._wire = wire
        self._session = session
        self._content = content
        self._begin: Begin = begin
        self._announce = announce
        self._place: Place = "shared"
        self._mark, self._since = "", session.run_id
        self._account = Account()
        self._running = trio.Event()
        self._answers: Backlog[Message] = Backlog()
        self._failure: Exception | None = None
        self._abandoned = self._stopping = self._astray = False
        self._made: str | None = None
        self._leaving: trio.CancelScope | None = None
        self._tells = False
        self._revealed = trio.Event()

    @property
    def session(self) -> LettaSession:
        """The agent, and the conversation."""
        return self._session

    @property
    def address(self) -> str:
        """Where it is; without the run until that is known."""
        session = self._session
        return str(
            Address(
                session.agent_id,
                session.conversation_id or "",
                self._place,
                self._mark,
                self._since or "",
                self._account.run_id or "",
            )
        )

    async def reveal(self) -> None:
        """Return when the run has a name, so that it can be cancelled; raise what came instead."""
        await self._revealed.wait()
        if self._failure is not None and self._account.run_id is None:
            raise self._failure

    async def undo(self) -> None:
        """End what begins after nobody waits for it any more."""
        self._abandoned = True
        await self._revealed.wait()
        await self._cancel_unheard()
        self.reader.close()

    async def follow(self, emit: Emit) -> End:
        try:
            while True:
                item = await self.reader.receive()
                if isinstance(item, End):
                    return item
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, list):
                    # No stream is open: the run is over, and the next one waits for the answer.
                    self._answers.post(await ask_all(emit, item))
                else:
                    emit(item)
        finally:
            self.reader.close()

    async def cancel(self, sent: Callable[[], None]) -> None:
        self._stopping = True
        if self._leaving is not None:
            self._leaving.cancel()
        # While a person is asked there is no run. Then the denial begins one.
        while (run_id := self._account.run_id) is None:
            if self._astray:
                raise BackendLost("the run of this turn is lost: look at what the agent does")
            await self._running.wait()
        await self._wire.cancel(self._session.agent_id, run_id, sent)

    async def _cancel_unheard(self) -> None:
        run_id = self._account.run_id
        if run_id is not None:
            with suppress(BackendError):
                await self._wire.cancel(self._session.agent_id, run_id, lambda: None)

    async def read(self) -> None:
        """The reader's task: to the end, which it posts."""
        outcome: End | Exception
        try:
            outcome = await self._converse()
        except trio.Cancelled:
            # By follow's end, and then nobody hears it; or Letta was closed under its rooms.
            self.reader.post(BackendLost("Letta was closed: open it around its rooms"))
            raise
        except BackendError as error:
            outcome = error
        except Exception as error:
            outcome = BackendMisbehaved(f"what Letta said makes no sense: {error!r}")
        self.reader.post(outcome)
        if isinstance(outcome, Exception):
            self._failure = outcome
            self._astray = not (isinstance(outcome, BackendLost) and outcome.gone)
        if self._astray:
            # What waits for a run to cancel waits no longer.
            self._running.set()
        self._revealed.set()
        if isinstance(outcome, BackendRefused):
            # Last, for who waits for the start need not wait for this.
            with suppress(BackendError):
                await self._drop_made()

    async def _converse(self) -> End:
        if self._begin != "here":
            self._made = await self._make_conversation()
            self._session = attrs.evolve(self._session, conversation_id=self._made, run_id=None)
            if self._abandoned:
                await self._drop_made()
                raise BackendLost("nobody waits for this turn any more")
        messages: list[Message] = [{"role": "user", "content": self._content}]
        if self._session.asked:
            messages.insert(0, denial(self._session.asked))
        await self._say_where("made" if self._made else self._known_place())
        await self._send(messages)
        while asked := self._account.take_asked():
            # A history with a question that nobody answers takes no other message.
            self._session = attrs.evolve(self._session, asked=tuple(one.id for one in asked))
            if self._stopping:
                # It asked instead of ending for its cancel. Another run would need another one.
                return End(How.CANCELLED, Proof.EVENT, usage=self._account.usage)
            self._running = trio.Event()
            self.reader.post(asked)
            try:
                await self._answer()
            except BackendRefused as error:
                # The run that asked is over, and no other began.
                raise BackendLost(f"the tool call was not answered: {error}", gone=True) from error
        if self._account.cancelled:
            return self._account.end(await self._see_it_out())
        return self._account.end(Proof.EVENT)

    async def _make_conversation(self) -> str:
        agent_id, conversation_id = self._session.agent_id, self._session.conversation_id
        if self._begin == "forked":
            # A server that cannot do it, or not now, has fresh ones.
            with suppress(BackendError):
                return await self._wire.fork(agent_id, conversation_id)
        made = await self._wire.make_conversation(agent_id)
        # Nothing is asked in it.
        self._session = attrs.evolve(self._session, asked=())
        return made

    async def _drop_made(self) -> None:
        if self._made is not None:
            await self._wire.drop_conversation(self._made)

    async def _answer(self) -> None:
        answer = await self._answers.receive()
        try:
            await self._say_where("answer")
        except BackendRefused:
            # It is being stopped: what leaves is a denial, which no disk holds up.
            self._stopping = True
        with trio.CancelScope() as scope:
            if not self._stopping:
                # Where nothing tells that it has left, it may have.
                self._leaving = scope if self._tells else None
                await self._send([answer])
                return
        if scope.cancelled_caught and self._leaving is None:
            raise BackendLost("an approval left as the turn was stopped: look at what it does")
        # What was approved before the stop, and had not left by then, is not approved any more.
        await self._send([denial(self._session.asked)])

    def _left(self) -> None:
        self._tells, self._leaving = True, None

    def _known_place(self) -> Place:
        return "room" if self._session.conversation_id else "shared"

    async def _say_where(self, place: Place) -> None:
        """Announce what is sent next, which begins a run."""
        self._place, self._mark = place, str(uuid.uuid4())
        self._since = self._session.run_id
        await self._announce(self.address)

    async def _send(self, messages: Sequence[Message]) -> None:
        session = self._session
        where = session.agent_id, session.conversation_id
        await self._wire.send(*where, messages, self._mark, self._hear, self._left)

    def _hear(self, kind: str, frame: Frame) -> None:
        for event in self._account.hear(kind, frame):
            if self._session.asked:
                # An answer is written down before the model is asked again.
                self._session = attrs.evolve(self._session, asked=())
            self.reader.post(event)
        if self._account.run_id is not None:
            if self._session.run_id != self._account.run_id:
                self._session = attrs.evolve(self._session, run_id=self._account.run_id)
            self._running.set()
            self._revealed.set()

    async def _see_it_out(self) -> Proof:
        """What shows that the model call of a cancelled run is over.

        The stop reason does not: the server says it, and lets go of the call some time later. It
        traces each call when that has ended.
        """
        assert self._account.run_id is not None
        step = None
        for pause in _LOOKS:
            await trio.sleep(pause)
            try:
                step = step or await self._wire.newest_step(self._account.run_id)
                if step is None or await self._wire.is_traced(step.id):
                    return Proof.EVENT
            except BackendError:
                continue
        return Proof.CLAIMED
