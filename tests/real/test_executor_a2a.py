"""Our executor behind the real a2a-sdk server, asked by the real a2a-sdk client."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any

import pytest
import trio

from turnstop.claims import MemoryStore, open_claims
from turnstop.events import Text
from turnstop.executor import Executor, InputRequired, Job, TaskState, open_executor
from turnstop.transports.aio import open_aio

from . import REQUIRED

try:
    import httpx
    import uvicorn
    from a2a.client import ClientConfig, ClientFactory
    from a2a.helpers import new_text_message
    from a2a.server.context import ServerCallContext
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import a2a_pb2 as wire
    from a2a.utils.errors import (
        InvalidParamsError,
        TaskNotCancelableError,
        TaskNotFoundError,
        UnsupportedOperationError,
    )
    from starlette.applications import Starlette

    from turnstop.executor.a2a import A2AExecutor, A2AHandler
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

PATIENCE = 30.0
# What the SDK's own server answers was another thing before 1.3, and so ours does.
IS_OLD = tuple(map(int, version("a2a-sdk").split(".")[:2])) < (1, 3)
IS_OVER = InvalidParamsError if IS_OLD else UnsupportedOperationError
IS_OVER_TEXT = "terminal state|already completed" if IS_OLD else "terminal state"
WORKING = wire.TASK_STATE_WORKING
CANCELED = wire.TASK_STATE_CANCELED
COMPLETED = wire.TASK_STATE_COMPLETED


class Agent:
    """Does what its message says, and tells when it began and ended.

    `answer`, `stream`, `park`, `ask`, `crash`; `linger`: ignores its cancellation until `release`.
    """

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.release = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()

    async def __call__(self, job: Job) -> object:
        self.began.append(job.content)
        self._changed.unpark_all()
        try:
            return await getattr(self, job.content.partition(" ")[0])(job)
        finally:
            self.ended.append(job.content)
            self._changed.unpark_all()

    async def wait_began(self, count: int = 1) -> None:
        while len(self.began) < count:
            await self._changed.park()

    async def answer(self, job: Job) -> str:
        return f"answer to {job.content}"

    async def stream(self, job: Job) -> str:
        for number in range(3):
            job.emit(Text(f"piece {number} "))
            await trio.sleep(0.01)
        return "all"

    async def park(self, job: Job) -> None:
        await trio.sleep_forever()

    async def linger(self, job: Job) -> str:
        await job.step(self.release.wait)
        return "success"

    async def swallow(self, job: Job) -> str:
        with trio.CancelScope(shield=True):
            await self.release.wait()
        job.emit(Text("late"))
        return "success"

    async def ask(self, job: Job) -> InputRequired:
        return InputRequired("which one?")

    async def crash(self, job: Job) -> None:
        raise RuntimeError("the oven exploded")


class World:
    """A served executor, and a client of it."""

    def __init__(self, url: str, agent: Agent, executor: Executor) -> None:
        self.url = url
        self.agent = agent
        self.executor = executor
        self.client: Any = None
        self.store = InMemoryTaskStore()
        self._aio: Any = None
        self._handler: Any = None

    @contextmanager
    def refused(self, error: type[Exception], match: str | None = None) -> Iterator[None]:
        """What it refuses to stream, it leaves generators behind of, that nobody closes."""
        with pytest.raises(error, match=match), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                yield
            except error as caught:
                # The traceback holds them.
                again = type(caught)(str(caught))
            gc.collect()
            raise again

    async def send(self, text: str, *, task: Any = None, context: str | None = None) -> list[Any]:
        return [
            event async for event in self.client.send_message(self.request(text, task, context))
        ]

    def request(self, text: str, task: Any = None, context: str | None = None) -> Any:
        ids = {"task_id": task.id, "context_id": task.context_id} if task else {}
        if context is not None:
            ids["context_id"] = context
        message = new_text_message(text, role=wire.Role.ROLE_USER, **ids)
        return wire.SendMessageRequest(message=message)

    async def cancel(self, task: Any) -> Any:
        return await self.client.cancel_task(wire.CancelTaskRequest(id=task.id))

    async def close(self) -> None:
        """As a server that is shut down does first."""
        await self._aio.call_unowned(self._handler.aclose)

    async def stored(self, task: Any) -> Any:
        """What a next server would find of it."""
        found = await self._aio.call_unowned(self.store.get, task.id, ServerCallContext())
        return found.status.state

    async def tasks(self) -> int:
        """How many the server's loop has, once what is over is over."""

        async def count() -> int:
            await asyncio.sleep(0.1)
            return len(asyncio.all_tasks())

        found: int = await self._aio.call_unowned(count)
        return found

    async def get(self, task: Any) -> Any:
        return await self.client.get_task(wire.GetTaskRequest(id=task.id))


