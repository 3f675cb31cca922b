"""Ctrl-C anywhere in an executor: each task is told one end, and what it claimed is let go."""

from __future__ import annotations

import signal
import threading
from functools import partial
from types import CodeType
from typing import Any

import pytest
import trio
from strikes import (
    Line,
    default_handler,
    files_of,
    is_bare,
    lines_of,
    sweep_lines,
    sweep_steps,
)
from trio.testing import MockClock

from turnstop import RoomsClosed, StopBudget
from turnstop._unwrap import open_private_nursery
from turnstop.claims import MemoryStore, open_claims
from turnstop.events import Text
from turnstop.executor import (
    Began,
    Executor,
    InputRequired,
    Job,
    Outcome,
    Task,
    TaskState,
    ThreadJob,
    open_executor,
)

__all__ = ["default_handler"]

# Made, and not awaited: Ctrl-C came between.
pytestmark = pytest.mark.filterwarnings("ignore:.*coroutine .* was never awaited:RuntimeWarning")

MODULES = ("_executor", "_job", "_run", "_task", "_threads")
EXECUTOR = files_of(*(f"executor/{name}" for name in MODULES))


class Scene:
    """Tasks that complete, ask, fail, wait, are cancelled, and are there when it closes."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.executor: Executor | None = None
        self.tasks: list[Task] = []
        self.cancelled: set[str] = set()
        self.heard: dict[str, list[Outcome]] = {}
        self.observed: list[Outcome] = []
        self.working: set[str] = set()
        self.late: list[str] = []

    def run(self) -> None:
        trio.run(self.main, clock=MockClock(autojump_threshold=0))

    async def main(self) -> None:
        async with (
            open_claims(self.store) as claims,
            open_executor(
                self.work,
                claim=lambda job: claims.hold([job.room], holder=job.task_id),
                budget=StopBudget(2, 1),
                observers=[self.observe],
            ) as executor,
        ):
            self.executor = executor
            await self.use(executor)

    def submit(self, room: str, content: str) -> Task:
        assert self.executor is not None
        name = f"{content} {len(self.tasks)}"
        self.heard[name] = []
        task = self.executor.submit(room, content, task_id=name, hear=partial(self.hear, name))
        self.tasks.append(task)
        return task

    def hear(self, name: str, update: object) -> None:
        self.look(f"who hears {update}")
        if isinstance(update, Outcome):
            self.heard[name].append(update)

    async def use(self, executor: Executor) -> None:
        done = self.submit("a", "does")
        stopped, queued = self.submit("a", "hangs"), self.submit("a", "waits")
        asking, failing = self.submit("b", "asks"), self.submit("b", "fails")
        await done.wait()
        await asking.wait()
        await failing.wait()
        self.cancel(queued)
        await trio.sleep(1)
        self.cancel(stopped)
        await stopped.wait()
        last = self.submit("c", "hangs")
        await trio.sleep(1)
        async with open_private_nursery() as nursery:
            nursery.start_soon(executor.retire, "c")
        await last.wait()
        self.submit("d", "hangs"), self.submit("d", "waits"), self.submit("e", "cleans")
        await trio.sleep(1)

    def cancel(self, task: Task) -> None:
        if task.cancel():
            self.cancelled.add(task.task_id)

    async def work(self, job: Job) -> object:
        name = self.begin(job)
        self.look("the function")
        try:
            job.emit(Text("x"))
            match job.content:
                case "does":
                    return await job.step(self.think)
                case "asks":
                    return InputRequired("what?")
                case "fails":
                    raise ValueError("no")
                case "cleans":
                    try:
                        await trio.sleep_forever()
                    finally:
                        with trio.CancelScope(shield=True):
                            await trio.sleep(0.5)
            await trio.sleep_forever()
        finally:
            self.working.discard(name)

    def look(self, what: str) -> None:
        # A loop in what is not ours could not be interrupted.
        if trio.lowlevel.currently_ki_protected():
            self.late.append(f"{what} is protected")

    def observe(self, outcome: Outcome) -> None:
        self.look("an observer")
        self.observed.append(outcome)

    def begin(self, job: Any) -> str:
        name: str = job.task_id
        self.working.add(name)
        if self.heard[name]:
            self.late.append(name)
        return name

    async def think(self) -> str:
        self.look("a step")
        await trio.sleep(0.5)
        return "thought"

    def check(self) -> None:
        assert self.late == []
        assert self.working == set()
        for task in self.tasks:
            outcomes = self.heard[task.task_id]
            assert [task.outcome] == outcomes, (task, outcomes)
            assert [one for one in self.observed if one.task_id == task.task_id] == outcomes
            if task.task_id in self.cancelled:
                assert outcomes[0].state is TaskState.CANCELED
        query = "SELECT scope, holder FROM scopes JOIN leases USING (token)"
        assert self.store._database.execute(query).fetchall() == []
        if self.executor is not None:
            found = self.executor.statistics()
            assert (found.live, found.stragglers) == (0, ())
            with pytest.raises((RoomsClosed, RuntimeError)):
                self.executor.submit("x", "y")


class Surrounded(Scene):
    """It is cancelled with all that is around it."""

    async def main(self) -> None:
        with trio.move_on_after(1):
            await super().main()

    async def use(self, executor: Executor) -> None:
        self.submit("a", "hangs")
        self.submit("a", "waits")
        self.submit("b", "cleans")
        # So that it is its rooms that hear of it first.
        with trio.CancelScope(shield=True):
            await trio.sleep(2)


class Threaded(Scene):
    """The same of functions in threads, which take real time."""

    budget = StopBudget()

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.began = trio.Event()

    def run(self) -> None:
        trio.run(self.main)

    async def main(self) -> None:
        async with (
            open_claims(self.store) as claims,
            open_executor(
                self.work_in_thread,
                claim=lambda job: claims.hold([job.room], holder=job.task_id),
                budget=self.budget,
                observers=[self.observe],
            ) as executor,
        ):
            self.executor = executor
            await self.use(executor)

    async def use(self, executor: Executor) -> None:
        done, asking = self.submit("a", "does"), self.submit("b", "asks")
        await done.wait()
        await asking.wait()
        stopped = self.submit("a", "loops")
        await self.began.wait()
        self.cancel(stopped)
        await stopped.wait()

    def work_in_thread(self, job: ThreadJob) -> object:
        name = self.begin(job)
        try:
            job.emit(Text("x"))
            match job.content:
                case "does":
                    return job.step(str)
                case "asks":
                    return InputRequired("what?")
            trio.from_thread.run_sync(self.began.set)
            while not (job.is_cancelled and job.content == "loops"):
                if job.content == "loops":
                    job.checkpoint()
                if self.free.wait(0.001):
                    return None
            job.checkpoint()
        finally:
            self.working.discard(name)
        return None

    def check(self) -> None:
        assert self.late == []
        # Whatever is at work is named, and what is named is at work.
        at_work = set(self.working)
        if self.executor is not None:
            assert at_work == set(self.executor.statistics().stragglers)
        self.free.set()
        for task in self.tasks:
            outcomes = self.heard[task.task_id]
            assert [task.outcome] == outcomes, (task, outcomes)
            assert [one for one in self.observed if one.task_id == task.task_id] == outcomes
            if task.task_id in at_work:
                assert outcomes[0].state is TaskState.FAILED
            elif task.task_id in self.cancelled:
                assert outcomes[0].state is TaskState.CANCELED
        # Only that of a thread that was left behind is not let go, and lapses.
        held = self.store._database.execute("SELECT holder FROM leases").fetchall()
        assert {holder for (holder,) in held} == at_work


class Left(Threaded):
    """One thread, which is left behind."""

    budget = StopBudget(0.02, 0.01)

    async def use(self, executor: Executor) -> None:
        self.submit("c", "hangs")
        await self.began.wait()


def in_executor(code: CodeType) -> bool:
    # That one calls what is not the executor's.
    return code.co_filename in EXECUTOR and code.co_name != "call_unprotected"


def lines_of_the_scene() -> list[Line]:
    scene = Scene()
    found = lines_of(scene.run, EXECUTOR)
    scene.check()
    states = [task.outcome.state.name for task in scene.tasks if task.outcome]
    assert states == [
        "COMPLETED",
        "CANCELED",
        "CANCELED",
        "INPUT_REQUIRED",
        "FAILED",
        "CANCELED",
        "CANCELED",
        "CANCELED",
        "CANCELED",
    ]
    return found


def test_ctrl_c_on_any_line_has_each_task_told_once() -> None:
    lines = lines_of_the_scene()
    assert len(lines) > 100
    assert sweep_lines(Scene, lines, is_bare) == []


def test_ctrl_c_on_any_line_of_a_cancelled_executor_has_each_task_told_once() -> None:
    lines = lines_of(Surrounded().run, EXECUTOR)
    assert sweep_lines(Surrounded, lines, is_bare) == []


def test_ctrl_c_at_any_step_has_each_task_told_once() -> None:
    steps, wrong = sweep_steps(Scene, in_executor, every=29)
    assert steps > 2000
    assert wrong == []


def test_ctrl_c_at_any_step_of_a_decision_keeps_no_lock() -> None:
    steps, wrong = sweep_steps(Scene, lambda code: code.co_qualname == "Decision.make")
    assert steps > 100
    assert wrong == []


@pytest.mark.parametrize(
    ("kind", "ends"),
    [(Threaded, ["COMPLETED", "INPUT_REQUIRED", "CANCELED"]), (Left, ["FAILED"])],
)
def test_ctrl_c_on_any_line_leaves_no_thread_unnamed(kind: type[Threaded], ends: list[str]) -> None:
    scene = kind()
    lines = lines_of(scene.run, EXECUTOR)
    scene.check()
    assert [task.outcome.state.name for task in scene.tasks if task.outcome] == ends
    assert len(lines) > 100
    # Whoever leaves one behind has waited for it.
    assert sweep_lines(kind, lines if kind is Threaded else lines[::3], is_bare) == []


class Interrupted(Scene):
    """Ctrl-C comes while somebody is told something."""

    def __init__(self, at: type, when: str) -> None:
        super().__init__()
        self.at, self.when = at, when
        self.interrupted = False

    def hear(self, name: str, update: object) -> None:
        super().hear(name, update)
        if name == self.when and isinstance(update, self.at) and not self.interrupted:
            self.interrupted = True
            signal.raise_signal(signal.SIGINT)

    async def use(self, executor: Executor) -> None:
        self.submit("a", "does")
        self.submit("a", "asks")
        self.submit("a", "fails")
        self.submit("b", "hangs")
        self.submit("b", "waits")
        self.submit("c", "cleans")
        await trio.sleep(1)


@pytest.mark.parametrize("at", [Began, Text, Outcome])
@pytest.mark.parametrize("when", ["does 0", "asks 1", "hangs 3", "cleans 5"])
def test_ctrl_c_in_whoever_hears_a_task_keeps_no_other_end_from_being_told(
    at: type, when: str
) -> None:
    scene = Interrupted(at, when)
    with pytest.raises(KeyboardInterrupt):
        scene.run()
    assert scene.interrupted
    scene.check()
