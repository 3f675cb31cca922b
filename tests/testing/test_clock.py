"""Virtual time: every timer fires at its time, and a run that stalls ends all the same."""

from __future__ import annotations

import gc
import itertools
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.lowlevel import Abort, checkpoint, wait_task_rescheduled
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, Settlement, StopBudget, open_rooms
from turnstop.abc import Emit, End, Request
from turnstop.testing.clock import Stalled, run_in_virtual_time

STARTS = st.sampled_from([0.0, 1 / 3, 1e6, 1e9]) | st.floats(0, 1e9)
SECONDS = st.sampled_from([1e-9, 2**-20, 2**-10, 1e-3, 1 / 3, 0.1, 0.7, 1.0, 5.0]) | st.floats(
    1e-9, 1e9
)
many = settings(max_examples=50, deadline=None)

# A stall that is told at once is told long before this; so is one that is told after SOON.
PATIENCE = 10.0
SOON = 0.5


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = surroundings()
    yield
    # What was forgotten in a half-ended run complains when it is collected.
    gc.collect()
    assert surroundings() == before


def surroundings() -> Any:
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    watchdogs = [thread for thread in threading.enumerate() if "watchdog" in thread.name]
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return (
        watchdogs,
        handlers,
        wakeup,
        sys.get_asyncgen_hooks(),
        signal.getitimer(signal.ITIMER_REAL),
    )


def near(left: float, right: float, steps: int = 2) -> bool:
    return abs(left - right) <= steps * math.ulp(max(left, right))


# A tree of deadlines.


@attrs.frozen
class Sleep:
    seconds: float


@attrs.frozen
class Scope:
    kind: str
    seconds: float
    inner: tuple[Any, ...]


@attrs.frozen
class Tasks:
    inner: tuple[Any, ...]