class Stream:
    """One message's stream, being read."""

    def __init__(self, world: World, text: str, task: Any = None) -> None:
        self.events: list[Any] = []
        self.over = trio.Event()
        self.scope = trio.CancelScope()
        self._came = trio.lowlevel.ParkingLot()
        self._source = world.client.send_message(world.request(text, task))

    async def read(self) -> None:
        with self.scope:
            async for event in self._source:
                self.events.append(event)
                self._came.unpark_all()
        self.over.set()

    async def task(self) -> Any:
        while not any(event.HasField("task") for event in self.events):
            await self._came.park()
        return next(event.task for event in self.events if event.HasField("task"))

    async def working(self) -> None:
        while WORKING not in states_of(self.events):
            await self._came.park()

    async def states(self) -> list[Any]:
        await self.over.wait()
        return states_of(self.events)


def states_of(events: list[Any]) -> list[Any]:
    return [one.status_update.status.state for one in events if one.HasField("status_update")]


def texts_of(events: list[Any]) -> list[str]:
    updates = [one.artifact_update for one in events if one.HasField("artifact_update")]
    return [part.text for one in updates for part in one.artifact.parts]


def card_of(url: str, streaming: bool) -> Any:
    interface = wire.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    return wire.AgentCard(
        name="agent",
        description="Does what the message says.",
        version="1",
        supported_interfaces=[interface],
        capabilities=wire.AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[wire.AgentSkill(id="w", name="w", description="Works.", tags=["test"])],
    )


def listen() -> socket.socket:
    # By its protocol asyncio knows TCP, and without that it leaves Nagle on: 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


@asynccontextmanager
async def open_world(
    *, streaming: bool = True, polling: bool = False, answer_within: float = PATIENCE, **how: Any
) -> AsyncGenerator[World, None]:
    agent = Agent()
    with trio.fail_after(2 * PATIENCE):
        async with open_executor(agent, **how) as executor, open_aio(thread=True) as aio:
            listener = listen()
            world = World(f"http://127.0.0.1:{listener.getsockname()[1]}/", agent, executor)
            world._aio = aio
            card = card_of(world.url, streaming)
            served: list[Any] = []

            async def serve() -> None:
                handler = world._handler = A2AHandler(
                    A2AExecutor(executor), world.store, card, answer_within=answer_within
                )
                routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
                config = uvicorn.Config(
                    Starlette(routes=routes),
                    log_level="warning",
                    lifespan="off",
                    timeout_graceful_shutdown=1,
                )
                served.append(uvicorn.Server(config))
                await served[0].serve(sockets=[listener])
                await handler.aclose()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(aio.call_unowned, serve)
                async with httpx.AsyncClient(timeout=httpx.Timeout(10, read=PATIENCE)) as http:
                    config = ClientConfig(streaming=streaming, polling=polling, httpx_client=http)
                    world.client = await ClientFactory(config).create_from_url(world.url)
                    try:
                        yield world
                    finally:
                        agent.release.set()
                        served[0].should_exit = True


