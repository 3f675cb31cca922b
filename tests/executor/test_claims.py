"""The claim is held exactly while the function runs. In virtual time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from turnstop import StopBudget
from turnstop.claims import (
    ClaimLapsed,
    ClaimRefused,
    Claims,
    ClaimsUnavailable,
    MemoryStore,
    open_claims,
)
from turnstop.events import Text
from turnstop.executor import Began, Executor, Job, TaskState, open_executor

CANCELED, COMPLETED, FAILED = TaskState.CANCELED, TaskState.COMPLETED, TaskState.FAILED


class World:
    """An executor whose claims are in a store, and another program that looks at them."""

    def __init__(self, executor: Executor, claims: Claims, others: Claims, store: Store) -> None:
        self.executor = executor
        self.claims = claims
        self.others = others
        self.store = store

    async def is_free(self, *scopes: str) -> bool:
        try:
            async with self.others.hold(scopes, holder="other"):
                return True
        except ClaimRefused:
            return False


class Store(MemoryStore):
    renews = True
    acquires = True

    async def acquire(self, wanted: Any) -> int:
        if not self.acquires:
            await trio.lowlevel.checkpoint()
            raise OSError("no route to the store")
        return await super().acquire(wanted)

    async def renew(self, lease: str, ttl: float) -> bool:
        if not self.renews:
            await trio.lowlevel.checkpoint()
            raise OSError("no route to the store")
        return await super().renew(lease, ttl)


@asynccontextmanager
async def open_world(
    fn: Any, budget: StopBudget | None = None, **hold: Any
) -> AsyncIterator[World]:
    store = Store()
    async with open_claims(store) as claims, open_claims(store) as others:

        def claim(job: Job) -> Any:
            return claims.hold(job.content, holder=job.task_id, **hold)

        async with open_executor(fn, claim=claim, budget=budget) as executor:
            yield World(executor, claims, others, store)


async def linger(job: Job) -> None:
    """Its step goes on for 100 s."""
    await job.step(trio.sleep, 100)


# I4, I5.


async def test_it_is_held_while_a_step_goes_on_and_released_when_that_has_ended() -> None:
    async with open_world(linger) as world:
        task = world.executor.submit("r", ["a"])
        await trio.sleep(1)
        assert task.cancel()
        for at in (2, 50, 99):
            await trio.sleep_until(at)
            assert not await world.is_free("a")
            assert task.state is TaskState.WORKING
        assert (await task.wait()).state is CANCELED
        assert trio.current_time() == 100
        assert await world.is_free("a")


async def test_it_is_released_when_cancelled_is_said() -> None:
    """Whoever hears of it may claim what it held."""
    found = []

    async def agent(job: Job) -> None:
        await trio.sleep_forever()

    async with open_world(agent) as world:
        task = world.executor.submit("r", ["a"])
        await trio.sleep(1)
        task.cancel()
        await task.wait()
        found.append(await world.is_free("a"))
    assert found == [True]


async def test_what_is_cancelled_while_it_claims_is_not_called() -> None:
    """I1: the claim was granted all the same."""
    calls = []

    @asynccontextmanager
    async def slow(job: Job) -> AsyncIterator[Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        yield None

    async def agent(job: Job) -> None:
        calls.append(job)

    heard: list[Any] = []
    async with open_executor(agent, claim=slow) as executor:
        task = executor.submit("r", None, hear=heard.append)
        await trio.sleep(1)
        assert task.state is TaskState.SUBMITTED
        assert task.cancel()
        outcome = await task.wait()
    assert calls == []
    assert outcome.state is CANCELED
    # And no WORKING after the cancel, which would bring it back to life.
    assert heard == [outcome]


# I7.


async def test_a_wedged_one_is_renewed_no_more_and_its_claim_lapses() -> None:
    async def wedged(job: Job) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)
            with pytest.raises(ClaimLapsed):
                await job.claim.write("a", calls.append, "late")

    calls: list[str] = []
    async with open_world(wedged, StopBudget(5, 2), ttl=90) as world:
        task = world.executor.submit("r", ["a"])
        await trio.sleep(200)
        task.cancel()
        await trio.sleep_until(260)
        assert not await world.is_free("a")
        # It was renewed last at 180 s, and 7 s after the cancel it counted as over.
        await trio.sleep_until(180 + 90 + 1)
        assert await world.is_free("a")
        assert task.state is TaskState.WORKING
        assert (await task.wait()).state is CANCELED
    assert calls == []


async def test_what_makes_no_progress_is_renewed_no_more() -> None:
    async def agent(job: Job) -> None:
        for _ in range(10):
            await trio.sleep(20)
            await job.checkpoint()
        await trio.sleep(300)

    async with open_world(agent, ttl=30, progress_within=30) as world:
        world.executor.submit("r", ["a"])
        for _ in range(10):
            await trio.sleep(20)
            assert not await world.is_free("a")
        await trio.sleep(61)
        assert await world.is_free("a")


class Noting:
    """A claim that keeps when its work said that it goes on."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._clock = trio.lowlevel.current_clock()

    async def __aenter__(self) -> Noting:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def note_progress(self) -> None:
        self.at.append(self._clock.current_time())

    def let_lapse(self) -> None: ...


