"""What costs a task or a pass of the scheduler, and what must not: this is measured code."""

from __future__ import annotations

from contextvars import copy_context
from itertools import pairwise
from typing import Any

import outcome
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, Settlement, StopBudget, StopVerdict, open_rooms
from turnstop._watch import Watch
from turnstop._workers import Workers
from turnstop.events import Other

from .backend import (
    CANCELLED,
    COMPLETED,
    Act,
    Passes,
    Recorder,
    Remote,
    drain,
    ending,
    hang,
    occupy,
)


class Steps(trio.abc.Instrument):
    """Counts the steps of each task by its name, and notes who was started and who was woken."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.spawned: list[str] = []
        self.woken: list[str] = []
        trio.lowlevel.add_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps[task.name] = self.steps.get(task.name, 0) + 1

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.spawned.append(task.name)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.woken.append(task.name)


async def test_a_reader_takes_one_step_to_wait_and_one_to_be_given_the_event() -> None:
    backend, steps = Recorder(), Steps()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            nursery.start_soon(turn.__anext__, name="reader")
            await wait_all_tasks_blocked()
            assert steps.steps["reader"] == 1
            backend.remote.say(Other("one"))
            await wait_all_tasks_blocked()
            assert steps.steps["reader"] == 2


async def test_a_body_that_has_read_all_leaves_in_the_step_in_which_it_is_done() -> None:
    backend, steps = Recorder(follow=Act(returns=COMPLETED)), Steps()
    mine = trio.lowlevel.current_task().name
    async with open_rooms(backend) as rooms:
        turn = await rooms.turn("a", "x").__aenter__()
        await drain(turn)
        before = steps.steps[mine]
        await turn.__aexit__(None, None, None)
        assert steps.steps[mine] == before


async def test_a_turn_that_is_over_is_not_asked_by_its_block_on_the_way_out() -> None:
    backend = Recorder(follow=Act(returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        turn = await rooms.turn("a", "x").__aenter__()
        await wait_all_tasks_blocked()
        # By hand, to be in the middle of it: at the one checkpoint of a block that never read.
        leaving = turn.__aexit__(None, None, None)
        leaving.send(None)
        assert rooms.stop("a").verdict is StopVerdict.ASKED
        with pytest.raises(StopIteration):
            leaving.send(outcome.Value(None))
        assert turn.ending is Ending.FINISHED


async def test_a_turn_that_is_stopped_in_the_queue_starts_no_task() -> None:
    backend, steps = Recorder(), Steps()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x"):
            waiting = rooms.turn("a", "y")
            nursery.start_soon(occupy, waiting)
            await wait_all_tasks_blocked()
            waiting.stop()
        before = len(steps.woken), len(steps.spawned)
        await wait_all_tasks_blocked()
        assert waiting.ending is Ending.UNSTARTED
        assert [n for n in steps.woken[before[0] :] if n.startswith("turnstop")] == []
        assert steps.spawned[before[1] :] == []


async def test_the_watcher_is_woken_only_by_what_is_due_before_all_else() -> None:
    steps = Steps()
    woken: list[int] = []

    class Bell:
        due: float | None = None

        def ring(self) -> None:
            pass

    async with trio.open_nursery() as nursery:
        watch = Watch([])
        nursery.start_soon(watch.run, lambda: None, name="watcher")

        async def step() -> None:
            await wait_all_tasks_blocked()
            woken.append(steps.steps["watcher"])

        await step()
        watch.set_first(Bell(), 3)
        await step()
        watch.set_first(Bell(), 4)
        await step()
        watch.set_later(Bell(), 5)
        await step()
        watch.set_later(Bell(), 2)
        await step()
        watch.close()
    assert [after - before for before, after in pairwise(woken)] == [1, 0, 0, 1]


async def test_a_settlement_that_nobody_observes_does_not_wake_the_watcher() -> None:
    backend, steps = Recorder(follow=Act(returns=COMPLETED)), Steps()
    async with open_rooms(backend) as rooms:
        await wait_all_tasks_blocked()
        before = steps.steps["turnstop watch"]
        async with rooms.turn("a", "x") as turn:
            await drain(turn)
        await wait_all_tasks_blocked()
        assert steps.steps["turnstop watch"] == before


async def test_after_the_rooms_have_closed_no_report_is_kept_for_nobody() -> None:
    seen: list[Settlement] = []
    async with open_rooms(Recorder(), observers=[seen.append]) as rooms:
        turn = rooms.turn("a", "x")
    turn.stop()
    assert turn.settlement is not None
    assert seen == []
    assert not rooms._house.watch._reports


async def test_calls_that_come_back_at_once_hold_up_the_settlement_for_a_few_passes_only() -> None:
    backend, counter = Recorder(cancel=hang()), Passes()
    trio.lowlevel.add_instrument(counter)
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        turn.stop()
        await wait_all_tasks_blocked()
        before = counter.count
        backend.remote.finish(CANCELLED)
        await turn.wait_settled()
        assert counter.count - before < 8


async def test_the_last_stops_are_the_work_of_tasks_that_are_there_already() -> None:
    backend, steps = Recorder(cancel=hang(), kill=ending()), Steps()
    backend.follow = Act(returns=COMPLETED)
    entered = trio.Event()

    async def leave_last(turn: Any) -> None:
        async with turn:
            entered.set()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            async with trio.open_nursery() as crowd:
                for room in "abc":
                    crowd.start_soon(drain_in_its_block, rooms.turn(room, "x"))
            backend.follow = Act()
            nursery.start_soon(leave_last, rooms.turn("a", "y"))
            await entered.wait()
            await wait_all_tasks_blocked()
            before = len(steps.spawned)
        assert backend.calls[-2:] == ["cancel", "kill"]
        assert steps.spawned[before:] == []


async def drain_in_its_block(turn: Any) -> None:
    async with turn:
        await drain(turn)


async def test_a_tracer_sees_a_woken_worker_under_the_name_of_its_new_job() -> None:
    async def job() -> None:
        pass

    async with trio.open_nursery() as nursery:
        workers = Workers(nursery.start_soon)
        workers.spawn(copy_context(), job, "first")
        await wait_all_tasks_blocked()
        steps = Steps()
        workers.spawn(copy_context(), job, "second")
        await wait_all_tasks_blocked()
        assert "second" in steps.woken
        assert "first" not in steps.woken
        workers.dismiss()


async def test_an_answer_that_comes_together_with_the_end_is_heard() -> None:
    """One packet may bring both; whoever is given the answer has it to pass on yet."""
    answer = trio.Event()
    send, receive = trio.open_memory_channel[str](100)

    class Answering(Remote):
        async def cancel(self, sent: Any) -> None:
            sent()
            await answer.wait()
            await send.send(self.turn_id)

    backend = Recorder(make=Answering)
    async with open_rooms(backend, budget=StopBudget(2, 1)) as rooms, trio.open_nursery() as nurse:
        turns = [rooms.turn(str(number), "x") for number in range(20)]
        for turn in turns:
            nurse.start_soon(occupy, turn)
        await trio.sleep(1)
        rooms.stop_all()
        await wait_all_tasks_blocked()
        answer.set()
        for remote in backend.remotes:
            remote.finish(CANCELLED)
        await wait_all_tasks_blocked()
        assert receive.statistics().current_buffer_used == len(turns)
        assert [t.settlement and t.settlement.acked_at for t in turns] == [1] * len(turns)
    receive.close()
    send.close()
