"""What becomes of a task: decided once, told once, when its work has ended. In virtual time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, RoomsClosed, StopBudget
from turnstop.events import Text, ToolCall
from turnstop.executor import (
    Began,
    InputRequired,
    Job,
    Outcome,
    Task,
    TaskState,
    open_executor,
)

CANCELED, COMPLETED, FAILED = TaskState.CANCELED, TaskState.COMPLETED, TaskState.FAILED


async def run(fn: Any, *, cancel_at: float | None = None, **options: Any) -> tuple[Task, list[Any]]:
    """One task, from its submission to its outcome, and what was told of it."""
    heard: list[Any] = []
    async with open_executor(fn, **options) as executor:
        task = executor.submit("r", "do it", hear=heard.append)
        assert task.state is TaskState.SUBMITTED
        if cancel_at is not None:
            await trio.sleep_until(cancel_at)
            assert task.cancel()
        await task.wait()
    assert heard[-1] is task.outcome
    assert [one for one in heard if isinstance(one, Outcome)] == [task.outcome]
    return task, heard


async def test_what_it_says_and_returns_is_told_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(job: Job) -> str:
        job.emit(Text(f"{job.room}: {job.content}"))
        await trio.sleep(1)
        job.emit(Text("!"))
        return "done"

    task, heard = await run(agent)
    assert heard[:-1] == [Began(), Text("r: do it"), Text("!")]
    assert (task.outcome.state, task.outcome.result) == (COMPLETED, "done")
    assert task.state is COMPLETED
    assert not task.cancel()
    assert caplog.records == []


# I1: cancelled before it runs, it runs nothing.


@pytest.mark.parametrize("waiting", [True, False])
async def test_what_is_cancelled_before_it_begins_never_runs(waiting: bool) -> None:
    calls = []

    async def agent(job: Job) -> None:
        calls.append(job.content)
        await trio.sleep(10)

    async with open_executor(agent) as executor:
        if waiting:
            executor.submit("r", "first")
            await trio.sleep(1)
        heard: list[Any] = []
        task = executor.submit("r", "second", hear=heard.append)
        if waiting:
            await trio.sleep(1)
        assert task.cancel()
        outcome = await task.wait()
        assert trio.current_time() == (2 if waiting else 0)
    assert outcome.state is CANCELED
    assert heard == [outcome]
    assert calls == ["first"] * waiting


# I2, I3: before a step, and after one.


async def test_no_step_begins_once_it_is_cancelled() -> None:
    calls = []

    async def agent(job: Job) -> None:
        # It comes to no checkpoint of Trio's before the step.
        job._task.cancel()
        await job.step(step)

    async def step() -> None:
        calls.append("step")

    task, _ = await run(agent)
    assert task.outcome.state is CANCELED
    assert calls == []


async def test_a_step_runs_to_its_end_and_its_result_is_discarded() -> None:
    seen: list[Any] = []

    async def step(by: int) -> str:
        await trio.sleep(by)
        seen.append("step")
        return "result"

    async def agent(job: Job) -> str:
        result = await job.step(step, 10)
        seen.append(result)
        return "done"

    task, _ = await run(agent, cancel_at=1, budget=StopBudget(100, 1))
    assert seen == ["step"]
    assert (task.outcome.state, task.outcome.result) == (CANCELED, None)
    assert trio.current_time() == 10


async def test_a_step_that_nobody_cancels_gives_its_result() -> None:
    async def agent(job: Job) -> object:
        async def step(by: int) -> int:
            await trio.sleep(by)
            return by

        return await job.step(step, 2) + await job.step(lambda: 40)

    task, _ = await run(agent)
    assert task.outcome.result == 42


async def test_a_checkpoint_is_where_a_cancel_arrives() -> None:
    seen = []

    async def agent(job: Job) -> None:
        await job.checkpoint()
        seen.append("first")
        job._task.cancel()
        await job.checkpoint()
        seen.append("second")

    task, _ = await run(agent)
    assert (task.outcome.state, seen) == (CANCELED, ["first"])


# I6: nobody cancels.


async def test_what_nobody_cancels_completes() -> None:
    async def agent(job: Job) -> int:
        await job.checkpoint()
        return len(job.content)

    task, heard = await run(agent)
    assert task.outcome.result == 5
    assert heard == [Began(), task.outcome]


# I10, I11: one end, and the first.


async def swallow(job: Job) -> str:
    """Goes on for a while, and says that it was successful."""
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
        job.emit(Text("late"))
        return "success"


async def test_a_success_after_a_cancel_is_none() -> None:
    task, heard = await run(swallow, cancel_at=1)
    assert (task.outcome.state, task.outcome.result) == (CANCELED, None)
    assert heard == [Began(), task.outcome]
    assert trio.current_time() == 4
    assert task.turn.ending is Ending.STOPPED
    assert task.turn.settlement.sent_at == 1


async def test_an_error_after_a_cancel_is_none(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(job: Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("on the way out")

    task, _ = await run(agent, cancel_at=1)
    assert (task.outcome.state, task.outcome.error) == (CANCELED, None)
    assert "on the way out" in caplog.text


async def test_a_question_after_a_cancel_is_none() -> None:
    async def agent(job: Job) -> object:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return InputRequired("which one?")

    task, _ = await run(agent, cancel_at=1)
    assert (task.outcome.state, task.outcome.text) == (CANCELED, "")


async def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    """It has returned, and its claim is not released yet."""

    class Slow:
        def note_progress(self) -> None: ...

        def let_lapse(self) -> None: ...

        async def __aenter__(self) -> Slow:
            return self

        async def __aexit__(self, *_: object) -> None:
            await trio.sleep(5)

    async def agent(job: Job) -> str:
        job.emit(Text("said"))
        return "done"

    heard: list[Any] = []
    async with open_executor(agent, claim=lambda job: Slow()) as executor:
        task = executor.submit("r", None, hear=heard.append)
        await trio.sleep(1)
        assert not task.cancel()
        assert task.state is TaskState.WORKING
        outcome = await task.wait()
        assert trio.current_time() == 5
    assert heard == [Began(), Text("said"), outcome]
    assert outcome.state is COMPLETED


async def test_who_cancels_it_when_it_hears_that_it_begins_has_nothing_called() -> None:
    calls: list[Job] = []

    async def agent(job: Job) -> None:
        calls.append(job)

    async with open_executor(agent) as executor:
        task = executor.submit("r", None, hear=lambda said: said == Began() and task.cancel())
        assert (await task.wait()).state is CANCELED
    assert calls == []


class Slow:
    """A claim that takes a while to be released, and keeps errors to itself."""

    def note_progress(self) -> None: ...

    def let_lapse(self) -> None: ...

    async def __aenter__(self) -> Slow:
        return self

    async def __aexit__(self, *_: object) -> bool:
        await trio.sleep(5)
        return True


async def test_a_cancel_that_comes_after_its_error_changes_nothing() -> None:
    async def agent(job: Job) -> None:
        raise OSError("no such file")

    async with open_executor(agent, claim=lambda job: Slow()) as executor:
        task = executor.submit("r", None)
        await trio.sleep(1)
        assert not task.cancel()
        outcome = await task.wait()
        assert trio.current_time() == 5
    assert (outcome.state, outcome.text) == (FAILED, "no such file")


async def test_an_error_of_a_nursery_of_its_own_is_told_in_its_own_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise OSError("no such file")

    async def agent(job: Job) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)

    task, _ = await run(agent)
    assert task.outcome.text == "no such file"
    assert isinstance(task.outcome.error, ExceptionGroup)
    assert caplog.records == []


async def test_what_only_makes_something_to_be_run_has_failed() -> None:
    async def work() -> None: ...

    async def agent(job: Job) -> object:
        return await job.step(lambda: work())

    async def generator(job: Job) -> Any:
        yield 1

    for fn in (agent, generator):
        task, _ = await run(fn)
        assert (task.outcome.state, type(task.outcome.error)) == (FAILED, TypeError), fn


async def test_its_error_fails_it() -> None:
    async def agent(job: Job) -> None:
        await trio.sleep(1)
        raise LookupError("no such file")

    task, _ = await run(agent)
    assert task.outcome.state is FAILED
    assert isinstance(task.outcome.error, LookupError)
    assert task.outcome.text == "no such file"


async def test_a_question_ends_it_and_the_next_task_of_the_room_goes_on() -> None:
    async def agent(job: Job) -> object:
        if job.session is None:
            job.session = job.content
            return InputRequired("which one?")
        return f"{job.session}: {job.content}"

    async with open_executor(agent) as executor:
        asked = await executor.submit("r", "paint").wait()
        other = await executor.submit("other", "sing").wait()
        answered = await executor.submit("r", "red").wait()
    assert (asked.state, asked.text) == (TaskState.INPUT_REQUIRED, "which one?")
    assert other.state is TaskState.INPUT_REQUIRED
    assert answered.result == "paint: red"


# When it is told.


async def test_it_is_cancelled_when_the_work_has_ended_and_not_when_the_budget_is_over() -> None:
    began = []

    async def agent(job: Job) -> None:
        began.append((job.content, trio.current_time()))
        if job.content == "wedged":
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async with open_executor(agent, budget=StopBudget(2, 1)) as executor:
        task = executor.submit("r", "wedged")
        after = executor.submit("r", "after")
        await trio.sleep(1)
        assert executor.cancel(task.task_id)
        assert executor.cancel(task.task_id)
        assert executor.statistics().cancelled == 1
        await after.wait()
        assert trio.current_time() == 4
        assert (task.state, task.outcome) == (TaskState.WORKING, None)
        assert (await task.wait()).state is CANCELED
        assert trio.current_time() == 100
    assert began == [("wedged", 0), ("after", 4)]
    assert executor.statistics().told == {CANCELED: 1, COMPLETED: 1}


async def test_its_exit_cancels_what_is_live_and_waits_for_its_end() -> None:
    async with open_executor(swallow) as executor:
        task = executor.submit("r", None)
        waiting = executor.submit("r", None)
        await wait_all_tasks_blocked()
    assert trio.current_time() == 3
    assert task.outcome.state is waiting.outcome.state is CANCELED
    with pytest.raises(RoomsClosed, match="closing"):
        executor.submit("r", None)


async def test_its_cancellation_does_the_same() -> None:
    with trio.move_on_after(1):
        async with open_executor(swallow) as executor:
            task = executor.submit("r", None)
            waiting = executor.submit("r", None)
            await trio.sleep_forever()
    assert trio.current_time() == 4
    assert task.outcome.state is waiting.outcome.state is CANCELED
    assert waiting.turn.settlement.sent_at is None


async def test_its_cancellation_does_not_wait_for_the_body() -> None:
    ended = []
    with trio.move_on_after(1):
        async with open_executor(swallow) as executor:
            task = executor.submit("r", None)
            waiting = executor.submit("r", None)
            with trio.CancelScope(shield=True):
                for one in (task, waiting):
                    await one.wait()
                    ended.append(trio.current_time())
                await trio.sleep(50)
    assert ended == [4, 4]
    assert task.outcome.state is waiting.outcome.state is CANCELED


async def test_what_ends_the_program_leaves_no_task_untold() -> None:
    async def agent(job: Job) -> None:
        await trio.sleep(1)
        raise SystemExit(3)

    tasks = []
    with pytest.raises(SystemExit):
        async with open_executor(agent) as executor:
            tasks += [executor.submit("r", None) for _ in range(2)]
            await trio.sleep_forever()
    # Nobody has cancelled the one that has ended it.
    assert [task.outcome.state for task in tasks] == [FAILED, CANCELED]
    assert isinstance(tasks[0].outcome.error, SystemExit)


async def test_what_is_said_in_one_step_is_all_heard() -> None:
    async def agent(job: Job) -> str:
        for number in range(20_000):
            job.emit(ToolCall(str(number), "flood", "started"))
        await trio.sleep(1)
        return "done"

    task, heard = await run(agent)
    assert [one.id for one in heard[1:-1]] == [str(number) for number in range(20_000)]
    assert task.outcome.result == "done"


async def test_after_one_that_did_not_end_its_room_takes_a_fresh_session() -> None:
    seen = []

    async def agent(job: Job) -> None:
        seen.append(job.session)
        job.session = job.content
        if job.content == "wedged":
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async with open_executor(agent) as executor:
        for content in ("one", "two", "wedged", "three"):
            task = executor.submit("r", content)
            if content == "wedged":
                await trio.sleep(1)
                task.cancel()
            else:
                await task.wait()
        assert trio.current_time() < 100
    assert seen == [None, "one", "two", None]


async def test_a_retired_room_has_no_tasks_and_no_session() -> None:
    seen = []

    async def agent(job: Job) -> None:
        seen.append(job.session)
        job.session = job.content
        if job.content == "long":
            await job.step(trio.sleep, 3)

    async with open_executor(agent) as executor:
        await executor.submit("r", "one").wait()
        await executor.submit("other", "one").wait()
        neighbour = executor.submit("other", "long")
        tasks = [executor.submit("r", content) for content in ("long", "waiting")]
        await trio.sleep(1)
        await executor.retire("r")
        assert trio.current_time() == 3
        assert [(await task.wait()).state for task in tasks] == [CANCELED, CANCELED]
        await executor.submit("r", "two").wait()
        assert (await neighbour.wait()).state is COMPLETED
        await executor.submit("other", "two").wait()
    assert sorted(seen, key=str) == [None, None, None, "long", "one", "one"]
    assert seen[-2:] == [None, "long"]


# Who hears of it.


async def test_who_fails_to_hear_of_it_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    seen: list[Outcome] = []

    def deaf(_: object) -> None:
        raise RuntimeError("deaf")

    async def agent(job: Job) -> str:
        return "done"

    async with open_executor(agent, observers=[deaf, seen.append]) as executor:
        outcome = await executor.submit("r", None, hear=deaf).wait()
        await wait_all_tasks_blocked()
        assert executor.statistics().live == 0
    assert seen == [outcome]
    assert outcome.result == "done"
    assert caplog.text.count("RuntimeError: deaf") == 3


async def test_who_hears_of_it_finds_it_as_it_is_told() -> None:
    seen: list[Any] = []

    async def agent(job: Job) -> None: ...

    def hear(update: object) -> None:
        seen.append((type(update), task.state, executor.find(task.task_id) is task))

    async with open_executor(agent) as executor:
        task = executor.submit("r", None, hear=hear)
        await task.wait()
    assert seen == [(Began, TaskState.WORKING, True), (Outcome, COMPLETED, False)]


async def test_a_cancelled_one_leaves_its_session_to_the_next() -> None:
    async def agent(job: Job) -> object:
        before, job.session = job.session, "as far as it came"
        if before is None:
            await trio.sleep_forever()
        return before

    async with open_executor(agent) as executor:
        task = executor.submit("r", None)
        await trio.sleep(1)
        task.cancel()
        outcome = await executor.submit("r", None).wait()
    assert outcome.result == "as far as it came"


async def test_bad_calls_are_refused() -> None:
    async def agent(job: Job) -> None:
        await trio.sleep(1)

    with pytest.raises(TypeError, match="an executor runs a function"):
        async with open_executor("agent"):
            pass
    async with open_executor(agent) as executor:
        task = executor.submit("r", None, task_id="one")
        assert executor.find("one") is task
        with pytest.raises(ValueError, match="has not ended"):
            executor.submit("r", None, task_id="one")
        assert not executor.cancel("two")
        with pytest.raises(TypeError, match="named by a str"):
            executor.submit(7, None)
        with pytest.raises(RuntimeError, match="another thread"):
            await trio.to_thread.run_sync(task.cancel)
        with pytest.raises(RuntimeError, match="another thread"):
            await trio.to_thread.run_sync(executor.submit, "r", None)
        assert not task.is_cancelled
        await task.wait()
        assert executor.find("one") is None
        assert not executor.cancel("one")
    with pytest.raises(TypeError, match="no public constructor"):
        Task("one", "r", None, (), print)


async def test_nothing_is_said_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(job: Job) -> None:
        job.emit(Text("x"))

    async with open_executor(agent) as executor:
        await executor.submit("r", "do it").wait()
    assert caplog.records == []
