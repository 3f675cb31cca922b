"""Functions in threads: asked to stop, waited for, and never believed too late."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from turnstop import BackendLost, StopBudget
from turnstop.claims import ClaimRefused, Claims, MemoryStore, open_claims
from turnstop.events import Text
from turnstop.executor import Began, Job, Stopped, TaskState, ThreadJob, open_executor
from turnstop.executor._threads import Threads

PATIENCE = 20.0
CANCELED, COMPLETED, FAILED = TaskState.CANCELED, TaskState.COMPLETED, TaskState.FAILED


class Gate:
    """Holds up a thread until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> str:
        self.reached.set()
        assert self.open.wait(PATIENCE)
        return "passed"

    async def wait_reached(self) -> None:
        assert await trio.to_thread.run_sync(self.reached.wait, PATIENCE)


async def test_it_says_and_returns() -> None:
    def agent(job: ThreadJob) -> str:
        job.emit(Text(job.content))
        return str(job.step(lambda number: number + 1, 41))

    heard: list[Any] = []
    async with open_executor(agent) as executor:
        with trio.fail_after(PATIENCE):
            outcome = await executor.submit("r", "hi", hear=heard.append).wait()
    assert outcome.result == "42"
    assert heard == [Began(), Text("hi"), outcome]


@pytest.mark.parametrize("leave", ["step", "checkpoint", "emit"])
async def test_it_is_left_at_its_next_checkpoint(leave: str) -> None:
    gate, seen = Gate(), []

    def agent(job: ThreadJob) -> str:
        if leave == "step":
            seen.append(job.step(gate.pass_through))
        else:
            gate.pass_through()
            assert job.is_cancelled
            job.checkpoint() if leave == "checkpoint" else job.emit(Text("late"))
        seen.append("not reached")
        return "done"

    heard: list[Any] = []
    async with open_executor(agent) as executor:
        with trio.fail_after(PATIENCE):
            task = executor.submit("r", None, hear=heard.append)
            await gate.wait_reached()
            assert task.cancel()
            assert task.state is TaskState.WORKING
            gate.open.set()
            outcome = await task.wait()
    assert (outcome.state, seen) == (CANCELED, [])
    assert heard == [Began(), outcome]


async def test_no_step_begins_once_it_is_cancelled() -> None:
    gate, seen = Gate(), []

    def agent(job: ThreadJob) -> None:
        gate.pass_through()
        job.step(seen.append, "step")

    async with open_executor(agent) as executor:
        with trio.fail_after(PATIENCE):
            task = executor.submit("r", None)
            await gate.wait_reached()
            task.cancel()
            gate.open.set()
            assert (await task.wait()).state is CANCELED
    assert seen == []


async def test_what_was_cancelled_before_its_thread_runs_does_not_call_it() -> None:
    """Trio was past its last look at the cancellation when it came."""
    calls: list[object] = []

    def agent(job: ThreadJob) -> None:
        calls.append(job)

    class LastMoment:
        """Its claim's `note_progress` is the last thing that happens before the function."""

        task: Any = None

        async def __aenter__(self) -> LastMoment:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        def note_progress(self) -> None: ...

        def let_lapse(self) -> None: ...

    def hear(update: object) -> None:
        if update == Began():
            # Decided in the step in which it began: Trio's own cancellation is held off here.
            found[0]._decision.make(outcome_of(found[0]))

    def outcome_of(task: Any) -> Any:
        from turnstop.executor import Outcome

        return Outcome(task.task_id, task.room, CANCELED)

    found: list[Any] = []
    async with open_executor(agent, claim=lambda job: LastMoment()) as executor:
        with trio.fail_after(PATIENCE):
            found.append(executor.submit("r", None, hear=hear))
            assert (await found[0].wait()).state is CANCELED
    assert calls == []


@pytest.mark.parametrize("end", ["success", "error"])
async def test_what_it_returns_or_raises_after_a_cancel_is_nothing(end: str) -> None:
    gate = Gate()

    def agent(job: ThreadJob) -> str:
        gate.pass_through()
        if end == "error":
            raise OSError("on the way out")
        return end

    async with open_executor(agent) as executor:
        with trio.fail_after(PATIENCE):
            task = executor.submit("r", None)
            await gate.wait_reached()
            task.cancel()
            gate.open.set()
            outcome = await task.wait()
    assert (outcome.state, outcome.result, outcome.error) == (CANCELED, None, None)


