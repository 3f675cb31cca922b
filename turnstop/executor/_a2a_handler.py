"""The SDK's request handler, with a true cancel. For `a2a`, in asyncio."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import InternalError

from ._a2a_executor import A2AExecutor
from ._a2a_requests import Answering, Cancels
from ._a2a_work import Work

__all__ = ["A2AHandler"]

logger = logging.getLogger("turnstop.executor.a2a")

_ENDED: Final = (
    wire.TASK_STATE_COMPLETED,
    wire.TASK_STATE_CANCELED,
    wire.TASK_STATE_FAILED,
    wire.TASK_STATE_REJECTED,
)
_LOOK_AGAIN: Final = 0.001, 0.05
_SHUT_WITHIN: Final = 0.5


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
        self._cancels = Cancels()
        self._answering = Answering()
        self._closing: asyncio.Future[None] | None = None
        self._is_shut = False

    async def on_message_send(
        self, params: wire.SendMessageRequest, context: ServerCallContext
    ) -> wire.Message | wire.Task:
        """As the SDK's.

        Raises:
            InternalError: of the SDK: the server is closing.

        **Cancellation:** (asyncio's) the task goes on.
        """
        self._check_open()
        with self._answering.one():
            answer: wire.Message | wire.Task = await super().on_message_send(params, context)
            return answer

    async def on_message_send_stream(
        self, params: wire.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """As the SDK's.

        Raises:
            InternalError: of the SDK, before the first event: the server is closing.

        **Cancellation:** (asyncio's) the task goes on.
        """
        self._check_open()
        events = super().on_message_send_stream(params, context)
        with self._answering.one():
            async with aclosing(events):
                async for event in events:
                    yield event

    async def on_subscribe_to_task(
        self, params: wire.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """As the SDK's.

        **Cancellation:** (asyncio's) the task goes on.
        """
        events = super().on_subscribe_to_task(params, context)
        with self._answering.one(params.id):
            async with aclosing(events):
                async for event in events:
                    yield event

    def _check_open(self) -> None:
        if self._closing is not None:
            raise InternalError("the server is closing: it takes no more messages")

    async def on_cancel_task(
        self, params: wire.CancelTaskRequest, context: ServerCallContext
    ) -> wire.Task | None:
        """Cancel a task, and answer when it has ended, or cannot be waited for.

        **Cancellation:** (asyncio's) the task is cancelled all the same.
        """
        until = asyncio.get_running_loop().time() + self._answer_within
        # Also before anybody is joined: only what is theirs.
        task = await self._look(params, context)
        work = self._works.live().get(params.id)
        if work is None or task.status.state in _ENDED:
            return await self._ask(params, context, until)
        return await self._end(work, params, context, until)

    async def _look(self, params: wire.CancelTaskRequest, context: ServerCallContext) -> wire.Task:
        get = wire.GetTaskRequest(id=params.id, tenant=params.tenant)
        found: wire.Task = await self.on_get_task(get, context)
        return found

    async def _ask(
        self, params: wire.CancelTaskRequest, context: ServerCallContext, until: float
    ) -> wire.Task:
        """Have the SDK cancel it, where nothing works on it: it may say CANCELED at once."""
        if not self._is_shut:
            ask = partial(super().on_cancel_task, params, context)
            if (answer := await self._cancels.ask(params.id, ask, until)) is not None:
                return answer
        return await self._look(params, context)

    async def _end(
        self, work: Work, params: wire.CancelTaskRequest, context: ServerCallContext, until: float
    ) -> wire.Task:
        """Stop it, and wait until it has ended and its end is kept.

        Not by the SDK's cancel: where its store fails meanwhile that says CANCELED at once.
        """
        loop, (pause, longest) = asyncio.get_running_loop(), _LOOK_AGAIN
        work.stop()
        await work.wait_ended(until)
        while True:
            # Before the look: it is kept first, and then the queue is closed.
            is_lost = work.ended.is_set() and work.is_lost()
            task = await self._look(params, context)
            if task.status.state in _ENDED or self._is_shut or loop.time() >= until:
                return task
            if is_lost:
                # Its answer may be of what it has at hand still. What is kept is looked at.
                await self._ask(params, context, until)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def aclose(self) -> None:
        """Take no more messages, cancel what is worked on, have its end said, and close.

        Call it before the server waits for its streams, which this ends. It takes twice
        `answer_within` and half a second at most. What has not ended by then stays WORKING in the
        store. Whoever calls it again waits for the same.

        **Cancellation:** (asyncio's) it closes all the same.
        """
        if self._closing is None:
            self._works.close()
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.wait({self._closing})
        self._closing.result()

    async def _close(self) -> None:
        winding = asyncio.ensure_future(self._wind_down())
        await asyncio.wait({winding}, timeout=2 * self._answer_within)
        winding.cancel()
        self._is_shut = True
        # To the SDK a task that is closed has ended, and who waits for that says CANCELED.
        self._cancels.drop()
        closing = asyncio.ensure_future(super().aclose())
        await asyncio.wait({closing}, timeout=_SHUT_WITHIN)
        if closing.done():
            closing.result()
        else:
            logger.warning("closed, while these tasks go on: %s", ", ".join(self._works.live()))

    async def _wind_down(self) -> None:
        """Wait until nothing is worked on, and everybody who listens to it has heard the end."""
        seen: set[str] = set()
        while (works := self._works.live()) or self._answering.of(seen):
            seen.update(works)
            ends = (
                self._end(work, wire.CancelTaskRequest(id=task_id), work.caller, math.inf)
                for task_id, work in works.items()
            )
            await asyncio.gather(*ends, return_exceptions=True)
            if answering := self._answering.of(seen):
                await asyncio.wait(answering)
