"""One message of the A2A protocol: what is said of it, and what is done. For `a2a`, in asyncio."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from a2a.helpers import new_task_from_user_message, new_text_artifact, new_text_message
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2 as wire
from trio import RunFinishedError
from trio.lowlevel import enable_ki_protection

from ..events import Text
from ._executor import Executor
from ._task import Began, Outcome, Task, TaskState

__all__ = ["Words", "Work", "room_of"]

logger = logging.getLogger("turnstop.executor.a2a")

_LOOK_EVERY: Final = 1.0


def _sayable(text: str) -> str:
    """The text, with a question mark for each half of a character, which no message can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _context_id_of(context: RequestContext) -> str:
    # Who goes on with a task may leave its context out, and the SDK then makes up another.
    task = context.current_task
    return (task.context_id if task is not None else "") or context.context_id or ""


def room_of(context: RequestContext) -> str:
    """The caller's room of this context: no other user comes to it, whatever context they name.

    A context's id is its client's choice. So a user's name stands before it, quoted, which leaves
    no slash in it. Whoever has none has the bare context; where that has a slash in it, and might
    be taken for a user's, one more stands before it: no room of a user's begins with a slash.
    """
    user, context_id = context.call_context.user.user_name, _context_id_of(context)
    if not user and "/" not in context_id:
        return context_id
    return f"{quote(user, safe='', errors='surrogatepass')}/{context_id}"


def _text_of(result: object) -> str:
    try:
        return str(result)
    except Exception as error:
        # The work is done, whatever its result says of itself: the caller is told what others are.
        kinds = type(result).__name__, type(error).__name__
        logger.warning("a result, of type %s, has no text: %s", *kinds)
        return "a result of type {}, whose text could not be made: {}".format(*kinds)


class Words:
    """What is said of one task on its queue. A cancellation of asyncio's interrupts no word."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self._task_id, self._context_id = context.task_id or "", _context_id_of(context)
        self._queue = queue
        self._piece = ""

    async def submitted(self, message: wire.Message) -> None:
        task = new_task_from_user_message(message)
        task.id, task.context_id = self._task_id, self._context_id
        await self._queue.enqueue_event(task)

    async def status(self, state: wire.TaskState, text: str = "") -> None:
        ids = (self._context_id, self._task_id)
        said = new_text_message(_sayable(text), None, *ids) if text else None
        status = wire.TaskStatus(state=state, message=said)
        status.timestamp.GetCurrentTime()
        event = wire.TaskStatusUpdateEvent(task_id=ids[1], context_id=ids[0], status=status)
        await self._queue.enqueue_event(event)

    async def piece(self, text: str) -> None:
        """A piece of the answer: all of them are one artifact."""
        append, self._piece = bool(self._piece), self._piece or str(uuid.uuid4())
        piece = new_text_artifact("answer", _sayable(text), artifact_id=self._piece)
        await self._artifact(piece, append)

    async def result(self, result: object) -> None:
        if result is not None:
            if not isinstance(result, wire.Artifact):
                result = new_text_artifact("result", _sayable(_text_of(result)))
            await self._artifact(result)

    async def _artifact(self, artifact: wire.Artifact, append: bool = False) -> None:
        event = wire.TaskArtifactUpdateEvent(
            task_id=self._task_id, context_id=self._context_id, artifact=artifact, append=append
        )
        await self._queue.enqueue_event(event)


class Work:
    """One message being worked on: the asyncio half. What begins with `_trio` runs in Trio.

    Attributes:
        caller: whose message it is.
        asked: it was asked to stop.
        over: its end was told.
        ended: set when nothing more is said of it.
    """

    def __init__(
        self,
        executor: Executor,
        context: RequestContext,
        room: str,
        content: object,
        queue: EventQueue,
    ) -> None:
        self._executor = executor
        # Its own id, by which its caller can cancel it, is the one that a refused claim names.
        self._order = (room, content, context.task_id or None)
        self.caller = context.call_context
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._updates: deque[Any] = deque()
        self._came = asyncio.Event()
        self._task: Task | None = None
        self._stopped = False
        self.asked = False
        self.over = False
        self.ended = asyncio.Event()

    def begin(self) -> None:
        self._executor.token.run_sync_soon(self._trio_begin)
        self.look()

    def stop(self) -> None:
        """Cancel it. Also before it has begun, and any number of times."""
        self.asked = True
        # Where Trio has ended, so has its work, and its end was told.
        with suppress(RunFinishedError):
            self._executor.token.run_sync_soon(self._trio_stop)

    def look(self) -> None:
        """See, now and then, that somebody keeps what it says; where the server has failed: stop.

        It could not be cancelled any more, and what it does would reach nobody.
        """
        if self.is_lost():
            self.stop()
        elif not self.over:
            self._loop.call_later(_LOOK_EVERY, self.look)

    def is_lost(self) -> bool:
        """Whether nobody keeps what is said of it: the server has failed, closes, or is done."""
        is_closed = getattr(self._queue, "is_closed", None)
        return is_closed is not None and is_closed()

    async def next(self) -> Any:
        """What it says next.

        **Cancellation:** (asyncio's) is a stop: what is said at the end is waited for.
        """
        while not self._updates:
            self._came.clear()
            try:
                await self._came.wait()
            except asyncio.CancelledError:
                self.stop()
        if isinstance(self._updates[0], Text):
            return Text("".join(self._next_pieces()))
        update = self._updates.popleft()
        self.over = isinstance(update, Outcome)
        return update

    def _next_pieces(self) -> Iterator[str]:
        # Together, where the server keeps them more slowly than they come.
        while self._updates and isinstance(self._updates[0], Text):
            yield self._updates.popleft().delta

    def _hear(self, update: Any) -> None:
        if isinstance(update, Outcome) and update.state is TaskState.CANCELED:
            # What it has not said by now is no part of an answer, and holds up its end.
            self._updates.clear()
        self._updates.append(update)
        self._came.set()

    async def end(self) -> None:
        """Stop it, and wait for its end, which is told to nobody.

        **Cancellation:** (asyncio's) it is waited for all the same.
        """
        self.stop()
        while not self.over:
            await self.next()

    async def wait_ended(self, until: float) -> None:
        """Until nothing more is said of it, or this time of the loop's clock.

        **Cancellation:** (asyncio's) it goes on.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self.ended.wait()

    async def insist(self, saying: Any) -> None:
        """Say it to the end.

        **Cancellation:** (asyncio's) is a stop: it is said all the same.
        """
        said = asyncio.ensure_future(saying)
        while not said.done():
            try:
                await asyncio.wait({said})
            except asyncio.CancelledError:
                self.stop()
        said.result()

    def _trio_begin(self) -> None:
        room, content, task_id = self._order
        try:
            self._task = self._executor.submit(room, content, task_id=task_id, hear=self._trio_hear)
        except Exception as error:
            # In here it would end the whole program.
            self._trio_hear(Outcome("", room, TaskState.FAILED, error=error, text=str(error)))
        else:
            if self._stopped:
                self._task.cancel(source="a2a")

    def _trio_stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel(source="a2a")

    @enable_ki_protection
    def _trio_hear(self, update: object) -> None:
        if isinstance(update, (Began, Text, Outcome)):
            # Where the loop is closed there is nobody to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hear, update)
