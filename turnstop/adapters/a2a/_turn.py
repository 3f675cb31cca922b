"""One message to an A2A agent, from the moment it can be cancelled to the end of its work."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import attrs
import trio
from a2a.types import a2a_pb2 as pb

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...abc import Emit, End, How, Proof
from ...events import Event, Text
from ...transports.reading import Reader
from ._account import Account, has_answered, is_waiting
from ._address import Address
from ._wire import (
    INVALID_RESPONSE,
    NOT_CANCELABLE,
    NOT_FOUND,
    REFUSALS,
    TASK_IS_OVER,
    AgentError,
    Wire,
)

Said = TypeVar("Said")

_RECONNECT_PAUSES: Final = (0.05, 0.2, 1.0)
_FIRST_POLL: Final = 0.05
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25


@attrs.frozen
class A2ASession:
    """What a room's next turn continues.

    Attributes:
        context_id: the conversation. Chosen here, unless the agent insists on its own.
        task_id: the task that waits for an answer; None where the next turn begins a new one.
    """

    context_id: str
    task_id: str | None = None

    def __str__(self) -> str:
        waiting = f", task {self.task_id} waits" if self.task_id else ""
        return f"context {self.context_id}{waiting}"


@final
class A2ATurn:
    """A message and the task that it began, or continues."""

    def __init__(
        self, wire: Wire, message: pb.Message, poll_every: float, task_id: str = ""
    ) -> None:
        self._wire = wire
        self._message = message
        self._poll_every = poll_every
        self._revealed = trio.Event()
        self._heard = trio.Event()
        self._told = False
        self._failure: Exception | None = None
        self._refusal: Exception | None = None
        self.reader: Reader[Event | End | Exception] = Reader()
        known = task_id or message.task_id or None
        self._account = Account(self.reader.post, message.context_id, known)

    @property
    def session(self) -> A2ASession:
        """The context; with the task, where that waits for an answer."""
        waiting = self._account.task_id if self._account.waits else None
        return A2ASession(self._account.context_id, waiting)

    @property
    def address(self) -> str:
        """Where it is; without the task until that is known."""
        account, message = self._account, self._message
        known = message.message_id, account.task_id or "", message.task_id
        return str(Address(self._wire.url, account.context_id, *known))

    async def find(self) -> None:
        """Look for the task of a message that another process has sent.

        An agent need not show a task before it has something to say of it; so one that is not
        found may be at work.
        """
        pauses = list(_RECONNECT_PAUSES)
        while not await self._is_there():
            if not pauses:
                raise BackendLost("the agent shows no task of this turn: look at what it does")
            await trio.sleep(pauses.pop(0))
        self._revealed.set()

    async def _is_there(self) -> bool:
        try:
            if self._account.task_id is None:
                return await self._look_up() is not None
            if not self._message.task_id:
                return True
            # One that waits may do so as it did before our message came, which is on its way to
            # it, or was just taken: it moves when its agent says something.
            task = await self._wire.get(self._message.task_id)
            return not is_waiting(task) or has_answered(task, self._message.message_id)
        except AgentError as error:
            raise BackendLost(f"the agent does not tell its tasks: {error}") from error
        except BackendRefused as error:
            # It did not refuse the turn: nothing was begun here.
            raise BackendLost(str(error)) from error

    async def listen(self) -> None:
        """Return when its stream is read, or will not be: told earlier, its end would be missed."""
        if self._wire.streams:
            await self._heard.wait()

    async def reveal(self) -> None:
        """Return when the agent can be told to cancel; raise what came instead."""
        await self._revealed.wait()
        if self._refusal is not None:
            raise self._refusal

    async def look_out(self) -> None:
        """Find the task of an agent that may answer at its end only: then it can be cancelled."""
        pause = _FIRST_PAUSE
        while not self._revealed.is_set():
            await trio.sleep(pause)
            pause = min(pause * 1.5, self._poll_every)
            try:
                found = await self._look_up()
            except AgentError:
                return
            except BackendError:
                continue
            if found is not None:
                self._revealed.set()

    async def undo(self) -> None:
        """End what begins after nobody waits for it any more."""
        await self._revealed.wait()
        if self._refusal is None and not self._account.over:
            with contextlib.suppress(BackendError):
                await self.cancel(lambda: None)
        self.reader.close()

    async def follow(self, emit: Emit) -> End:
        try:
            while True:
                item = await self.reader.receive()
                if isinstance(item, End):
                    return item
                if isinstance(item, Exception):
                    raise item
                emit(item)
        finally:
            self.reader.close()

    async def cancel(self, sent: Callable[[], None]) -> None:
        self._told = True
        pause = _FIRST_PAUSE
        while not await self._tell(sent):
            if self._failure is not None:
                raise BackendLost("the agent knows no task of this turn: look at what it does")
            await trio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _tell(self, sent: Callable[[], None]) -> bool:
        """Whether the agent has taken the cancel; False: it cannot be told yet."""
        try:
            if self._account.task_id is None:
                return False
            task = await self._wire.cancel(self._account.task_id, sent)
        except AgentError as error:
            if error.code == NOT_FOUND:
                return False
            if error.code == NOT_CANCELABLE:
                return True
            raise BackendRefused(f"the agent does not cancel: {error}") from error
        except BackendError:
            if self._failure is not None:
                raise
            return False
        if not self._wire.streams:
            self._account.hear_task(task)
            if self._account.over:
                self.reader.post(self._account.end(Proof.CLAIMED))
        return True

    async def _look_up(self) -> str | None:
        found = await self._wire.find(self._account.context_id, self._message.message_id)
        self._account.task_id = self._account.task_id or found
        return found

    async def _arrived(self) -> bool:
        try:
            return await self._look_up() is not None
        except (AgentError, BackendError):
            return False

    async def read(self) -> None:
        """The reader's task: to the end, which it posts."""
        await self._read(self._read_stream if self._wire.streams else self._read_states)

    async def read_on(self) -> None:
        """The same, of a task that another process has begun."""
        await self._read(self._resume if self._wire.streams else self._look_on)

    async def _read(self, fn: Callable[[], Awaitable[End | Exception]]) -> None:
        try:
            outcome = await fn()
        except trio.Cancelled:
            # By follow's end, and then nobody hears it; or the agent was closed under its rooms.
            self.reader.post(BackendLost("the agent was closed: open it around its rooms"))
            raise
        except AgentError as error:
            outcome = self._judge_answer(error)
        except Exception as error:
            outcome = self._judge_failure(error)
        if isinstance(outcome, Exception):
            self._failure = outcome
            # Once it was revealed, the failure is follow's to raise: then it can be cancelled.
            self._refusal = None if self._revealed.is_set() else outcome
        self.reader.post(outcome)
        self._revealed.set()
        self._heard.set()

    async def _read_stream(self) -> End | Exception:
        try:
            await self._begin(self._send_streaming)
        except BackendLost:
            if self._account.task_id is None or not self._revealed.is_set():
                raise
            return await self._resume()
        return await self._resume(Proof.STREAM)

    async def _resume(self, proof: Proof = Proof.CLAIMED) -> End:
        """The end, if the stream that is over said it; else from another stream of the task."""
        self._account.believe()
        pauses = list(_RECONNECT_PAUSES)
        lost: Exception = BackendLost("the agent closed the stream before the task's end")
        while not self._account.over:
            if self._account.task_id is None or not pauses:
                raise lost
            await trio.sleep(pauses.pop(0))
            heard = self._account.heard
            try:
                proof = await self._subscribe(self._account.task_id)
            except (AgentError, BackendError) as error:
                proof, lost = Proof.CLAIMED, self._judge_failure(error)
                if isinstance(error, AgentError) and error.code == NOT_FOUND:
                    raise lost from error
            if self._account.heard > heard + 1:
                pauses = list(_RECONNECT_PAUSES)
        return self._account.end(proof)

    async def _subscribe(self, task_id: str) -> Proof:
        self._account.hear_task(await self._wire.get(task_id))
        if self._account.over:
            return Proof.CLAIMED
        request = pb.SubscribeToTaskRequest(id=task_id)
        await self._wire.stream("SubscribeToTask", request, self._hear_again)
        return Proof.STREAM

    async def _read_states(self) -> End | Exception:
        try:
            said = await self._begin(self._send_polling)
        except BackendLost:
            # What was sent may be at work: an agent that answers at the end only may still say so.
            if not (self._revealed.is_set() or await self._arrived()):
                raise
            said = None
        if said is not None:
            self.reader.post(Text(said))
            return End(How.COMPLETED, Proof.EVENT)
        return await self._look_on()

    async def _look_on(self) -> End:
        pause = _FIRST_POLL
        while not self._account.over:
            await trio.sleep(pause)
            pause = min(pause * 1.5, self._poll_every)
            self._account.hear_task(await self._poll())
        return self._account.end(Proof.CLAIMED)

    async def _poll(self) -> pb.Task:
        assert self._account.task_id is not None
        for pause in (*_RECONNECT_PAUSES, None):
            try:
                return await self._wire.get(self._account.task_id)
            except AgentError as error:
                raise self._judge_failure(error) from error
            except BackendError:
                if pause is None:
                    raise
                await trio.sleep(pause)
        raise AssertionError("unreachable")

    async def _begin(self, send: Callable[[], Awaitable[Said]]) -> Said:
        try:
            if self._message.task_id:
                self._account.begin_at(await self._wire.get(self._message.task_id))
            return await send()
        except AgentError as error:
            # The task that waited for this answer is over, or the agent has forgotten it. Never
            # once a cancel was asked for: it may have been what ended the task.
            over = error.code in TASK_IS_OVER and self._message.task_id
            if not over or self._told or self._account.heard:
                raise
            self._message.task_id, self._account.task_id = "", None
            return await send()

    async def _send_streaming(self) -> None:
        request = pb.SendMessageRequest(message=self._message)
        await self._wire.stream("SendStreamingMessage", request, self._hear)

    async def _send_polling(self) -> str | None:
        request = pb.SendMessageRequest(message=self._message)
        answer = await self._wire.send(request)
        if isinstance(answer, str):
            return answer
        self._account.hear_task(answer)
        self._revealed.set()
        return None

    def _hear(self, event: pb.StreamResponse) -> None:
        self._account.hear(event)
        self._revealed.set()
        self._heard.set()

    def _hear_again(self, event: pb.StreamResponse) -> None:
        self._hear(event)
        # Nobody closes this stream while the task waits for a person.
        if self._account.waits:
            raise AgentError(None, "the task waits for an answer")

    def _judge_answer(self, error: AgentError) -> End | Exception:
        """An error answer is this turn's end, unless nothing began, or the work may go on."""
        if error.code == INVALID_RESPONSE:
            return BackendMisbehaved(f"the agent broke off, and its work may go on: {error}")
        if error.code in REFUSALS and not self._revealed.is_set():
            return BackendRefused(f"the agent refused the message: {error}")
        return End(How.FAILED, Proof.EVENT, detail=str(error))

    def _judge_failure(self, error: Exception) -> Exception:
        if isinstance(error, AgentError):
            return BackendLost(f"the agent no longer follows the task: {error}")
        if isinstance(error, BackendRefused) and self._revealed.is_set():
            return BackendLost(str(error))
        if isinstance(error, BackendError):
            return error
        return BackendMisbehaved(f"the agent's answer makes no sense: {error!r}")