@asynccontextmanager
async def reading(world: World, text: str, task: Any = None) -> AsyncGenerator[Stream, None]:
    async with trio.open_nursery() as nursery:
        stream = Stream(world, text, task)
        nursery.start_soon(stream.read)
        yield stream
        nursery.cancel_scope.cancel()


async def test_a_message_is_answered() -> None:
    async with open_world() as world:
        events = await world.send("answer one")
        assert events[0].task.status.state == wire.TASK_STATE_SUBMITTED
        assert states_of(events) == [WORKING, COMPLETED]
        assert texts_of(events) == ["answer to answer one"]


async def test_pieces_are_one_artifact_and_the_result_another() -> None:
    async with open_world() as world:
        events = await world.send("stream")
        found = await world.get(events[0].task)
    assert "".join(texts_of(events)) == "piece 0 piece 1 piece 2 all"
    parts = {one.name: [part.text for part in one.parts] for one in found.artifacts}
    assert parts["result"] == ["all"]
    assert "".join(parts["answer"]) == "piece 0 piece 1 piece 2 "


async def test_an_error_fails_the_task() -> None:
    async with open_world() as world:
        events = await world.send("crash")
    assert states_of(events) == [WORKING, wire.TASK_STATE_FAILED]
    (part,) = events[-1].status_update.status.message.parts
    assert part.text == "the oven exploded"


async def test_a_running_task_is_cancelled_and_its_stream_says_so_and_ends() -> None:
    async with open_world() as world, reading(world, "park") as stream:
        task = await stream.task()
        await world.agent.wait_began()
        assert (await world.cancel(task)).status.state == CANCELED
        assert world.agent.ended == ["park"]
        assert await stream.states() == [WORKING, CANCELED]
        assert (await world.get(task)).status.state == CANCELED


async def test_a_blocking_send_returns_the_cancelled_task() -> None:
    async with open_world(streaming=False) as world, reading(world, "park") as stream:
        await world.agent.wait_began()
        (task,) = (await world.client.list_tasks(wire.ListTasksRequest())).tasks
        assert (await world.cancel(task)).status.state == CANCELED
        await stream.over.wait()
        assert [event.task.status.state for event in stream.events] == [CANCELED]


@pytest.mark.parametrize("order", ["linger", "swallow"])
async def test_cancelled_is_never_said_before_the_end(order: str) -> None:
    """It is answered WORKING where the end cannot be waited for; the stream stays open."""
    async with open_world(answer_within=0.2) as world, reading(world, order) as stream:
        task = await stream.task()
        await world.agent.wait_began()
        for _ in range(2):
            assert (await world.cancel(task)).status.state == WORKING
        assert (await world.get(task)).status.state == WORKING
        assert not stream.over.is_set()
        assert states_of(stream.events) == [WORKING]
        assert world.agent.ended == []
        world.agent.release.set()
        assert await stream.states() == [WORKING, CANCELED]
        assert world.agent.ended == [order]
        found = await world.get(task)
        assert (found.status.state, len(found.artifacts)) == (CANCELED, 0)


async def test_who_cancels_it_again_and_again_piles_nothing_up() -> None:
    """Whoever has stopped waiting leaves nothing behind that waits."""
    async with open_world(answer_within=0.05) as world, reading(world, "linger") as stream:
        task = await stream.task()
        await world.agent.wait_began()
        assert (await world.cancel(task)).status.state == WORKING
        before = await world.tasks()
        for _ in range(5):
            assert (await world.cancel(task)).status.state == WORKING
        assert await world.tasks() <= before
        world.agent.release.set()
        assert await stream.states() == [WORKING, CANCELED]
        assert await answered(world, task) in (None, *[CANCELED] * IS_OLD)


async def test_a_cancel_waits_for_the_end() -> None:
    async with open_world() as world, reading(world, "linger") as stream:
        task = await stream.task()
        await world.agent.wait_began()
        async with trio.open_nursery() as nursery:

            async def release() -> None:
                while not world.executor.statistics().cancelled:  # noqa: ASYNC110 - no event
                    await trio.sleep(0.01)
                assert world.agent.ended == []
                world.agent.release.set()

            nursery.start_soon(release)
            assert (await world.cancel(task)).status.state == CANCELED
            assert world.agent.ended == ["linger"]
        assert await stream.states() == [WORKING, CANCELED]


