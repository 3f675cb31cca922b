"""The asyncio half of an A2A executor, step by step; `tests/real` has it behind a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from turnstop import StopBudget
from turnstop.executor import Executor, Job, TaskState, open_executor

pytest.importorskip("a2a.server.agent_execution")

from a2a.helpers import new_text_message
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as wire

from turnstop.executor.a2a import A2AExecutor

PATIENCE = 20.0


class Queue:
    """What the executor says, and where it may be held up saying it."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.full = False
        self.drained = asyncio.Event()
        self.waits = asyncio.Event()

    async def enqueue_event(self, event: Any) -> None:
        if self.full:
            self.waits.set()
            await self.drained.wait()
        self.said.append(event)

    @property
    def states(self) -> list[Any]:
        return [one.status.state for one in self.said]


def context_of(text: str, *, state: Any = None) -> RequestContext:
    message = new_text_message(text, role=wire.Role.ROLE_USER)
    found = RequestContext(
        call_context=ServerCallContext(),
        request=wire.SendMessageRequest(message=message),
        task_id="task",
        context_id="context",
    )
    if state is not None:
        found.current_task = wire.Task(id="task", status=wire.TaskStatus(state=state))
    return found


async def on_a_loop(fn: Callable[[], Awaitable[None]]) -> None:
    """Run asyncio code in a thread of its own, as a server may."""

    async def bounded() -> None:
        await asyncio.wait_for(fn(), PATIENCE)

    await trio.to_thread.run_sync(asyncio.run, bounded())


CALLS: list[str] = []


async def agent(job: Job) -> None:
    CALLS.append(job.content)
    await trio.sleep_forever()


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


async def test_a_cancel_while_the_task_is_being_published_runs_nothing() -> None:
    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        queue.full = True
        working = asyncio.ensure_future(ours.execute(context_of("park"), queue))
        await queue.waits.wait()
        await ours.cancel(context_of("park", state=wire.TASK_STATE_SUBMITTED), queue)
        # What the SDK does next.
        working.cancel()
        await asyncio.sleep(0)
        queue.full = False
        queue.drained.set()
        await working
        assert queue.states == [wire.TASK_STATE_SUBMITTED, wire.TASK_STATE_CANCELED]

    async with open_executor(agent) as executor:
        await on_a_loop(play)
        assert executor.statistics().told == {TaskState.CANCELED: 1}
    assert CALLS == []


async def test_a_cancelled_asyncio_task_stops_the_work_by_itself() -> None:
    """A server that closes cancels its tasks, and asks no executor to."""

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        working = asyncio.ensure_future(ours.execute(context_of("park"), queue))
        while wire.TASK_STATE_WORKING not in queue.states:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        working.cancel()
        await working
        assert queue.states[-1] == wire.TASK_STATE_CANCELED

    async with open_executor(agent) as executor:
        await on_a_loop(play)
    assert CALLS == ["park"]


async def test_a_cancel_stops_the_work_by_itself_and_a_continued_task_is_not_published() -> None:
    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        asked = context_of("park", state=wire.TASK_STATE_INPUT_REQUIRED)
        working = asyncio.ensure_future(ours.execute(asked, queue))
        while wire.TASK_STATE_WORKING not in queue.states:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        await ours.cancel(context_of("", state=wire.TASK_STATE_WORKING), queue)
        # Not `await working`: a timeout would cancel it, which is a stop as well.
        ended, _ = await asyncio.wait({working}, timeout=PATIENCE / 2)
        assert ended == {working}
        assert queue.states == [wire.TASK_STATE_WORKING, wire.TASK_STATE_CANCELED]

    async with open_executor(agent) as executor:
        await on_a_loop(play)


async def test_what_has_no_work_and_no_question_is_left_to_the_sdk() -> None:
    """Its end may be on its way: a second one must not be."""

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        await ours.cancel(context_of("", state=wire.TASK_STATE_WORKING), queue)
        await ours.cancel(context_of(""), queue)
        assert queue.said == []

    async with open_executor(agent) as executor:
        await on_a_loop(play)


async def test_an_answer_that_comes_while_its_question_is_cancelled_runs_nothing() -> None:
    asked = wire.TASK_STATE_INPUT_REQUIRED

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        queue.full = True
        cancelling = asyncio.ensure_future(ours.cancel(context_of("", state=asked), queue))
        await queue.waits.wait()
        await ours.execute(context_of("park", state=asked), queue)
        queue.drained.set()
        await cancelling
        assert queue.states == [wire.TASK_STATE_CANCELED]

    async with open_executor(agent) as executor:
        await on_a_loop(play)
        assert executor.statistics().told == {}
    assert CALLS == []


async def test_what_comes_when_the_executor_closes_fails() -> None:
    async def play() -> None:
        ours, queue = A2AExecutor(closed[0]), Queue()
        await ours.execute(context_of("park"), queue)
        assert queue.states == [wire.TASK_STATE_SUBMITTED, wire.TASK_STATE_FAILED]
        assert "closing" in queue.said[-1].status.message.parts[0].text

    closed: list[Executor] = []
    async with open_executor(agent, budget=StopBudget(1, 1)) as executor:
        closed.append(executor)
    await on_a_loop(play)
    assert CALLS == []