async def test_each_checkpoint_step_and_event_is_progress() -> None:
    async def agent(job: Job) -> None:
        await trio.sleep(1)
        await job.checkpoint()
        await trio.sleep(1)
        job.emit(Text("still here"))
        await trio.sleep(1)
        await job.step(trio.sleep, 10)
        await trio.sleep(1)

    noting = Noting()
    async with open_executor(agent, claim=lambda job: noting) as executor:
        await executor.submit("r", None).wait()
    assert noting.at == [1, 2, 3, 13]


# I8.


async def test_of_two_scopes_one_that_is_taken_frees_the_other_and_names_the_holder() -> None:
    calls = []

    async def agent(job: Job) -> None:
        calls.append(job)

    async with open_world(agent) as world:
        async with world.others.hold(["b"], holder="agent 7"):
            outcome = await world.executor.submit("r", ["a", "b"]).wait()
            assert await world.is_free("a")
    assert outcome.state is FAILED
    assert isinstance(outcome.error, ClaimRefused)
    assert "agent 7 holds 'b'" in outcome.text
    assert calls == []


async def test_a_malformed_scope_fails_it_and_leaves_nothing_stuck() -> None:
    async with open_world(linger) as world:
        outcome = await world.executor.submit("r", ["a//b"]).wait()
        assert (outcome.state, type(outcome.error).__name__) == (FAILED, "MalformedScope")
        after = await world.executor.submit("r", []).wait()
    assert after.state is COMPLETED


@pytest.mark.parametrize("or_unclaimed", [True, False])
async def test_where_the_store_is_down_it_works_unclaimed_by_choice_only(
    or_unclaimed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(job: Job) -> object:
        await job.checkpoint()
        return job.claim.token

    async with open_world(agent, or_unclaimed=or_unclaimed) as world:
        world.store.acquires = False
        outcome = await world.executor.submit("r", ["a"]).wait()
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    if or_unclaimed:
        assert (outcome.state, outcome.result) == (COMPLETED, None)
        assert errors
    else:
        assert (outcome.state, type(outcome.error)) == (FAILED, ClaimsUnavailable)


async def test_a_claim_that_cannot_even_be_asked_for_fails_it() -> None:
    async def agent(job: Job) -> None: ...

    def claim(job: Job) -> Any:
        raise KeyError("scopes")

    async with open_executor(agent, claim=claim) as executor:
        outcome = await executor.submit("r", None).wait()
    assert isinstance(outcome.error, KeyError)


# I9.


async def test_a_renewal_that_fails_does_not_end_the_work(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def agent(job: Job) -> str:
        await trio.sleep(1000)
        return "done"

    heard: list[Any] = []
    async with open_world(agent, ttl=90) as world:
        world.store.renews = False
        outcome = await world.executor.submit("r", ["a"], hear=heard.append).wait()
    assert outcome.result == "done"
    assert heard == [Began(), outcome]
    assert "no route to the store" in caplog.text


async def test_two_tasks_that_claim_the_same_never_overlap() -> None:
    at_work = 0
    most = 0

    async def agent(job: Job) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        try:
            await job.step(trio.sleep, 3)
        finally:
            at_work -= 1

    async with open_world(agent) as world:
        tasks = []
        for number in range(200):
            task = world.executor.submit(f"r{number}", ["a"])
            tasks.append(task)
            await trio.sleep(0.7)
            if number % 3:
                task.cancel()
        outcomes = [await task.wait() for task in tasks]
    assert most == 1
    found = [outcome.state for outcome in outcomes]
    assert found.count(FAILED) > 100
    assert found.count(CANCELED) > 20


async def test_whoever_submits_inside_a_claim_lends_it_to_nobody() -> None:
    """Nor to who comes later to a room that it was the first to use."""
    calls = []

    async def agent(job: Job) -> None:
        calls.append(job.content)
        await job.step(trio.sleep, 3)

    async with open_world(agent) as world:
        later: list[TaskState] = []

        async def stranger() -> None:
            await trio.sleep(1)
            later.append((await world.executor.submit("r", ["a"]).wait()).state)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stranger)
            async with world.claims.hold(["a"], holder="caller"):
                # Of something else, so that the room's tasks go on.
                world.executor.submit("r", ["b"])
                outcome = await world.executor.submit("other", ["a"]).wait()
                assert isinstance(outcome.error, ClaimRefused)
                await trio.sleep(5)
        assert later == [FAILED]
    assert calls == [["b"]]
