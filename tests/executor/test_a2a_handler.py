"""What an A2A server of the SDK's answers, asked in its own process; `tests/real` has its wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from turnstop.events import Text
from turnstop.executor import Executor, InputRequired, Job, TaskState, open_executor

pytest.importorskip("a2a.server.agent_execution")

from a2a.helpers import new_text_message
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import A2AError, InternalError, TaskNotFoundError

from turnstop.executor._a2a_requests import Cancels
from turnstop.executor.a2a import A2AExecutor, A2AHandler

from .test_a2a import PATIENCE, caller, on_a_loop

CANCELED = wire.TASK_STATE_CANCELED
WORKING = wire.TASK_STATE_WORKING


class Store(InMemoryTaskStore):
    """A store whose answers may be late, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.fails = False
        self.slow: set[str] = set()
        self.waits = asyncio.Event()
        self.release = asyncio.Event()

    async def get(self, task_id: str, context: Any) -> Any:
        self.asked += 1
        if context.user.user_name in self.slow:
            self.waits.set()
            await self.release.wait()
        return await super().get(task_id, context)

    async def save(self, task: Any, context: Any) -> None:
        if self.fails:
            raise OSError("the database is away")
        await super().save(task, context)


class Agent:
    """`answer`, `ask`, `park`; `linger`: a step that ends at `release`."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.jobs: list[Job] = []
        self._release = trio.Event()
        self._token: Any = None

    async def __call__(self, job: Job) -> object:
        self._token = trio.lowlevel.current_trio_token()
        self.began.append(job.content)
        self.jobs.append(job)
        try:
            return await getattr(self, job.content)(job)
        finally:
            self.ended.append(job.content)

    async def answer(self, job: Job) -> str:
        before, job.session = job.session, job.content
        return f"{job.room} {before}"

    async def ask(self, job: Job) -> InputRequired:
        job.session = "asked"
        return InputRequired("which one?")

    async def park(self, job: Job) -> None:
        await trio.sleep_forever()

    async def linger(self, job: Job) -> None:
        await job.step(self._release.wait)

    # From the loop's thread:

    def release(self) -> None:
        self._token.run_sync_soon(self._release.set)

    def say(self, text: str) -> None:
        self._token.run_sync_soon(self.jobs[-1].emit, Text(text))


class World:
    def __init__(self, agent: Agent, executor: Executor, **how: Any) -> None:
        self.agent = agent
        self.store = Store()
        within = how.pop("answer_within", PATIENCE)
        self.works = A2AExecutor(executor, **how)
        self.handler = A2AHandler(self.works, self.store, card(), answer_within=within)

    async def send(
        self, text: str, user: str = "ann", *, now: bool = False, context: str = "c", task: str = ""
    ) -> Any:
        request = message(text, context=context, task=task)
        request.configuration.return_immediately = now
        return await self.handler.on_message_send(request, caller(user))

    async def begun(self, text: str) -> Any:
        """The task of a message whose function runs, and whose store knows that."""
        task = await self.send(text, now=True)
        while (await self.stored(task)) != WORKING or not self.agent.began:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        return task

    async def cancel(self, task: Any, user: str = "ann") -> Any:
        request = wire.CancelTaskRequest(id=task.id)
        found = await self.handler.on_cancel_task(request, caller(user))
        assert found is not None
        return found.status.state

    async def stored(self, task: Any) -> Any:
        return (await self.store.get(task.id, caller("ann"))).status.state

    async def lose(self) -> None:
        """Have the store fail for one piece of text, for which the SDK gives its task up."""
        (work,) = self.works.live().values()
        for task in asyncio.all_tasks():
            # The SDK never looks at its error, which asyncio would log whenever it is collected.
            if task.get_coro().__qualname__.endswith("_run_consumer"):  # type: ignore[union-attr]
                task.add_done_callback(lambda over: over.exception())
        self.store.fails = True
        self.agent.say("lost")
        while not work.is_lost():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        self.store.fails = False


def message(text: str, *, context: str = "c", task: str = "") -> Any:
    ids = {"context_id": context, "task_id": task}
    said = new_text_message(text, role=wire.Role.ROLE_USER, **ids)
    return wire.SendMessageRequest(message=said)


def card() -> Any:
    interface = wire.AgentInterface(
        url="http://127.0.0.1/", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    return wire.AgentCard(
        name="agent",
        description="Does what the message says.",
        version="1",
        supported_interfaces=[interface],
        capabilities=wire.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[wire.AgentSkill(id="w", name="w", description="Works.", tags=["test"])],
    )


async def play(scene: Callable[[World], Awaitable[None]], **how: Any) -> Executor:
    """Play a scene on a loop in a thread, and leave the server closed."""
    agent = Agent()

    async def served() -> None:
        world = World(agent, executor, **how)
        try:
            await scene(world)
        finally:
            if agent.began:
                agent.release()
            await world.handler.aclose()

    async with open_executor(agent) as executor:
        await on_a_loop(served)
    return executor


@asynccontextmanager
async def soon(awaitable: Awaitable[Any]) -> AsyncGenerator[asyncio.Future[Any], None]:
    future = asyncio.ensure_future(awaitable)
    try:
        yield future
    finally:
        future.cancel()
        await asyncio.wait({future})


def text_of(task: Any) -> str:
    return str(task.artifacts[-1].parts[0].text)


async def test_another_user_of_the_same_context_has_another_session() -> None:
    async def scene(world: World) -> None:
        assert text_of(await world.send("answer")) == "ann/c None"
        assert text_of(await world.send("answer", "bob")) == "bob/c None"
        assert text_of(await world.send("answer")) == "ann/c answer"

    await play(scene)


async def test_another_user_of_the_same_context_is_not_waited_for() -> None:
    async def scene(world: World) -> None:
        await world.begun("linger")
        assert (await world.send("answer", "bob")).status.state == wire.TASK_STATE_COMPLETED
        assert world.agent.ended == ["answer"]

    await play(scene)


async def test_who_goes_on_with_a_task_and_leaves_its_context_out_is_in_its_room() -> None:
    async def scene(world: World) -> None:
        task = await world.send("ask")
        assert text_of(await world.send("answer", task=task.id, context="")) == "ann/c asked"

    await play(scene)


@pytest.mark.parametrize("which", ["room", "content"])
async def test_an_error_of_the_servers_own_function_is_answered_and_leaves_nothing(
    which: str,
) -> None:
    def fails(context: Any) -> Any:
        raise LookupError("no such customer")

    async def scene(world: World) -> None:
        with pytest.raises(LookupError, match="no such customer"):
            await world.send("answer")
        assert world.works.live() == {}
        (task,) = (await world.store.list(wire.ListTasksRequest(), caller("ann"))).tasks
        assert task.status.state == wire.TASK_STATE_FAILED

    executor = await play(scene, **{which: fails})
    assert executor.statistics().told == {}


async def test_a_room_that_is_no_name_fails_its_task() -> None:
    async def scene(world: World) -> None:
        assert (await world.send("answer")).status.state == wire.TASK_STATE_FAILED
        assert world.works.live() == {}

    await play(scene, room=lambda context: 5)


async def test_what_ends_while_the_server_closes_is_cancelled_in_the_store_and_the_streams() -> (
    None
):
    """Also after `answer_within`, in the second half of the time."""

    async def scene(world: World) -> None:
        loop = asyncio.get_running_loop()
        task = await world.begun("linger")
        async with soon(states_of(subscription(world, task))) as heard:
            await asyncio.sleep(0)
            loop.call_later(1.2, world.agent.release)
            await world.handler.aclose()
            assert world.agent.ended == ["linger"]
            assert await world.stored(task) == CANCELED
            assert (await heard)[-1] == CANCELED

    await play(scene, answer_within=1.0)


def subscription(world: World, task: Any) -> Any:
    request = wire.SubscribeToTaskRequest(id=task.id)
    return world.handler.on_subscribe_to_task(request, caller("ann"))


async def states_of(stream: Any) -> list[Any]:
    return [event.status.state async for event in stream]


@pytest.mark.parametrize("how", ["send", "subscribe"])
async def test_a_server_that_closes_waits_for_who_still_reads(how: str) -> None:
    async def scene(world: World) -> None:
        if how == "send":
            stream = world.handler.on_message_send_stream(message("park"), caller("ann"))
        else:
            stream = subscription(world, await world.begun("park"))
        task = await anext(stream)
        async with soon(world.handler.aclose()) as closing:
            while await world.stored(task) != CANCELED:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)
            await asyncio.wait({closing}, timeout=0.1)
            assert not closing.done()
            assert (await states_of(stream))[-1] == CANCELED
            await closing

    await play(scene)


async def test_a_subscription_of_what_is_not_worked_on_holds_up_no_closing() -> None:
    async def scene(world: World) -> None:
        stream = subscription(world, await world.send("ask"))
        await anext(stream)
        # It would take a minute.
        await asyncio.wait_for(world.handler.aclose(), PATIENCE / 2)
        await stream.aclose()

    await play(scene)


async def test_a_server_that_closes_takes_no_more_messages() -> None:
    async def scene(world: World) -> None:
        task = await world.begun("linger")
        async with soon(world.handler.aclose()) as closing:
            await asyncio.sleep(0)
            with pytest.raises(InternalError, match="is closing"):
                await world.send("answer")
            stream = world.handler.on_message_send_stream(message("answer"), caller("ann"))
            with pytest.raises(InternalError, match="is closing"):
                await anext(stream)
            world.agent.release()
            await closing
        with pytest.raises(InternalError, match="is closing"):
            await world.send("answer")
        assert world.agent.began == ["linger"]
        assert await world.stored(task) == CANCELED

    await play(scene)


async def test_a_message_that_was_taken_just_before_the_closing_is_cancelled() -> None:
    async def scene(world: World) -> None:
        world.store.slow.add("bob")
        async with soon(world.send("park", "bob")) as sent, soon(world.handler.aclose()) as closing:
            await world.store.waits.wait()
            await asyncio.wait({closing}, timeout=0.05)
            assert not closing.done()
            world.store.slow.clear()
            world.store.release.set()
            assert (await sent).status.state == CANCELED
            await closing
        assert world.agent.began == []

    executor = await play(scene)
    assert executor.statistics().told == {TaskState.CANCELED: 1}


async def test_who_closes_it_again_waits_for_the_same() -> None:
    async def scene(world: World) -> None:
        task = await world.begun("linger")
        async with soon(world.handler.aclose()) as first, soon(world.handler.aclose()) as second:
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait({first, second}, timeout=0.05)
            assert first.cancelled()
            assert not second.done()
            world.agent.release()
            await second
        assert await world.stored(task) == CANCELED
        await world.handler.aclose()

    await play(scene)


async def test_a_server_that_has_closed_while_work_goes_on_does_not_wait_for_it_again() -> None:
    async def scene(world: World) -> None:
        task = await world.begun("linger")
        await world.handler.aclose()
        async with soon(world.handler.aclose()) as again:
            await asyncio.wait({again}, timeout=0.3)
            assert again.done()
        assert await world.stored(task) == WORKING
        assert world.agent.ended == []

    await play(scene, answer_within=0.3)


@pytest.mark.parametrize("text", ["park", "ask"])
async def test_another_users_cancel_is_refused_to_them_alone(text: str) -> None:
    """Also while their request is looked up."""

    async def scene(world: World) -> None:
        task = await world.begun(text) if text == "park" else await world.send(text)
        world.store.slow.add("mallory")
        async with soon(world.cancel(task, "mallory")) as mallorys:
            await world.store.waits.wait()
            assert await asyncio.wait_for(world.cancel(task), PATIENCE / 2) == CANCELED
            world.store.release.set()
            with pytest.raises(TaskNotFoundError):
                await mallorys

    await play(scene)


async def test_another_users_cancel_stops_nothing() -> None:
    async def scene(world: World) -> None:
        task = await world.begun("linger")
        with pytest.raises(TaskNotFoundError):
            await world.cancel(task, "mallory")
        (work,) = world.works.live().values()
        assert not work.asked

    await play(scene)


async def test_a_cancel_after_the_store_has_failed_is_answered_at_the_end() -> None:
    """The SDK has given the task up while its work goes on."""

    async def scene(world: World) -> None:
        task = await world.begun("linger")
        await world.lose()
        async with soon(world.cancel(task)) as cancelled:
            await asyncio.wait({cancelled}, timeout=0.05)
            assert not cancelled.done()
            assert await world.stored(task) == WORKING
            world.agent.release()
            state = await cancelled
            assert world.agent.ended == ["linger"]
            assert state == await world.stored(task) == CANCELED

    await play(scene)


async def test_a_cancel_while_the_store_fails_says_no_end_before_it() -> None:
    async def scene(world: World) -> None:
        task = await world.begun("linger")
        async with soon(world.cancel(task)) as cancelled:
            await asyncio.sleep(0)
            await world.works.live()[task.id]._queue.close(immediate=True)
            asked = world.store.asked
            await asyncio.wait({cancelled}, timeout=0.05)
            assert not cancelled.done()
            # Nor is the store asked meanwhile.
            assert world.store.asked == asked
            assert await world.stored(task) == WORKING
            world.agent.release()
            assert await cancelled == CANCELED
            assert world.agent.ended == ["linger"]

    await play(scene)


async def test_a_cancel_that_could_not_wait_leaves_the_next_one_an_end() -> None:
    async def scene(world: World) -> None:
        task = await world.begun("linger")
        await world.lose()
        assert await world.cancel(task) == WORKING
        world.agent.release()
        while world.works.live():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        states = []
        while CANCELED not in states:
            states.append(await world.cancel(task))
        assert await world.stored(task) == CANCELED

    await play(scene, answer_within=0.05)


async def never() -> wire.Task | None:
    await asyncio.Event().wait()
    return None


async def answer(text: str) -> wire.Task | None:
    await asyncio.sleep(0)
    return wire.Task(id=text)


async def fail(event: asyncio.Event) -> wire.Task | None:
    await event.wait()
    raise A2AError("not yours")


def later(seconds: float = PATIENCE) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_who_joins_a_cancel_has_its_answer_but_not_its_error() -> None:
    async def scene() -> None:
        cancels, event = Cancels(), asyncio.Event()
        first = asyncio.ensure_future(cancels.ask("t", partial(fail, event), later()))
        await asyncio.sleep(0)
        asks = [partial(answer, "second"), partial(answer, "third")]
        others = [asyncio.ensure_future(cancels.ask("t", ask, later())) for ask in asks]
        await asyncio.sleep(0)
        event.set()
        with pytest.raises(A2AError, match="not yours"):
            await first
        # One of them asks for itself, and the other joins that.
        assert [found.id for found in await asyncio.gather(*others) if found] == ["second"] * 2

    await on_a_loop(scene)


async def test_a_cancel_that_is_over_and_not_forgotten_is_not_joined() -> None:
    async def scene() -> None:
        cancels = Cancels()
        over: asyncio.Future[wire.Task | None] = asyncio.get_running_loop().create_future()
        over.set_result(wire.Task(id="old"))
        cancels._asked["t"] = over
        found = await cancels.ask("t", partial(answer, "new"), later())
        assert found is not None
        assert found.id == "new"
        cancels._asked["t"] = asyncio.get_running_loop().create_future()
        cancels._forget("t", over)
        assert list(cancels._asked) == ["t"]

    await on_a_loop(scene)


async def test_a_cancel_that_two_have_waited_for_in_vain_is_dropped() -> None:
    async def scene() -> None:
        cancels = Cancels()
        assert await cancels.ask("t", partial(never), later(0.01)) is None
        assert await cancels.ask("t", partial(answer, "second"), later(0.01)) is None
        await asyncio.sleep(0)
        found = await cancels.ask("t", partial(answer, "third"), later())
        assert found is not None
        assert found.id == "third"
        await asyncio.sleep(0)
        assert cancels._asked == {}

    await on_a_loop(scene)
