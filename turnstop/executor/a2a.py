"""An executor as an agent of the A2A protocol, behind the server of a2a-sdk. Needs `a2a-sdk`.

    async with open_executor(agent) as executor:
        handler = A2AHandler(A2AExecutor(executor), InMemoryTaskStore(), card)
        # handler goes into the SDK's routes; its asyncio loop runs in a thread, or on Trio.

What it answers is what the SDK's own server answers (A2A 1.0; a2a-sdk 1.3.0), but for one thing:
CANCELED is said when the work has ended, and never before. The SDK has an executor say CANCELED
when it is asked to cancel, and cancels the asyncio task that runs it. Here that task stays, which
keeps the task's streams open; it asks the function to stop, and says CANCELED at the end.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any, final

from a2a.helpers import (
    get_message_text,
    new_task_from_user_message,
    new_text_artifact,
    new_text_message,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import a2a_pb2 as wire

from .._errors import RoomsClosed
from ..events import Text
from ._executor import Executor
from ._task import Began, Outcome, Task, TaskState

__all__ = ["A2AExecutor", "A2AHandler"]

logger = logging.getLogger("turnstop.executor.a2a")

_STATES = {
    TaskState.COMPLETED: wire.TASK_STATE_COMPLETED,
    TaskState.CANCELED: wire.TASK_STATE_CANCELED,
    TaskState.FAILED: wire.TASK_STATE_FAILED,
    TaskState.INPUT_REQUIRED: wire.TASK_STATE_INPUT_REQUIRED,
}


def _text_of(context: RequestContext) -> str:
    return get_message_text(context.message) if context.message is not None else ""


class _Words:
    """What is said of one task on its queue. A cancellation of asyncio's interrupts no word."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self._task_id, self._context_id = context.task_id or "", context.context_id or ""
        self._queue = queue
        self._piece = ""

    async def submitted(self, message: wire.Message) -> None:
        task = new_task_from_user_message(message)
        task.id, task.context_id = self._task_id, self._context_id
        await self._queue.enqueue_event(task)

    async def status(self, state: wire.TaskState, text: str = "") -> None:
        ids = (self._context_id, self._task_id)
        said = new_text_message(text, None, *ids) if text else None
        status = wire.TaskStatus(state=state, message=said)
        status.timestamp.GetCurrentTime()
        event = wire.TaskStatusUpdateEvent(task_id=ids[1], context_id=ids[0], status=status)
        await self._queue.enqueue_event(event)

    async def piece(self, text: str) -> None:
        """A piece of the answer: all of them are one artifact."""
        append, self._piece = bool(self._piece), self._piece or str(uuid.uuid4())
        await self._artifact(new_text_artifact("answer", text, artifact_id=self._piece), append)

    async def result(self, result: object) -> None:
        if result is not None:
            if not isinstance(result, wire.Artifact):
                result = new_text_artifact("result", str(result))
            await self._artifact(result)

    async def _artifact(self, artifact: wire.Artifact, append: bool = False) -> None:
        event = wire.TaskArtifactUpdateEvent(
            task_id=self._task_id, context_id=self._context_id, artifact=artifact, append=append
        )
        await self._queue.enqueue_event(event)


class _Work:
    """One message being worked on: the asyncio half. What begins with `_trio` runs in Trio."""

    def __init__(self, executor: Executor, room: str, content: object) -> None:
        self._executor = executor
        self._order = (room, content)
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[Any] = asyncio.Queue()
        self._task: Task | None = None
        self._stopped = False

    def begin(self) -> None:
        self._executor.token.run_sync_soon(self._trio_begin)

    def stop(self) -> None:
        """Cancel it. Also before it has begun, and any number of times."""
        self._executor.token.run_sync_soon(self._trio_stop)

    async def next(self) -> Any:
        """What it says next. A cancellation is a stop: what is said at the end is waited for."""
        while True:
            try:
                return await self._updates.get()
            except asyncio.CancelledError:
                self.stop()

    async def insist(self, saying: Any) -> None:
        """Say it to the end: a cancellation is a stop here too."""
        said = asyncio.ensure_future(saying)
        while not said.done():
            try:
                await asyncio.wait({said})
            except asyncio.CancelledError:
                self.stop()
        said.result()

    def _trio_begin(self) -> None:
        room, content = self._order
        try:
            self._task = self._executor.submit(room, content, hear=self._trio_hear)
        except RoomsClosed as error:
            self._trio_hear(Outcome("", room, TaskState.FAILED, error=error, text=str(error)))
        else:
            if self._stopped:
                self._task.cancel(source="a2a")

    def _trio_stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel(source="a2a")

    def _trio_hear(self, update: object) -> None:
        self._loop.call_soon_threadsafe(self._updates.put_nowait, update)