async def test_a_task_that_waits_for_its_room_is_cancelled_at_once() -> None:
    async with open_world() as world, reading(world, "linger") as first:
        before = await first.task()
        await world.agent.wait_began()
        message = new_text_message("answer", context_id=before.context_id, role=wire.Role.ROLE_USER)
        async with trio.open_nursery() as nursery:
            second = Stream(world, "answer")
            second._source = world.client.send_message(wire.SendMessageRequest(message=message))
            nursery.start_soon(second.read)
            task = await second.task()
            assert (await world.cancel(task)).status.state == CANCELED
            assert await second.states() == [CANCELED]
        assert world.agent.began == ["linger"]


async def test_a_task_that_asks_is_cancelled() -> None:
    async with open_world() as world:
        events = await world.send("ask")
        task = events[0].task
        assert states_of(events) == [WORKING, wire.TASK_STATE_INPUT_REQUIRED]
        assert (await world.cancel(task)).status.state == CANCELED
        # And so it does not start again.
        with world.refused(IS_OVER, IS_OVER_TEXT):
            await world.send("park", task=task)
        assert world.agent.began == ["ask"]


async def test_a_continued_task_that_runs_is_cancelled() -> None:
    async with open_world() as world:
        task = (await world.send("ask"))[0].task
        async with reading(world, "park", task) as stream:
            await world.agent.wait_began(2)
            assert (await world.cancel(task)).status.state == CANCELED
            assert world.agent.ended == ["ask", "park"]
            assert await stream.states() == [WORKING, CANCELED]


@pytest.mark.parametrize("end", ["answer", "park"])
async def test_a_task_that_has_ended_is_not_cancelled(end: str) -> None:
    async with open_world() as world, reading(world, end) as stream:
        task = await stream.task()
        await world.agent.wait_began()
        if end == "park":
            await world.cancel(task)
        await stream.over.wait()
        state = COMPLETED if end == "answer" else CANCELED
        assert await answered(world, task) in (None, *[state] * IS_OLD)


async def answered(world: World, task: Any) -> Any:
    """How a cancel of what has ended is answered: None where it is refused.

    The old one answers with the task, as long as it has that at hand.
    """
    try:
        return (await world.cancel(task)).status.state
    except TaskNotCancelableError:
        return None


async def test_what_is_unknown_is_not_found() -> None:
    async with open_world() as world:
        unknown = wire.Task(id="nobody's", context_id="c")
        with pytest.raises(TaskNotFoundError):
            await world.cancel(unknown)
        with world.refused(TaskNotFoundError):
            await world.send("answer", task=unknown)


async def test_who_has_left_subscribes_again_and_hears_the_end() -> None:
    """A client that hangs up stops nothing."""
    async with open_world() as world:
        async with reading(world, "park") as stream:
            task = await stream.task()
            await stream.working()
        found: list[Any] = []

        async def subscribe() -> None:
            async for event in world.client.subscribe(wire.SubscribeToTaskRequest(id=task.id)):
                found.append(event)
                subscribed.set()

        subscribed = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe)
            await subscribed.wait()
            assert world.agent.ended == []
            assert (await world.get(task)).status.state == WORKING
            assert (await world.cancel(task)).status.state == CANCELED
        assert found[0].task.status.state == WORKING
        assert states_of(found) == [CANCELED]
        with world.refused(IS_OVER, IS_OVER_TEXT):
            await subscribe()


async def test_where_nothing_streams_nobody_subscribes() -> None:
    async with open_world(streaming=False) as world:
        events = await world.send("answer")
        assert events[-1].task.status.state == COMPLETED
        with world.refused(NotImplementedError):
            async for _ in world.client.subscribe(wire.SubscribeToTaskRequest(id="x")):
                pass


