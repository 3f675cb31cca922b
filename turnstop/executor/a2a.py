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
from collections.abc import Callable
from functools import partial
from typing import Any, final

from a2a.helpers import get_message_text
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import a2a_pb2 as wire

from ..events import Text
from ._a2a_work import Words, Work
from ._executor import Executor
from ._task import Began, Outcome, TaskState

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
        self._live: dict[str, Work] = {}
        self._closing: set[str] = set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Publish the task, have it done, and stay until it has ended.

        **Cancellation:** (asyncio's) asks for a stop, and waits for the end all the same.
        """
        task_id = context.task_id or ""
        if task_id in self._closing:
            return
        words = Words(context, event_queue)
        work = Work(self._executor, context, self._content(context), event_queue)
        self._live[task_id] = work
        try:
            if context.current_task is None and context.message is not None:
                # Before anything that waits: a cancel finds it from here on.
                await work.insist(words.submitted(context.message))
            await self._follow(work, words)
        finally:
            if self._live.get(task_id) is work:
                del self._live[task_id]

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

    def live(self) -> dict[str, ServerCallContext]:
        """The tasks that are worked on, and whose messages they are."""
        return {task_id: work.caller for task_id, work in self._live.items()}

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
                await Words(context, event_queue).status(wire.TASK_STATE_CANCELED)
            finally:
                self._closing.discard(task_id)


class A2AHandler(DefaultRequestHandler):
    """The SDK's request handler, with a bound to how long `tasks/cancel` waits for the end.

    Args:
        agent_executor: an `A2AExecutor`.
        args: as for the SDK's; so are all further ones.
        answer_within: seconds, after which a task whose work goes on is answered as it is, that
            is WORKING. Its streams, and whoever asks later, are told CANCELED at the end.
    """

    def __init__(
        self, agent_executor: A2AExecutor, *args: Any, answer_within: float = 2.0, **kwargs: Any
    ) -> None:
        super().__init__(agent_executor, *args, **kwargs)
        self._works = agent_executor
        self._answer_within = answer_within
        self._cancelling: dict[str, asyncio.Future[wire.Task | None]] = {}
        self._closing = False

    async def on_cancel_task(
        self, params: wire.CancelTaskRequest, context: ServerCallContext
    ) -> wire.Task | None:
        """Cancel a task, and answer when it has ended, or cannot be waited for.

        **Cancellation:** (asyncio's) the task is cancelled all the same.
        """
        get = wire.GetTaskRequest(id=params.id, tenant=params.tenant)
        if not self._closing:
            if (cancelling := self._cancelling.get(params.id)) is not None:
                # Whoever asks again waits for the same end; but only where it is theirs.
                await self.on_get_task(get, context)
                if cancelling.done():
                    # It may have been refused for whose it was.
                    return await self.on_cancel_task(params, context)
            else:
                cancelling = asyncio.ensure_future(super().on_cancel_task(params, context))
                self._cancelling[params.id] = cancelling
                cancelling.add_done_callback(partial(self._forget, params.id))
            await asyncio.wait({cancelling}, timeout=self._answer_within)
            if cancelling.done() and not cancelling.cancelled():
                return cancelling.result()
        found: wire.Task | None = await self.on_get_task(get, context)
        return found

    def _forget(self, task_id: str, cancelling: asyncio.Future[Any]) -> None:
        del self._cancelling[task_id]
        if not cancelling.cancelled() and (error := cancelling.exception()) is not None:
            logger.debug("a cancel was answered by %r", error)

    async def aclose(self) -> None:
        """Cancel what is worked on, have its end said, and close.

        Call it before the server waits for its streams, which this ends. It takes twice
        `answer_within` at most. What has not ended by then stays WORKING in the store.

        **Cancellation:** (asyncio's) what is worked on is cancelled all the same.
        """
        requests = [
            self.on_cancel_task(wire.CancelTaskRequest(id=task_id), caller)
            for task_id, caller in self._works.live().items()
        ]
        await asyncio.gather(*requests, return_exceptions=True)
        self._closing = True
        # To the SDK a task that is closed has ended, and who waits for that says CANCELED.
        for cancelling in tuple(self._cancelling.values()):
            cancelling.cancel()
        closing = asyncio.ensure_future(super().aclose())
        await asyncio.wait({closing}, timeout=self._answer_within)
        if closing.done():
            closing.result()
        else:
            logger.warning("closed, while these tasks go on: %s", ", ".join(self._works.live()))
