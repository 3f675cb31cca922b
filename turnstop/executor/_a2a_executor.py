"""What the SDK's server has do the work. For `a2a`, in asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast, final
from weakref import WeakSet

from a2a.helpers import get_message_text
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2 as wire

from ..events import Text
from ._a2a_work import Words, Work, room_of
from ._executor import Executor
from ._task import Began, Outcome, TaskState

__all__ = ["A2AExecutor"]

_STATES = {
    TaskState.COMPLETED: wire.TASK_STATE_COMPLETED,
    TaskState.CANCELED: wire.TASK_STATE_CANCELED,
    TaskState.FAILED: wire.TASK_STATE_FAILED,
    TaskState.INPUT_REQUIRED: wire.TASK_STATE_INPUT_REQUIRED,
}
_OPEN: Final = (
    wire.TASK_STATE_SUBMITTED,
    wire.TASK_STATE_WORKING,
    wire.TASK_STATE_INPUT_REQUIRED,
)


def _text_of(context: RequestContext) -> str:
    return get_message_text(context.message) if context.message is not None else ""


@final
class A2AExecutor(AgentExecutor):
    """What the SDK's server has do the work: each message is a task of an `Executor`.

    Args:
        executor: `Text` is published as pieces of an artifact, a result as an artifact of its own,
            and `InputRequired` asks; other events are not published.
        content: makes of a request what the function is given; the message's text by default.
        room: names the room that a request's task is done in, one after another. By default
            that is the context of its user, `quoted name/context`, which is the context alone
            where the server knows no users: nobody comes to another user's room.

    What `content` or `room` raises is answered as the SDK answers any error of an executor, and
    a task that is there has FAILED.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        content: Callable[[RequestContext], object] = _text_of,
        room: Callable[[RequestContext], str] = room_of,
    ) -> None:
        self._executor = executor
        self._content = content
        self._room = room
        self._live: dict[str, Work] = {}
        self._refused: set[str] = set()
        self._queues: WeakSet[EventQueue] = WeakSet()
        self._is_closed = False

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Publish the task, have it done, and stay until it has ended.

        **Cancellation:** (asyncio's) asks for a stop, and waits for the end all the same.
        """
        task_id = context.task_id or ""
        if task_id in self._refused:
            return
        self._queues.add(event_queue)
        words = Words(context, event_queue)
        order = self._room(context), self._content(context)
        work = Work(self._executor, context, *order, event_queue)
        if self._is_closed:
            work.stop()
        self._live[task_id] = work
        try:
            if context.current_task is None and context.message is not None:
                # Before anything that waits: a cancel finds it from here on.
                await work.insist(words.submitted(context.message))
            await self._follow(work, words)
        finally:
            if self._live.get(task_id) is work:
                del self._live[task_id]
            work.ended.set()

    async def _follow(self, work: Work, words: Words) -> None:
        work.begin()
        try:
            while not work.over:
                await self._pass_on(await work.next(), work, words)
        except Exception:
            # It cannot be said. What goes on could not be cancelled any more.
            await work.end()
            raise

    async def _pass_on(self, update: Any, work: Work, words: Words) -> None:
        if isinstance(update, Began):
            await work.insist(words.status(wire.TASK_STATE_WORKING))
        elif isinstance(update, Text):
            await work.insist(words.piece(update.delta))
        elif isinstance(update, Outcome):
            await work.insist(words.result(update.result))
            asks = update.state is TaskState.INPUT_REQUIRED
            if not (asks and work.asked):
                await work.insist(words.status(_STATES[update.state], update.text))
            # Also where the cancel came while it asked: it would wait for an answer for ever.
            if asks and work.asked:
                await work.insist(words.status(wire.TASK_STATE_CANCELED))

    def live(self) -> dict[str, Work]:
        """What is worked on, by the ids of the tasks."""
        return dict(self._live)

    def close(self) -> None:
        """Ask what is worked on for a stop, and what comes from here on."""
        self._is_closed = True
        for work in self._live.values():
            work.stop()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Ask for a stop; never waits for the work, since the SDK holds the task's lock meanwhile.

        Of a task that the SDK has given up it closes the queue, which waits for who reads there.

        **Cancellation:** (asyncio's) it is asked for all the same.
        """
        task_id, task = context.task_id or "", context.current_task
        if (work := self._live.get(task_id)) is not None:
            work.stop()
        elif task is not None and task.status.state in _OPEN:
            is_fresh = event_queue not in self._queues
            if is_fresh or task.status.state == wire.TASK_STATE_INPUT_REQUIRED:
                await self._close_task(Words(context, event_queue), task_id)
            if is_fresh:
                # Who else would do so is cancelled before it has begun.
                await cast("Any", event_queue).close(immediate=False)

    async def _close_task(self, words: Words, task_id: str) -> None:
        # Nothing works on it. Nor will the answer that may be on its way.
        self._refused.add(task_id)
        try:
            await words.status(wire.TASK_STATE_CANCELED)
        finally:
            self._refused.discard(task_id)