@final
class A2AExecutor(AgentExecutor):
    """What the SDK's server has do the work: each message is a task of an `Executor`.

    Args:
        executor: its room is the message's context, so the tasks of one context are done one after
            another. `Text` is published as pieces of an artifact, a result as an artifact of its
            own, and `InputRequired` asks; other events are not published.
        content: makes of a request what the function is given; the message's text by default.
    """

    def __init__(
        self, executor: Executor, *, content: Callable[[RequestContext], object] = _text_of
    ) -> None:
        self._executor = executor
        self._content = content
        self._live: dict[str, _Work] = {}
        self._closing: set[str] = set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Publish the task, have it done, and stay until it has ended.

        **Cancellation:** (asyncio's) asks for a stop, and waits for the end all the same.
        """
        task_id = context.task_id or ""
        if task_id in self._closing:
            return
        words = _Words(context, event_queue)
        work = _Work(self._executor, context.context_id or "", self._content(context))
        self._live[task_id] = work
        try:
            if context.current_task is None and context.message is not None:
                # Before anything that waits: a cancel finds it from here on.
                await work.insist(words.submitted(context.message))
            work.begin()
            await self._follow(work, words)
        finally:
            del self._live[task_id]

    async def _follow(self, work: _Work, words: _Words) -> None:
        while True:
            update = await work.next()
            if isinstance(update, Began):
                await work.insist(words.status(wire.TASK_STATE_WORKING))
            elif isinstance(update, Text):
                await work.insist(words.piece(update.delta))
            elif isinstance(update, Outcome):
                await work.insist(words.result(update.result))
                await work.insist(words.status(_STATES[update.state], update.text))
                return

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Ask for a stop; never waits, since the SDK holds the task's lock meanwhile.

        **Cancellation:** (asyncio's) it is asked for all the same.
        """
        task_id, task = context.task_id or "", context.current_task
        if (work := self._live.get(task_id)) is not None:
            work.stop()
        elif task is not None and task.status.state == wire.TASK_STATE_INPUT_REQUIRED:
            # Nothing works on it. Nor will the answer that may be on its way.
            self._closing.add(task_id)
            try:
                await _Words(context, event_queue).status(wire.TASK_STATE_CANCELED)
            finally:
                self._closing.discard(task_id)


class A2AHandler(DefaultRequestHandler):
    """The SDK's request handler, with a bound to how long `tasks/cancel` waits for the end.

    Args:
        answer_within: seconds, after which a task whose work goes on is answered as it is, that
            is WORKING. Its streams, and whoever asks later, are told CANCELED at the end.
        args: as for the SDK's; so are all further ones.
    """

    def __init__(self, *args: Any, answer_within: float = 2.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answer_within = answer_within
        self._cancelling: set[asyncio.Future[Any]] = set()

    async def on_cancel_task(
        self, params: wire.CancelTaskRequest, context: ServerCallContext
    ) -> wire.Task | None:
        """Cancel a task, and answer when it has ended, or cannot be waited for.

        **Cancellation:** (asyncio's) the task is cancelled all the same.
        """
        cancelling: asyncio.Future[wire.Task | None] = asyncio.ensure_future(
            super().on_cancel_task(params, context)
        )
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._forget)
        await asyncio.wait({cancelling}, timeout=self._answer_within)
        if cancelling.done():
            return cancelling.result()
        found: wire.Task | None = await self.on_get_task(wire.GetTaskRequest(id=params.id), context)
        return found

    def _forget(self, cancelling: asyncio.Future[Any]) -> None:
        self._cancelling.discard(cancelling)
        if not cancelling.cancelled() and (error := cancelling.exception()) is not None:
            logger.debug("a cancel was answered by %r", error)
