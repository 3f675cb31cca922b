"""The asyncio half of an A2A executor, step by step; `tests/real` has it behind a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest
import trio

from turnstop import StopBudget
from turnstop.events import Text, ToolCall
from turnstop.executor import Executor, InputRequired, Job, Outcome, TaskState, open_executor

pytest.importorskip("a2a.server.agent_execution")

from a2a.auth.user import User
from a2a.helpers import new_text_message
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as wire

from turnstop.executor._a2a_work import Work, room_of
from turnstop.executor.a2a import A2AExecutor

PATIENCE = 20.0


class Queue:
    """What the executor says, and where it may be held up saying it."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.full = False
        self.full_for: Any = None
        self.fails = False
        self.closed = False
        self.drained = asyncio.Event()
        self.waits = asyncio.Event()

    async def enqueue_event(self, event: Any) -> None:
        if self.fails and isinstance(event, wire.TaskArtifactUpdateEvent):
            raise OSError("no route to the queue")
        is_status = isinstance(event, wire.TaskStatusUpdateEvent)
        if self.full or (is_status and event.status.state == self.full_for):
            self.waits.set()
            await self.drained.wait()
        self.said.append(event)

    def is_closed(self) -> bool:
        return self.closed

    async def close(self, immediate: bool = False) -> None:
        assert not immediate
        self.closed = True

    @property
    def states(self) -> list[Any]:
        return [one.status.state for one in self.said]