class Claimed:
    """Claims that two programs see, and the tasks of one of them hold `a`."""

    def __init__(self, claims: Claims, others: Claims) -> None:
        self._claims, self._others = claims, others

    def claim(self, job: Any) -> Any:
        return self._claims.hold(["a"], holder=job.task_id)

    async def is_free(self) -> bool:
        try:
            async with self._others.hold(["a"], holder="other"):
                return True
        except ClaimRefused:
            return False


@pytest.fixture
async def claimed() -> AsyncIterator[Claimed]:
    store = MemoryStore()
    async with open_claims(store) as claims, open_claims(store) as others:
        yield Claimed(claims, others)


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110 - it has no event
        await trio.sleep(0.01)


async def test_a_claim_is_held_until_the_thread_has_returned(claimed: Claimed) -> None:
    """Also when the stop's budget is over."""
    gate = Gate()

    def agent(job: ThreadJob) -> None:
        gate.pass_through()

    budget = StopBudget(0.02, 0.02)
    async with open_executor(agent, claim=claimed.claim, budget=budget) as executor:
        with trio.fail_after(PATIENCE):
            task = executor.submit("r", None)
            await gate.wait_reached()
            task.cancel()
            await until(lambda: executor.statistics().stragglers)
            assert executor.statistics().stragglers == (task.task_id,)
            assert not await claimed.is_free()
            assert task.outcome is None
            gate.open.set()
            assert (await task.wait()).state is CANCELED
            assert executor.statistics().stragglers == ()
            assert await claimed.is_free()