TREES = st.recursive(
    st.builds(Sleep, SECONDS),
    lambda inner: (
        st.builds(
            Scope,
            st.sampled_from(["move on", "fail", "shield"]),
            SECONDS,
            st.lists(inner, min_size=1, max_size=3).map(tuple),
        )
        | st.builds(Tasks, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=12,
)


@attrs.define
class Walk:
    """Plays a tree, and notes what is wrong about its times."""

    faults: list[str] = attrs.field(factory=list)
    last: float = 0.0

    def now(self) -> float:
        now = trio.current_time()
        if now < self.last:
            self.faults.append(f"time went back from {self.last} to {now}")
        self.last = now
        return now

    async def play(self, node: Any, cancelled_at: float) -> None:
        """`cancelled_at`: when the scopes around it are over, as far as no shield is between."""
        if isinstance(node, Sleep):
            await self._sleep(node.seconds, cancelled_at)
        elif isinstance(node, Scope):
            await self._scope(node, cancelled_at)
        else:
            async with trio.open_nursery() as nursery:
                for inner in node.inner:
                    nursery.start_soon(self.play, inner, cancelled_at)

    async def _sleep(self, seconds: float, cancelled_at: float) -> None:
        begun = self.now()
        due, how = begun + seconds, "slept"
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            due, how = max(begun, cancelled_at), "cancelled"
            raise
        finally:
            now = self.now()
            if not (due <= now and near(due, now)) or due > max(begun, cancelled_at):
                self.faults.append(f"{how} at {now} instead of {due}, {cancelled_at=}")

    async def _scope(self, node: Scope, cancelled_at: float) -> None:
        begun = self.now()
        if node.kind == "shield":
            cancelled_at = math.inf
        outcomes = []
        opened = trio.fail_after if node.kind == "fail" else trio.move_on_after
        try:
            with opened(node.seconds, shield=node.kind == "shield") as scope:
                for inner in node.inner:
                    await self.play(inner, min(cancelled_at, begun + node.seconds))
                outcomes.append("done")
            outcomes += ["moved on"] * scope.cancelled_caught
        except trio.TooSlowError:
            outcomes.append("failed")
        except BaseException:
            # Cancelled, or out of a nursery a group of it.
            outcomes.append("cancelled")
            raise
        finally:
            if len(outcomes) != 1:
                self.faults.append(f"{node.kind} at {trio.current_time()}: {outcomes}")


@many
@given(TREES, STARTS)
def test_every_deadline_of_a_tree_is_met_at_its_time(tree: Any, start: float) -> None:
    walk = Walk(last=start)
    run_in_virtual_time(walk.play, tree, math.inf, start=start)
    assert walk.faults == []


@many
@given(st.lists(SECONDS, min_size=1, max_size=30), STARTS)
def test_timers_fire_in_order(durations: list[float], start: float) -> None:
    fired: list[tuple[float, float]] = []

    async def timer(seconds: float) -> None:
        await trio.sleep(seconds)
        fired.append((start + seconds, trio.current_time()))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for seconds in durations:
                nursery.start_soon(timer, seconds)

    run_in_virtual_time(main, start=start)
    assert len(fired) == len(durations)
    assert [when for _, when in fired] == sorted(when for _, when in fired)
    assert all(due <= when and near(due, when) for due, when in fired)


@many
@given(SECONDS, STARTS, st.integers(1, 200))
def test_any_sum_of_sleeps_ends(seconds: float, start: float, count: int) -> None:
    async def main() -> float:
        due = trio.current_time()
        for _ in range(count):
            due += seconds
            await trio.sleep_until(due)
        return due

    async def moved() -> tuple[float, float]:
        return await main(), trio.current_time()

    due, now = run_in_virtual_time(moved, start=start)
    assert due <= now
    assert near(due, now)


@many
@given(SECONDS, STARTS, st.booleans())
def test_a_deadline_at_completion_has_exactly_one_outcome(
    seconds: float, start: float, outer_first: bool
) -> None:
    async def main() -> tuple[bool, bool, float]:
        done = False
        deadline = trio.current_time() + seconds
        with trio.CancelScope() as scope:
            scope.deadline = deadline if outer_first else math.inf
            with trio.CancelScope(deadline=deadline if not outer_first else math.inf) as inner:
                await trio.sleep_until(deadline)
                done = True
        return done, scope.cancelled_caught or inner.cancelled_caught, trio.current_time()

    done, caught, now = run_in_virtual_time(main, start=start)
    assert done is not caught
    assert near(now, start + seconds)


# To the very end.


@many
@given(SECONDS, STARTS)
def test_virtual_time_holds_through_teardown(seconds: float, start: float) -> None:
    left: dict[str, float] = {}

    async def clean_up(name: str) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        left[name] = trio.current_time()

    async def task(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await clean_up(name)

    async def generator() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await clean_up("generator")

    async def main() -> None:
        trio.lowlevel.spawn_system_task(task, "system task")
        kept.append(generator())
        await anext(kept[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task, "task")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    kept: list[AsyncGenerator[None]] = []
    run_in_virtual_time(main, start=start)
    at = [start + seconds, start + seconds + seconds, start + seconds + seconds + seconds]
    assert list(left) == ["task", "system task", "generator"]
    assert all(near(due, when, steps=6) for due, when in zip(at, left.values(), strict=True))


# The kernel in it.


class Deaf:
    """A backend whose turns never end, whatever they are told."""

    session = None

    def __init__(self) -> None:
        self.told: dict[str, float] = {}

    async def start(self, request: Request[str]) -> Deaf:
        return self

    async def follow(self, emit: Emit) -> End:
        await trio.sleep_forever()
        raise AssertionError

    async def cancel(self, sent: Callable[[], None]) -> None:
        self.told["cancel"] = trio.current_time()
        await trio.sleep_forever()

    async def kill(self) -> None:
        self.told["kill"] = trio.current_time()
        await trio.sleep_forever()


BUDGETS = st.sampled_from([2**-20, 1 / 3, 0.1, 0.7, 5.0]) | st.floats(1e-5, 100)


@many
@given(BUDGETS, BUDGETS, SECONDS, st.sampled_from([0.0, 1e6, 1e9]))
def test_a_stop_settles_at_its_bound(
    cancel_within: float, kill_within: float, after: float, start: float
) -> None:
    backend = Deaf()
    asked = start + after

    async def main() -> Settlement | None:
        budget = StopBudget(cancel_within=cancel_within, kill_within=kill_within)
        async with open_rooms(backend, budget=budget) as rooms:
            async with rooms.turn("a", "x") as turn:
                # At 1e9 it may be asked in the very instant of its start.
                await wait_all_tasks_blocked()
                await trio.sleep_until(asked)
                turn.stop()
                await trio.sleep_forever()
        return turn.settlement

    found = run_in_virtual_time(main, start=start)
    assert found is not None
    assert found.ending is Ending.UNCONFIRMED
    assert near(found.asked_at, asked)
    assert near(backend.told["kill"], asked + cancel_within, steps=6)
    assert near(found.settled_at, asked + cancel_within + kill_within, steps=6)


# Stalls that nothing will ever end.


async def waits() -> None:
    await trio.sleep_forever()


async def waits_in_a_child() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.Event().wait)
        nursery.start_soon(trio.sleep, 5)


async def waits_shielded() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def waits_after_cancelled() -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep_forever()


async def swallows_cancelled() -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        pass


async def refuses_to_be_cancelled() -> None:
    await wait_task_rescheduled(lambda _: Abort.FAILED)


async def waits_in_a_system_task() -> None:
    trio.lowlevel.spawn_system_task(waits_shielded)


async def waits_in_a_finaliser() -> None:
    async def generator() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await waits_shielded()

    waits_in_a_finaliser.kept = generator()
    await anext(waits_in_a_finaliser.kept)


DEAD = [
    waits,
    waits_in_a_child,
    waits_shielded,
    waits_after_cancelled,
    swallows_cancelled,
    refuses_to_be_cancelled,
    waits_in_a_system_task,
    waits_in_a_finaliser,
]


@pytest.mark.parametrize("fn", DEAD, ids=lambda fn: fn.__name__)
def test_a_wait_for_ever_is_told_at_once(fn: Callable[[], Awaitable[None]]) -> None:
    begun = time.perf_counter()
    with pytest.raises(Stalled, match="nothing will ever happen again") as caught:
        run_in_virtual_time(fn, start=7.0)
    assert time.perf_counter() - begun < PATIENCE
    assert f"at virtual time {12.0 if fn is waits_in_a_child else 7.0}\n" in str(caught.value)
    assert __file__ in str(caught.value)
    # And the thread is as good as new.
    assert run_in_virtual_time(trio.sleep, 1) is None


def test_a_stall_tells_where_each_task_waits() -> None:
    async def reader() -> None:
        await trio.Event().wait()  # the reader waits here

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(reader)

    with pytest.raises(Stalled) as caught:
        run_in_virtual_time(main)
    _, *lines = str(caught.value).splitlines()
    assert lines[0].startswith("  test_a_stall_tells_where_each_task_waits.<locals>.main: ")
    assert lines[1].startswith("    ")
    assert ".reader: " in lines[1]
    assert lines[1].endswith("# the reader waits here")
    assert lines[40:] == ["  and 11 tasks more"]


def test_a_stalled_run_is_cleaned_up_in_virtual_time() -> None:
    left = []

    async def main() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
            left.append(trio.current_time())

    with pytest.raises(Stalled):
        run_in_virtual_time(main)
    assert left == [1000]


def test_what_the_end_of_a_stalled_run_raises_is_the_cause() -> None:
    async def main() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("in a clean-up")

    with pytest.raises(Stalled) as caught:
        run_in_virtual_time(main)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_run_that_was_torn_down_is_no_bug_of_trio() -> None:
    with pytest.raises(Stalled) as caught:
        run_in_virtual_time(refuses_to_be_cancelled)
    assert str(caught.value.__cause__).endswith("is torn down")


def test_shields_put_up_again_and_again_are_lowered_only_so_long() -> None:
    async def main() -> None:
        while True:
            try:
                await waits_shielded()
            except trio.Cancelled:
                lowered.append(trio.current_time())

    lowered: list[float] = []
    begun = time.perf_counter()
    with pytest.raises(Stalled, match="nothing will ever happen again"):
        run_in_virtual_time(main, within=SOON)
    assert time.perf_counter() - begun < PATIENCE
    assert len(lowered) > 1


def test_a_thread_that_is_about_to_wake_the_run_finds_it_not_yet_torn_down() -> None:
    async def main() -> None:
        wakeup: Any = cast(Any, trio.lowlevel.current_trio_token())._reentry_queue.wakeup
        wake = wakeup.wakeup_thread_and_signal_safe

        def wake_late() -> None:
            time.sleep(0.2)
            try:
                wake()
            except OSError as error:
                broken.append(error)

        wakeup.wakeup_thread_and_signal_safe = wake_late
        while True:
            with suppress(trio.Cancelled), trio.CancelScope(shield=True):
                await trio.sleep(1)

    broken: list[OSError] = []
    with pytest.raises(Stalled, match="not over after"):
        run_in_virtual_time(main, within=SOON)
    assert broken == []


def test_waiting_until_all_wait_is_no_stall() -> None:
    async def main() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            for cushion in (0.0, 0.0, 0.001, 0.0):
                await wait_all_tasks_blocked(cushion)
            nursery.cancel_scope.cancel()
        return trio.current_time()

    assert run_in_virtual_time(main, start=3.0) == 3.0


def test_a_thread_is_no_stall_and_does_not_hold_the_clock() -> None:
    async def main() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1000)
            await trio.to_thread.run_sync(go.wait, PATIENCE)
        return trio.current_time()

    go = threading.Event()
    threading.Timer(0.05, go.set).start()
    assert run_in_virtual_time(main) == 1000


def test_io_is_no_stall() -> None:
    async def main() -> bytes:
        await trio.lowlevel.wait_readable(ours)
        return ours.recv(1)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        timer = threading.Timer(0.05, theirs.send, [b"x"])
        timer.start()
        assert run_in_virtual_time(main) == b"x"
        timer.join()


# Runs that take too much real time.


async def busy() -> None:
    while True:
        await checkpoint()


async def busy_and_deaf() -> None:
    while True:
        try:
            await checkpoint()
        except trio.Cancelled:
            pass


async def busy_and_shielded() -> None:
    with trio.CancelScope(shield=True):
        await busy()


async def sleeps_a_little() -> None:
    for _ in itertools.repeat(None):
        await trio.sleep(1e-9)


async def waits_until_all_wait() -> None:
    await wait_all_tasks_blocked(1000)


async def waits_for_a_thread() -> None:
    waits_for_a_thread.token = trio.lowlevel.current_trio_token()
    await trio.to_thread.run_sync(waits_for_a_thread.go.wait, PATIENCE)


def block() -> None:
    time.sleep(1000)


async def blocks() -> None:
    block()


async def spins() -> None:
    while True:
        pass


async def blocks_in_a_child() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_shielded)
        nursery.start_soon(blocks)


async def swallows_the_interrupt() -> None:
    for _ in range(2):
        try:
            block()
        except BaseException:
            pass
    await trio.sleep_forever()


LONG = [busy, busy_and_deaf, busy_and_shielded, sleeps_a_little, waits_until_all_wait]
STUCK = [blocks, spins, blocks_in_a_child, swallows_the_interrupt]


@pytest.mark.parametrize("fn", LONG, ids=lambda fn: fn.__name__)
def test_a_run_without_end_is_ended(fn: Callable[[], Awaitable[None]]) -> None:
    begun = time.perf_counter()
    with pytest.raises(Stalled, match=r"not over after 0\.5 s of real time") as caught:
        run_in_virtual_time(fn, start=7.0, within=SOON)
    assert SOON <= time.perf_counter() - begun < PATIENCE
    assert f"  {fn.__name__}: " in str(caught.value)
    assert run_in_virtual_time(trio.sleep, 1) is None


@pytest.mark.parametrize("start", [0.0, 1e9])
def test_a_late_run_tells_whether_time_moves(start: float) -> None:
    within = 1.0
    with pytest.raises(Stalled) as caught:
        run_in_virtual_time(sleeps_a_little, start=start, within=within)
    still = float(str(caught.value).partition("stands still for ")[2].split()[0])
    # At 1e9 a nanosecond is nothing.
    assert still >= within / 2 if start else still < within / 2


def test_a_thread_that_never_returns_is_left_behind() -> None:
    waits_for_a_thread.go = threading.Event()
    try:
        with pytest.raises(Stalled, match="not over after"):
            run_in_virtual_time(waits_for_a_thread, within=SOON)
        # What it has to tell the run is dropped, and nothing is printed about it.
        with pytest.raises(trio.RunFinishedError):
            waits_for_a_thread.token.run_sync_soon(print)
    finally:
        waits_for_a_thread.go.set()


@pytest.mark.parametrize("fn", STUCK, ids=lambda fn: fn.__name__)
def test_a_step_without_end_is_interrupted(
    fn: Callable[[], Awaitable[None]], capfd: pytest.CaptureFixture[str]
) -> None:
    begun = time.perf_counter()
    with pytest.raises(Stalled, match=r"a step has not returned for 0\.5 s") as caught:
        run_in_virtual_time(fn, within=SOON)
    assert time.perf_counter() - begun < PATIENCE
    assert str(caught.value).splitlines()[1].startswith(__file__)
    assert "most recent call first" in capfd.readouterr().err
    assert run_in_virtual_time(trio.sleep, 1) is None


@pytest.mark.parametrize("fn", [waits, refuses_to_be_cancelled, busy_and_deaf, spins])
def test_it_is_bounded_outside_the_main_thread(fn: Callable[[], Awaitable[None]]) -> None:
    def body() -> None:
        try:
            run_in_virtual_time(fn, within=SOON)
        except BaseException as error:
            raised.append(error)
        raised.append(run_in_virtual_time(trio.sleep, 1))

    raised: list[Any] = []
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert [type(found) for found in raised] == [Stalled, type(None)]


def test_who_traces_after_an_interrupt_outside_the_main_thread_is_not_held_up() -> None:
    """Python 3.11 would trace the next function's first step for ever."""
    text = """if True:
        import sys, threading, trio
        from turnstop.testing.clock import Stalled, run_in_virtual_time

        async def spins():
            while True:
                pass

        def body():
            try:
                run_in_virtual_time(spins, within=0.1)
            except Stalled:
                print("stalled")

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        sys.settrace(lambda *_: None)
        (lambda: print("traced"))()
        sys.settrace(None)
    """
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == "stalled\ntraced\n"


def test_a_wreck_makes_no_noise_even_at_exit() -> None:
    text = """if True:
        import gc, trio
        from turnstop.testing.clock import Stalled, run_in_virtual_time

        async def main():
            try:
                await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
            finally:
                print("ran on")

        try:
            run_in_virtual_time(main)
        except Stalled:
            print("stalled")
        gc.collect()
    """
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("stalled\n", "")


# What is no stall.


def test_it_returns_what_the_function_returns() -> None:
    async def main(left: int, right: int) -> int:
        await checkpoint()
        return left + right

    assert run_in_virtual_time(main, 1, 2, within=math.inf) == 3


def test_its_thread_has_ended_before_it_returns() -> None:
    for _ in range(20):
        run_in_virtual_time(checkpoint)
        assert [thread for thread in threading.enumerate() if "watchdog" in thread.name] == []


def test_an_error_leaves_as_it_is() -> None:
    async def main() -> None:
        raise error

    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        run_in_virtual_time(main)
    assert caught.value is error
    assert error.__cause__ is None


@pytest.mark.parametrize("stalls", [False, True])
def test_an_interrupt_by_the_user_is_never_a_stall(stalls: bool) -> None:
    async def child() -> None:
        try:
            if stalls:
                await trio.sleep_forever()
        finally:
            signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run_in_virtual_time(main)
    assert caught.group_contains(KeyboardInterrupt) or caught.type is KeyboardInterrupt


def test_a_signal_that_comes_too_late_interrupts_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Late(trio.abc.Instrument):
        def after_run(self) -> None:
            signal.raise_signal(signal.SIGVTALRM)
            came.append(True)

    async def main() -> None:
        trio.lowlevel.add_instrument(Late())

    came: list[bool] = []
    run_in_virtual_time(main)
    assert came == [True]
    assert caplog.records == []


def test_a_handler_is_given_back() -> None:
    def ours(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGVTALRM, ours)
    try:
        with pytest.raises(Stalled):
            run_in_virtual_time(blocks, within=SOON)
        assert signal.getsignal(signal.SIGVTALRM) is ours
    finally:
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    "bad",
    [
        {"start": -1.0},
        {"start": math.inf},
        {"start": math.nan},
        {"within": 0.0},
        {"within": math.nan},
    ],
)
def test_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        run_in_virtual_time(waits, **bad)