async def test_a_cancel_right_after_the_send_always_finds_the_task() -> None:
    async with open_world(streaming=False, polling=True) as world:
        for number in range(100):
            (event,) = await world.send(f"park {number}")
            assert (await world.cancel(event.task)).status.state == CANCELED
            assert len(world.agent.began) == len(world.agent.ended)
        assert world.executor.statistics().told == {TaskState.CANCELED: 100}


async def test_an_end_and_a_cancel_at_the_same_time_make_one_end() -> None:
    async with open_world() as world:
        found = []
        for number in range(40):
            async with reading(world, "stream") as stream:
                task = await stream.task()
                await trio.sleep(0.0015 * number)
                try:
                    answered = (await world.cancel(task)).status.state
                except TaskNotCancelableError:
                    answered = COMPLETED
                states = await stream.states()
                ends = [state for state in states if state != WORKING]
                assert ends == [answered] == [(await world.get(task)).status.state]
                assert ("all" in texts_of(stream.events)) is (answered == COMPLETED)
                found += ends
        assert set(found) == {CANCELED, COMPLETED}


async def test_a_server_that_closes_stops_what_it_served() -> None:
    async with open_world(streaming=False, polling=True) as world:
        await world.send("park")
        await world.agent.wait_began()
        executor = world.executor
    assert executor.statistics().told == {TaskState.CANCELED: 1}


async def test_a_server_that_closes_says_cancelled_first_and_stores_it() -> None:
    async with open_world() as world, reading(world, "park") as stream:
        task = await stream.task()
        await stream.working()
        await world.close()
        assert await stream.states() == [WORKING, CANCELED]
        assert await world.stored(task) == CANCELED


async def test_a_server_that_closes_leaves_what_goes_on_as_it_is_and_waits_for_so_long() -> None:
    """Nor does who has cancelled it meanwhile hear that it was."""
    async with open_world(answer_within=0.5) as world, reading(world, "linger") as stream:
        task = await stream.task()
        await stream.working()
        answers: list[Any] = []

        async def cancel() -> None:
            answers.append((await world.cancel(task)).status.state)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            began = trio.current_time()
            await world.close()
        assert trio.current_time() - began < PATIENCE / 2
        assert answers == [WORKING]
        assert world.agent.ended == []
        assert await world.stored(task) == WORKING
        # Late, and to a server that has closed.
        assert (await world.cancel(task)).status.state == WORKING
        assert states_of(stream.events) == [WORKING]


async def test_a_cancel_that_loses_to_a_question_cancels_that() -> None:
    """It was decided, and is not told yet; nobody waits for an answer afterwards."""
    releasing, release = trio.Event(), trio.Event()

    @asynccontextmanager
    async def slow(job: Job) -> AsyncGenerator[None, None]:
        yield
        with trio.CancelScope(shield=True):
            releasing.set()
            await release.wait()

    async with open_world(claim=slow) as world, reading(world, "ask") as stream:
        task = await stream.task()
        await releasing.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(release_later, release)
            assert (await world.cancel(task)).status.state == CANCELED
        assert await stream.states() == [WORKING, CANCELED]
        assert (await world.get(task)).status.state == CANCELED


async def release_later(event: trio.Event) -> None:
    await trio.sleep(0.3)
    event.set()


async def test_who_is_refused_a_claim_is_told_which_task_holds_it_and_can_cancel_that() -> None:
    async with open_claims(MemoryStore()) as claims:

        def claim(job: Job) -> Any:
            return claims.hold(["db"], holder=job.task_id)

        async with open_world(claim=claim) as world, reading(world, "park") as stream:
            task = await stream.task()
            await world.agent.wait_began()
            refused = await world.send("answer")
            (part,) = refused[-1].status_update.status.message.parts
            assert f"{task.id} holds 'db'" in part.text
            await world.cancel(task)
            assert states_of(await world.send("answer")) == [WORKING, COMPLETED]