@pytest.mark.parametrize("how", ["function", "step", "wedged before"])
async def test_the_exit_leaves_a_thread_behind_that_does_not_end(
    how: str, claimed: Claimed, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, what it claimed is not given to others, and CANCELED is not said of it."""
    gate, seen = Gate(), []

    def work(job: Any) -> None:
        gate.pass_through()
        try:
            job.checkpoint()
        except Stopped:
            seen.append("stopped")

    async def agent(job: Job) -> None:
        await job.step(gate.pass_through)

    fn, budget, told = agent if how == "step" else work, StopBudget(0.1, 0.1), []
    with trio.fail_after(PATIENCE):
        async with open_executor(
            fn, claim=claimed.claim, budget=budget, observers=[told.append]
        ) as executor:
            task = executor.submit("r", None)
            await gate.wait_reached()
            if how == "wedged before":
                task.cancel()
                await until(lambda: executor.statistics().stragglers)
            began = trio.current_time()
        assert trio.current_time() - began < PATIENCE / 2
        outcome = await task.wait()
        assert told == [outcome]
        assert (outcome.state, type(outcome.error)) == (FAILED, BackendLost)
        assert task.is_cancelled
        assert executor.statistics().stragglers == (task.task_id,)
        assert f"a thread of task {task.task_id} has not ended" in caplog.text
        # Its function was cancelled, and met no error.
        assert "has failed" not in caplog.text
        assert not await claimed.is_free()
        gate.open.set()
        await until(lambda: not executor.statistics().stragglers)
    assert seen == ["stopped"] * (how != "step")


async def test_a_task_that_leaves_two_threads_behind_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gates = [Gate(), Gate()]

    async def agent(job: Job) -> None:
        async with trio.open_nursery() as nursery:
            for gate in gates:
                nursery.start_soon(job.step, gate.pass_through)

    with trio.fail_after(PATIENCE):
        async with open_executor(agent, budget=StopBudget(0.1, 0.1)) as executor:
            task = executor.submit("r", None)
            for gate in gates:
                await gate.wait_reached()
        assert task.outcome.state is FAILED
        gates[0].open.set()
        await trio.sleep(0.05)
        assert executor.statistics().stragglers == (task.task_id,)
        gates[1].open.set()
        await until(lambda: not executor.statistics().stragglers)
    assert caplog.text.count("is left behind") == 1


async def test_a_step_is_not_begun_where_a_thread_was_left_behind() -> None:
    """It shields itself from its cancellation, and would go on in threads for ever."""
    gate, calls, errors = Gate(), [], []

    async def agent(job: Job) -> None:
        with trio.CancelScope(shield=True):
            for fn in (gate.pass_through, lambda: calls.append("again")):
                try:
                    await job.step(fn)
                except RuntimeError as error:
                    errors.append(str(error))

    with trio.fail_after(PATIENCE):
        async with open_executor(agent, budget=StopBudget(0.1, 0.1)) as executor:
            executor.submit("r", None)
            await gate.wait_reached()
        gate.open.set()
        await until(lambda: not executor.statistics().stragglers)
    assert calls == []
    assert "left a thread" in errors[0]
    assert "begins no thread" in errors[1]
    assert len(errors) == 2


async def test_a_step_that_is_not_begun_is_no_thread_that_was_left(claimed: Claimed) -> None:
    """An async function is waited for; its clean-up comes to it when the budget is over."""
    calls: list[str] = []

    async def agent(job: Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await until(lambda: executor.statistics().stragglers)
                await job.step(calls.append, "tidied up")

    with trio.fail_after(PATIENCE):
        async with open_executor(
            agent, claim=claimed.claim, budget=StopBudget(0.1, 0.1)
        ) as executor:
            task = executor.submit("r", None)
            await until(lambda: task.state is TaskState.WORKING)
    assert (task.outcome.state, calls) == (CANCELED, [])
    assert executor.statistics().stragglers == ()
    assert await claimed.is_free()


async def test_who_says_by_itself_that_it_was_stopped_has_failed() -> None:
    def work(job: ThreadJob) -> None:
        raise Stopped

    async with open_executor(work) as executor:
        outcome = await executor.submit("r", None).wait()
    assert (outcome.state, type(outcome.error)) == (FAILED, BackendLost)


async def test_no_step_and_no_function_waits_for_the_threads_of_others() -> None:
    """A cancelled one would begin all the same, when they are through."""
    gate, calls = Gate(), []

    def hang() -> None:
        assert gate.open.wait(PATIENCE)

    async def agent(job: Job) -> None:
        await job.step(calls.append, job.content)

    def blocking(job: ThreadJob) -> None:
        calls.append(job.content)

    limiter = trio.to_thread.current_default_thread_limiter()
    async with trio.open_nursery() as nursery:
        for _ in range(int(limiter.total_tokens)):
            nursery.start_soon(trio.to_thread.run_sync, hang)
        try:
            with trio.fail_after(PATIENCE / 2):
                for fn in (agent, blocking):
                    async with open_executor(fn) as executor:
                        assert (await executor.submit("r", fn).wait()).state is COMPLETED
        finally:
            gate.open.set()
    assert calls == [agent, blocking]


async def test_each_checkpoint_step_and_event_is_progress() -> None:
    noted: list[str] = []
    place = [""]

    class Noting:
        async def __aenter__(self) -> Noting:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        def note_progress(self) -> None:
            noted.append(place[0])

        def let_lapse(self) -> None: ...

    def agent(job: ThreadJob) -> None:
        for place[0] in ("checkpoint", "emit", "step"):
            if place[0] == "checkpoint":
                job.checkpoint()
            elif place[0] == "emit":
                job.emit(Text("still here"))
            else:
                job.step(place.__setitem__, 0, "after the step")

    async with open_executor(agent, claim=lambda job: Noting()) as executor:
        with trio.fail_after(PATIENCE):
            await executor.submit("r", None).wait()
    assert noted == ["", "checkpoint", "emit", "step", "after the step"]


async def test_what_only_makes_a_coroutine_has_failed() -> None:
    async def wrapped() -> None: ...

    async with open_executor(lambda job: wrapped()) as executor:
        with trio.fail_after(PATIENCE):
            outcome = await executor.submit("r", None).wait()
    assert outcome.state is FAILED
    assert "thread=False" in outcome.text


async def test_a_step_that_only_makes_a_coroutine_has_failed() -> None:
    async def work() -> None: ...

    async with open_executor(lambda job: job.step(work)) as executor:
        with trio.fail_after(PATIENCE):
            outcome = await executor.submit("r", None).wait()
    assert (outcome.state, type(outcome.error)) == (FAILED, TypeError)
    assert "ordinary function" in outcome.text


async def test_of_a_thread_that_has_ended_nothing_is_kept() -> None:
    def count() -> int:
        gc.collect()
        return sum(isinstance(one, trio.CancelScope) for one in gc.get_objects())

    threads = Threads("task 1", lambda: None)
    await threads.run(int, "7")
    before = count()
    for _ in range(10):
        assert await threads.run(int, "7") == 7
    assert count() == before


def test_stopped_is_no_exception() -> None:
    assert not issubclass(Stopped, Exception)
