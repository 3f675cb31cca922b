"""One turn of Claude: followed to its own result, interrupted, killed, swept up after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import trio

from ...abc import Emit, End, How
from ...transports.jsonrpc import Incoming, Topic
from ...transports.offspring import Offspring
from ...transports.orphans import ProcessAddress
from ...transports.peer import Peer
from ...transports.proctable import TableEntry
from ...transports.serving import ask_person, open_serving
from ._asks import cancelled, decline, to_answer, to_ask
from ._events import Translator
from ._interrupt import interrupt
from ._left import BackgroundTask, Left
from ._session import ClaudeSession

ClaudeContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of Claude may be asked: a text, or content blocks of the Messages API."""

_LIFECYCLE = "msg_lifecycle_v1"
_FATES = {
    "cancelled": How.CANCELLED,
    "discarded": How.CANCELLED,
    "refused": How.FAILED,
    "completed": How.COMPLETED,
}


@final
class ClaudeTurn:
    """A turn, named by the uuid of its message.

    Attributes:
        session: the conversation.
        address: where another process finds it, should this one die.
    """

    def __init__(
        self,
        peer: Peer,
        topic: Topic,
        session: ClaudeSession,
        where: ProcessAddress,
        offspring: Offspring,
    ) -> None:
        self.session = session
        self.address = str(where)
        self._peer = peer
        self._topic = topic
        self._message = where.turn
        self._left = Left(peer.rpc, offspring)
        self._translator = Translator()
        self._messages: set[str] = set()
        self._begun = trio.Event()
        self._over = trio.Event()

    def __repr__(self) -> str:
        return f"<ClaudeTurn {self._message} of session {self.session}>"

    async def follow(self, emit: Emit) -> End:
        """Read the conversation until it says what became of this turn."""
        try:
            async with open_serving() as serving:
                while True:
                    incoming = await self._topic.receive()
                    if incoming.method == "control_cancel_request":
                        serving.withdraw(incoming.params.get("request_id"))
                    elif (end := self._read(incoming)) is not None:
                        # Of a message that never began, Claude has written nothing down.
                        self.session.answered |= self._begun.is_set()
                        return end
                    elif not self._begun.is_set():
                        # It is of an earlier turn, or of one that Claude began by itself.
                        decline(incoming)
                    elif incoming.wants_reply:
                        self._ask(serving.start, emit, incoming)
                    else:
                        self._tell(emit, incoming)
        finally:
            self._over.set()
            self._topic.close()

    def _read(self, incoming: Incoming) -> End | None:
        """Learn where the turn is; its end, if this is it."""
        params = incoming.params
        if incoming.method == "system/init":
            can = params.get("capabilities")
            self.session.lifecycle = isinstance(can, list) and _LIFECYCLE in can
            if not self.session.lifecycle:
                self._begun.set()
            # A command such as /clear begins another, and that is what there is to resume.
            number = params.get("session_id")
            self.session.number = number if isinstance(number, str) else self.session.number
        elif incoming.method == "command_lifecycle" and self._is_mine(params):
            state = str(params.get("state"))
            if state == "started":
                self._begun.set()
            elif state in _FATES:
                return End(_FATES[state], usage=self._translator.usage)
        elif incoming.method == "result" and self._is_mine(params):
            return self._end(incoming)
        return None

    def _is_mine(self, params: Mapping[str, Any]) -> bool:
        named = params.get("command_uuid") or params.get("user_message_uuid")
        if named is None:
            # An old Claude names none. Its turns come one after the other, and so do their results.
            return self._begun.is_set()
        several = params.get("user_message_uuids")
        return named == self._message or (isinstance(several, list) and self._message in several)

    def _end(self, result: Incoming) -> End:
        params, usage = result.params, self._translator.total(result)
        if not params.get("is_error"):
            return End(How.COMPLETED, usage=usage)
        if str(params.get("terminal_reason")).startswith("aborted"):
            return End(How.CANCELLED, usage=usage)
        errors = params.get("errors")
        told = [str(one) for one in errors] if isinstance(errors, list) else []
        detail = str(params.get("result") or "; ".join(told) or params.get("subtype"))
        return End(How.FAILED, usage=usage, detail=detail)

    def _is_late(self, incoming: Incoming) -> bool:
        """Whether it is a word of an earlier turn's: of a message that this one has not begun."""
        params = incoming.params
        if not self._is_mine(params):
            return True
        number = params.get("api_message_id")
        if incoming.method != "stream_event" or number is None:
            return False
        event = params.get("event")
        if isinstance(event, dict) and event.get("type") == "message_start":
            self._messages.add(str(number))
        return str(number) not in self._messages

    def _tell(self, emit: Emit, incoming: Incoming) -> None:
        if self._is_late(incoming):
            return
        self._left.note(incoming)
        for event in self._translator.translate(incoming):
            emit(event)

    def _ask(self, start: Callable[..., None], emit: Emit, incoming: Incoming) -> None:
        ask = to_ask(incoming)
        if ask is None:
            decline(incoming)
        else:
            start(incoming, ask_person(emit, ask, to_answer, cancelled))

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Interrupt the turn, or cancel its message where it has not begun."""
        await interrupt(self._peer.rpc, self._begun, self._over, sent)

    async def kill(self) -> None:
        """End the room's process: SIGTERM to its group, which ends its tools, then SIGKILL.

        Raises:
            BackendLost: it is not gone.
        """
        self._peer.process.hasten()
        await self.session.process.end()
        if not (loss := self._peer.loss()).gone:
            raise loss

    async def leftovers(self) -> list[BackgroundTask | TableEntry]:
        """The background tasks and the processes that it started and that are there."""
        return await self._left.find()

    async def sweep(self, leftovers: Sequence[object]) -> list[BackgroundTask | TableEntry]:
        """End them, and what they start on their way out."""
        return await self._left.end(leftovers)