class Known(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def caller(name: str) -> ServerCallContext:
    return ServerCallContext(user=Known(name)) if name else ServerCallContext()


def context_of(
    text: str, *, state: Any = None, user: str = "", context: str = "context"
) -> RequestContext:
    message = new_text_message(text, role=wire.Role.ROLE_USER)
    found = RequestContext(
        call_context=caller(user),
        request=wire.SendMessageRequest(message=message),
        task_id="task",
        context_id=context,
    )
    if state is not None:
        status = wire.TaskStatus(state=state)
        found.current_task = wire.Task(id="task", context_id="context", status=status)
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
        await ours.execute(context_of("answer"), queue)
        said = list(queue.said)
        await ours.cancel(context_of("", state=wire.TASK_STATE_WORKING), queue)
        await ours.cancel(context_of(""), queue)
        assert queue.said == said
        assert not queue.closed

    async def answers(job: Job) -> None:
        pass

    async with open_executor(answers) as executor:
        await on_a_loop(play)


async def test_what_the_sdk_has_given_up_is_told_an_end_on_its_new_queue() -> None:
    """Nobody else would say it there, nor close it: who would do so was cancelled before."""

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        await ours.cancel(context_of("", state=wire.TASK_STATE_WORKING), queue)
        assert queue.states == [wire.TASK_STATE_CANCELED]
        assert queue.closed

    async with open_executor(agent) as executor:
        await on_a_loop(play)


def test_no_user_comes_to_the_room_of_another() -> None:
    texts = ["".join(one) for length in range(5) for one in product("/%2Fa", repeat=length)]
    short = [text for text in texts if len(text) < 3]
    whose = [*product(short, texts[1:]), *product(texts, short[1:])]
    rooms = {room_of(context_of("", user=user, context=context)) for user, context in whose}
    assert len(rooms) == len(set(whose))


def test_a_room_is_named_after_its_user_and_context() -> None:
    for user, context, room in [
        ("", "kitchen", "kitchen"),
        ("", "ann/kitchen", "/ann/kitchen"),
        ("ann", "kitchen", "ann/kitchen"),
        ("ann/kit@b.c", "chen/", "ann%2Fkit%40b.c/chen/"),
        ("\udce4nn", "kitchen", "%ED%B3%A4nn/kitchen"),
    ]:
        assert room_of(context_of("", user=user, context=context)) == room
    # A task that goes on is its own context's, whatever its message says.
    going_on = context_of("", user="ann", state=wire.TASK_STATE_INPUT_REQUIRED, context="made up")
    assert room_of(going_on) == "ann/context"


async def test_the_room_is_the_one_that_was_named() -> None:
    async def play() -> None:
        ours = A2AExecutor(executor, room=lambda context: f"of {context.message.message_id}")
        context = context_of("x")
        await ours.execute(context, Queue())
        assert rooms == [f"of {context.message.message_id}"]

    async def tells(job: Job) -> None:
        rooms.append(job.room)

    rooms: list[str] = []
    async with open_executor(tells) as executor:
        await on_a_loop(play)


async def test_what_comes_to_an_executor_that_is_closed_is_cancelled() -> None:
    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        ours.close()
        await ours.execute(context_of("park"), queue)
        assert queue.states == [wire.TASK_STATE_SUBMITTED, wire.TASK_STATE_CANCELED]

    async with open_executor(agent) as executor:
        await on_a_loop(play)
    assert CALLS == []


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


ASKED = wire.TASK_STATE_INPUT_REQUIRED


@pytest.mark.parametrize("held_up", [wire.TASK_STATE_WORKING, ASKED])
async def test_a_cancel_that_loses_to_a_question_cancels_that(held_up: Any) -> None:
    """It would wait for its answer for ever, and so would who has cancelled it."""

    async def asks(job: Job) -> InputRequired:
        return InputRequired("which one?")

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        queue.full_for = held_up
        working = asyncio.ensure_future(ours.execute(context_of("ask"), queue))
        await queue.waits.wait()
        while not executor.statistics().told:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        await ours.cancel(context_of("", state=wire.TASK_STATE_WORKING), queue)
        working.cancel()
        queue.drained.set()
        await working
        asked = [ASKED] * (held_up == ASKED)
        before = [wire.TASK_STATE_SUBMITTED, wire.TASK_STATE_WORKING]
        assert queue.states == [*before, *asked, wire.TASK_STATE_CANCELED]

    async with open_executor(asks) as executor:
        await on_a_loop(play)
        assert executor.statistics().told == {TaskState.INPUT_REQUIRED: 1}


async def test_what_is_worked_on_for_a_queue_that_has_closed_is_stopped() -> None:
    """The server has failed, or closes: what it does reaches nobody, and nobody could cancel it."""

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        working = asyncio.ensure_future(ours.execute(context_of("park"), queue))
        while wire.TASK_STATE_WORKING not in queue.states:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        queue.closed = True
        ended, _ = await asyncio.wait({working}, timeout=PATIENCE / 2)
        assert ended == {working}

    async with open_executor(agent) as executor:
        await on_a_loop(play)
        assert executor.statistics().told == {TaskState.CANCELED: 1}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_the_server_cannot_keep_up_with_is_said_together_and_holds_up_no_cancel(
    cancelled: bool,
) -> None:
    async def speaks(job: Job) -> None:
        for number in range(1000):
            job.emit(Text(f"{number} "))
            job.emit(ToolCall(str(number), "unpublished", "started"))
        spoken.set()
        if cancelled:
            await trio.sleep_forever()

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        queue.full_for = wire.TASK_STATE_WORKING
        working = asyncio.ensure_future(ours.execute(context_of("speak"), queue))
        while not spoken.is_set():  # noqa: ASYNC110 - it is a thread's
            await asyncio.sleep(0.001)
        if cancelled:
            await ours.cancel(context_of("", state=wire.TASK_STATE_WORKING), queue)
        waiting = ours._live["task"]._updates
        while not isinstance(waiting[-1], Outcome):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        queue.drained.set()
        queue.full_for = None
        await working
        said = [one.artifact.parts[0].text for one in queue.said[2:-1]]
        assert said == ([] if cancelled else ["".join(f"{number} " for number in range(1000))])

    spoken = threading.Event()
    async with open_executor(speaks) as executor:
        await on_a_loop(play)


async def test_what_cannot_be_said_ends_the_work_first() -> None:
    async def speaks(job: Job) -> None:
        job.emit(Text("so far"))
        try:
            await trio.sleep_forever()
        finally:
            ended.append(job.content)

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        queue.fails = True
        with pytest.raises(OSError, match="no route"):
            await ours.execute(context_of("speak"), queue)
        assert ended == ["speak"]

    ended: list[str] = []
    async with open_executor(speaks) as executor:
        await on_a_loop(play)


async def test_what_cannot_be_begun_fails_its_task_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def submit(*_: object, **__: object) -> None:
        raise LookupError("no room")

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        await ours.execute(context_of("park"), queue)
        assert queue.states == [wire.TASK_STATE_SUBMITTED, wire.TASK_STATE_FAILED]

    async with open_executor(agent) as executor:
        monkeypatch.setattr(Executor, "submit", submit)
        await on_a_loop(play)


async def test_a_loop_that_has_closed_before_the_end_is_told_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def begin() -> None:
        Work(executor, context_of("park"), "room", "park", Queue()).begin()
        while not CALLS:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)

    async with open_executor(agent) as executor:
        await on_a_loop(begin)
    assert executor.statistics().told == {TaskState.CANCELED: 1}
    assert caplog.records == []


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Unspeakable(), "a result of type Unspeakable, whose text could not be made: ValueError"),
        ("b\udce4ked", "b?ked"),
        ("gebäck", "gebäck"),
    ],
)
async def test_what_is_completed_to_observers_is_completed_to_the_caller(
    result: object, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def bakes(job: Job) -> object:
        return result

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        await ours.execute(context_of("bake"), queue)
        artifact, last = queue.said[-2:]
        assert last.status.state == wire.TASK_STATE_COMPLETED
        assert artifact.artifact.parts[0].text == text

    async with open_executor(bakes) as executor:
        await on_a_loop(play)
    assert executor.statistics().told == {TaskState.COMPLETED: 1}
    assert ("has no text: ValueError" in caplog.text) is isinstance(result, Unspeakable)


async def test_half_a_character_that_is_said_ends_no_work() -> None:
    async def speaks(job: Job) -> object:
        job.emit(Text("b\udce4ked"))
        return InputRequired("f\udcfcr whom?")

    async def play() -> None:
        ours, queue = A2AExecutor(executor), Queue()
        await ours.execute(context_of("bake"), queue)
        piece, last = queue.said[-2:]
        assert piece.artifact.parts[0].text == "b?ked"
        assert last.status.state == wire.TASK_STATE_INPUT_REQUIRED
        assert last.status.message.parts[0].text == "f?r whom?"

    async with open_executor(speaks) as executor:
        await on_a_loop(play)
