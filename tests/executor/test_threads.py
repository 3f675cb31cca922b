"""Functions in threads: asked to stop, waited for, and never believed too late."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

from turnstop import StopBudget
from turnstop.claims import ClaimRefused, MemoryStore, open_claims
from turnstop.events import Text
from turnstop.executor import Began, Stopped, TaskState, ThreadJob, open_executor

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


async def test_a_claim_is_held_until_the_thread_has_returned() -> None:
    """Also when the stop's budget is over, and the executor itself is cancelled."""
    gate, store = Gate(), MemoryStore()

    def agent(job: ThreadJob) -> None:
        gate.pass_through()

    async def is_free() -> bool:
        try:
            async with others.hold(["a"], holder="other"):
                return True
        except ClaimRefused:
            return False

    async with open_claims(store) as claims, open_claims(store) as others:
        around, tasks = trio.CancelScope(), []

        async def serve() -> None:
            budget = StopBudget(0.02, 0.02)
            with around:
                async with open_executor(agent, claim=claim, budget=budget) as executor:
                    tasks.append(executor.submit("r", None))
                    await trio.sleep_forever()

        def claim(job: ThreadJob) -> Any:
            return claims.hold(["a"], holder=job.task_id)

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                await gate.wait_reached()
                around.cancel()
                while tasks[0].turn.settlement is None:  # noqa: ASYNC110 - it has no event
                    await trio.sleep(0.01)
                assert not await is_free()
                assert tasks[0].outcome is None
                gate.open.set()
            assert tasks[0].outcome.state is CANCELED
            assert await is_free()


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


def test_stopped_is_no_exception() -> None:
    assert not issubclass(Stopped, Exception)
