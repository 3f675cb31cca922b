"""One message to a Letta agent, from the first ping of its run to the end of its model call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, final

import attrs
import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...abc import Emit, End, How, Proof, Silenced
from ...events import Event
from ...transports.backlog import Backlog
from ...transports.reading import Reader
from ._account import Account
from ._events import DENY, Asked, Frame, deny
from ._wire import Message, Wire

LettaContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of a Letta agent may be asked: a text, or Letta's own list of content parts."""

# A cancelled run's model call is let go of by the server's garbage collector: most within some
# tenths of a second, a few much later.
_LOOKS: Final = (0.0, 0.02, 0.05, 0.1, *itertools.repeat(0.25, 15))


@attrs.frozen
class LettaSession:
    """What a room's next turn continues.

    Attributes:
        agent_id: the agent.
        conversation_id: its conversation; None where the room speaks in the agent's own history.
        asked: the tool calls that wait there for an approval, since the turn that they belong to
            was stopped as they asked. The next turn denies them.
    """

    agent_id: str
    conversation_id: str | None = None
    asked: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = self.conversation_id or "its own history"
        return f"{self.agent_id}, {where}"


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
    ) -> None:
        self.reader: Reader[_Item] = Reader()
        self._wire = wire
        self._session = session
        self._messages: list[Message] = [{"role": "user", "content": content}]
        if session.asked:
            self._messages.insert(0, _approval([deny(one) for one in session.asked]))
            self._session = attrs.evolve(session, asked=())
        self._begin: Begin = begin
        self._account = Account()
        self._running = trio.Event()
        self._answers: Backlog[Message] = Backlog()
        self._failure: Exception | None = None
        self._abandoned = self._told = False
        self._revealed = trio.Event()

    @property
    def session(self) -> LettaSession:
        """The agent, and the conversation."""
        return self._session

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
                    self._answers.post(await _ask(emit, item))
                else:
                    emit(item)
        finally:
            self.reader.close()

    async def cancel(self, sent: Callable[[], None]) -> None:
        # While a person is asked there is no run. Then the denial begins one.
        while (run_id := self._account.run_id) is None:
            if self._failure is not None:
                raise BackendLost("the run of this turn is lost: look at what the agent does")
            await self._running.wait()
        self._told = True
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
            # What waits for a run to cancel waits no longer.
            self._failure = outcome
            self._running.set()
        self._revealed.set()

    async def _converse(self) -> End:
        if self._begin != "here":
            made = await self._make_conversation()
            self._session = attrs.evolve(self._session, conversation_id=made)
            if self._abandoned:
                await self._wire.drop_conversation(made)
                raise BackendLost("nobody waits for this turn any more")
        await self._send(self._messages)
        while asked := self._account.take_asked():
            if self._told:
                # It asked instead of ending for its cancel. Another run would need another one.
                self._session = attrs.evolve(self._session, asked=tuple(one.id for one in asked))
                return End(How.CANCELLED, Proof.EVENT, usage=self._account.usage)
            self._running = trio.Event()
            self.reader.post(asked)
            try:
                await self._send([await self._answers.receive()])
            except BackendRefused as error:
                # Somebody else has answered. The run that asked is over, and no other began.
                return End(How.FAILED, Proof.EVENT, detail=str(error))
        if self._account.cancelled:
            return self._account.end(await self._see_it_out())
        return self._account.end(Proof.EVENT)

    async def _make_conversation(self) -> str:
        agent_id, conversation_id = self._session.agent_id, self._session.conversation_id
        if self._begin == "forked":
            # A server that cannot do it, or not now, has fresh ones.
            with suppress(BackendError):
                return await self._wire.fork(agent_id, conversation_id)
        return await self._wire.make_conversation(agent_id)

    async def _send(self, messages: Sequence[Message]) -> None:
        session = self._session
        await self._wire.send(session.agent_id, session.conversation_id, messages, self._hear)

    def _hear(self, kind: str, frame: Frame) -> None:
        for event in self._account.hear(kind, frame):
            self.reader.post(event)
        if self._account.run_id is not None:
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
                if step is None or await self._wire.is_traced(step):
                    return Proof.EVENT
            except BackendError:
                continue
        return Proof.CLAIMED


async def _ask(emit: Emit, asked: Sequence[Asked]) -> Message:
    replies: list[dict[str, Any]] = []
    for one in asked:
        try:
            reply = await emit.ask(one.to_ask())
        except Silenced:
            # The agent's history must not be left with a question that nobody answers.
            reply = DENY
        replies.append(one.to_return(reply))
    return _approval(replies)


def _approval(returns: list[dict[str, Any]]) -> Message:
    return {"type": "approval", "approvals": returns}
