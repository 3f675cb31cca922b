"""Workers: tasks that are used again, without anything of the job before."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop._workers import MAX_IDLE, Workers

which: ContextVar[str] = ContextVar("which", default="nobody's")


def children(nursery: trio.Nursery) -> int:
    return len(nursery.child_tasks)


async def test_a_job_runs_in_its_own_context_whoever_ran_before() -> None:
    seen: list[str] = []

    async def job() -> None:
        seen.append(which.get())
        which.set("spoilt")

    async with trio.open_nursery() as nursery:
        workers = Workers(nursery.start_soon)
        for name in ("a", "b", "c"):
            context = copy_context()
            context.run(which.set, name)
            workers.spawn(context, job, f"job {name}")
            await wait_all_tasks_blocked()
            assert context.run(which.get) == name
        workers.spawn(copy_context(), job, "job of nobody")
        await wait_all_tasks_blocked()
        assert children(nursery) == 1
        workers.dismiss()
    assert seen == ["a", "b", "c", "nobody's"]


async def test_a_job_that_is_started_from_its_own_context_runs_too() -> None:
    seen: list[str] = []
    context = copy_context()
    context.run(which.set, "a")

    async def job() -> None:
        seen.append(which.get())

    async with trio.open_nursery() as nursery:
        workers = Workers(nursery.start_soon)
        for _ in range(3):
            # Whoever asks may be running in that very context.
            context.run(workers.spawn, context, job, "job")
            await wait_all_tasks_blocked()
        workers.dismiss()
    assert seen == ["a", "a", "a"]


async def test_jobs_of_one_instant_have_a_task_each_and_few_of_these_stay() -> None:
    running = trio.Event()
    names: set[str] = set()

    async def job() -> None:
        names.add(trio.lowlevel.current_task().name)
        await running.wait()

    async with trio.open_nursery() as nursery:
        workers = Workers(nursery.start_soon)
        for number in range(2 * MAX_IDLE):
            workers.spawn(copy_context(), job, f"job {number}")
        await wait_all_tasks_blocked()
        assert children(nursery) == len(names) == 2 * MAX_IDLE
        running.set()
        await wait_all_tasks_blocked()
        assert children(nursery) == MAX_IDLE
        workers.spawn(copy_context(), job, "one more")
        await wait_all_tasks_blocked()
        assert "one more" in names
        workers.dismiss()
        await wait_all_tasks_blocked()
        assert children(nursery) == 0
        workers.spawn(copy_context(), job, "after all")
        await wait_all_tasks_blocked()
        assert children(nursery) == 0
    assert "after all" in names


async def test_a_cancellation_from_outside_lets_the_idle_go() -> None:
    async def job() -> None:
        pass

    async with trio.open_nursery() as nursery:
        workers = Workers(nursery.start_soon)
        workers.spawn(copy_context(), job, "job")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        assert children(nursery) == 0
        # Nobody idle is left to be woken: this one gets a task of its own.
        workers.spawn(copy_context(), job, "late")


async def test_what_a_job_raises_leaves_as_it_would_from_a_task_of_its_own() -> None:
    async def fail() -> None:
        raise SystemExit(3)

    async def job() -> None:
        pass

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            workers = Workers(nursery.start_soon)
            workers.spawn(copy_context(), job, "job")
            await wait_all_tasks_blocked()
            workers.spawn(copy_context(), fail, "fail")

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert [type(error) for error in caught.value.exceptions] == [SystemExit]
