"""Virtual time that cannot stall: a run ends, or says where it waits."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, TypeVarTuple, cast

import attrs
import trio
from trio.lowlevel import Task

from ._tree import all_tasks, describe
from ._watchdog import watchdog

__all__ = ["Stalled", "run_in_real_time", "run_in_virtual_time"]

T = TypeVar("T")
Args = TypeVarTuple("Args")

# Only a run that nothing else could end leaves something here. Were its coroutines collected, they
# would run their clean-ups outside of Trio, in the middle of whatever runs then; so they outlive
# the interpreter too.
_wrecks: list[object] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_wrecks))


class Stalled(Exception):
    """Nothing will ever happen again, or the run took too much real time.

    The text says which, at what virtual time, and where each task waits. What the run raised while
    it was being ended is the cause.
    """


def run_in_virtual_time(
    fn: Callable[[*Args], Awaitable[T]], *args: *Args, start: float = 0.0, within: float = 60.0
) -> T:
    """Run `fn(*args)` under Trio, in time that passes only when every task waits.

    It is `trio.run` on a `trio.testing.MockClock` that jumps to the next deadline at once. Virtual
    time holds until everything has left: clean-ups, nurseries' exits, and the finalisers of
    asynchronous generators. It leaves no thread, timer or signal handler.

    A run that stalls is cancelled, and its clean-ups run. If it still stalls, the shields of its
    cancel scopes are lowered. Only what then still goes on is torn down without its clean-ups, and
    a step that never returns is interrupted, after a dump of all threads' stacks to the standard
    error: these wait for up to a second each after `within`.

    A wait for a thread of `trio.to_thread` or for real I/O does not hold the clock: every deadline
    is leapt over meanwhile. It is no stall before `within` is over. A thread that was started by
    other means, or a signal, is not expected.

    Not bounded: a step that catches `BaseException` again and again without a checkpoint; outside
    the main thread (and where there is no `signal.pthread_kill`), a blocking call such as
    `time.sleep`, until it returns. In the main thread a handler of SIGVTALRM is lent for the run.

    Args:
        fn: an asynchronous function.
        args: what it is given.
        start: the virtual time to begin at, in seconds. Times are floats: at 1e9 they are 1.2e-7 s
            apart, and what is shorter than half of that takes no time.
        within: how many seconds of real time it may take; `math.inf` in a debugger.

    Returns:
        What `fn` returns.

    Raises:
        Stalled: every task waits, and no deadline is ahead; or it was not over `within`.
        ValueError: `start` is negative or not finite, or `within` is not more than 0.
    """
    if not (0 <= start < math.inf and within > 0):
        raise ValueError(f"start={start} must be finite and >= 0, within={within} more than 0")
    # It imports all of pytest, for which who checks in real time need not wait.
    from trio.testing import MockClock

    clock = MockClock(autojump_threshold=0)
    clock.jump(start)
    return _run(_Watch(clock, virtual=True), fn, args, within)


def run_in_real_time(fn: Callable[[*Args], Awaitable[T]], *args: *Args, within: float = 60.0) -> T:
    """Run `fn(*args)` under Trio in real time, and no longer than `within` seconds.

    As `run_in_virtual_time` otherwise: what is over its time is cancelled, and what does not let
    itself be cancelled is ended by the same means.

    Returns:
        What `fn` returns.

    Raises:
        Stalled: it was not over `within`.
        ValueError: `within` is not more than 0.
    """
    if not within > 0:
        raise ValueError(f"within={within} must be more than 0")
    return _run(_Watch(_RealClock(), virtual=False), fn, args, within)


def _run(watch: _Watch, fn: Callable[..., Awaitable[T]], args: Any, within: float) -> T:
    result = None
    try:
        with watchdog(watch, within):
            result = trio.run(watch.main, fn, args, clock=watch.clock, instruments=[watch])
    except BaseException as error:
        if not watch.why or _is_exit(error):
            raise
        if not isinstance(error, trio.TrioInternalError):
            raise Stalled(watch.why) from error
        _wrecks.append((error, watch.wreck))
        # It is no bug of Trio's, as its own text would have it.
        raise Stalled(watch.why) from error.__cause__
    if watch.why:
        raise Stalled(watch.why)
    return cast(T, result)


class _RealClock(trio.abc.Clock):
    """As Trio's own, which cannot be broken."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


def _is_exit(error: BaseException) -> bool:
    """Whether somebody wants the program to end, which is more than that the run stalled."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup((KeyboardInterrupt, SystemExit)) is not None
    return isinstance(error, (KeyboardInterrupt, SystemExit))


@attrs.define(eq=False, repr=False, slots=False)
class _Watch(trio.abc.Instrument):
    """Sees every pass of the scheduler, and ends the run that it stalls in.

    Attributes:
        virtual: whether a run in which nothing is ahead has stalled.
        why: what `Stalled` says; empty while nothing is wrong.
        passes: how many passes there were.
        late: set by the watchdog: the run's real time is over.
        ended: nothing of the run is left to be interrupted.
        wreck: the tasks that were torn down.
    """

    clock: trio.abc.Clock
    virtual: bool
    why: str = ""
    passes: int = 0
    late: str = ""
    ended: bool = False
    wreck: Sequence[Task] = ()
    token: trio.lowlevel.TrioToken | None = None
    _now: float = -1.0
    _moved_at: float = 0.0
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stepped: bool = True
    _lowered: bool = False

    async def main(self, fn: Callable[..., Awaitable[T]], args: Iterable[Any]) -> T | None:
        self.token = trio.lowlevel.current_trio_token()
        trio.lowlevel.current_task().name = getattr(fn, "__qualname__", repr(fn))
        with self._scope:
            return await fn(*args)
        return None

    def before_task_step(self, task: Task) -> None:
        self._stepped = True

    def after_io_wait(self, timeout: float) -> None:
        self.passes += 1
        stepped, self._stepped = self._stepped, False
        if self._now != self.clock.current_time():
            self._now, self._moved_at = self.clock.current_time(), time.perf_counter()
        if self.late:
            late, self.late = self.late, ""
            still = time.perf_counter() - self._moved_at
            stood = f"; virtual time stands still for {still:.2g} s of it" if self.virtual else ""
            self._push(f"{late}{stood}", late=True)
        # The pass after a step may yet wake those who wait for all tasks to be blocked. They have
        # stepped before the next one.
        elif self.virtual and not stepped and _nothing_ahead():
            self._push("nothing will ever happen again: every task waits, and no deadline is ahead")

    def after_run(self) -> None:
        self.ended = True

    def blame(self, what: str, where: str) -> None:
        """Say why the run is ended; the first time only, since what follows is of our making."""
        if not self.why:
            when = f", at virtual time {self.clock.current_time()!r}" if self.virtual else ""
            self.why = f"{what}{when}\n{where}"

    def _push(self, what: str, late: bool = False) -> None:
        """End the run by the mildest means not yet tried."""
        self.blame(what, describe())
        if not self._scope.cancel_called:
            self._scope.cancel()
        elif (late and self._lowered) or not _lower_shields():
            self._crash()
        else:
            self._lowered = True

    def _crash(self) -> None:
        # The scheduler's very next act is to read the clock. What an instrument raises, it catches.
        self.wreck = all_tasks()
        # A thread that returns later is to find the run over, as after any other run; Trio closes
        # the sockets of this one without saying so. Not while one is about to wake the run by them.
        queue = cast(Any, self.token)._reentry_queue
        with queue.lock:
            queue.done = True

        def broken() -> float:
            raise RuntimeError("the stalled run does not end by itself and is torn down")

        self.clock.current_time = broken  # type: ignore[method-assign]


def _nothing_ahead() -> bool:
    from trio.testing import active_thread_count

    found = trio.lowlevel.current_statistics()
    if found.tasks_runnable or found.run_sync_soon_queue_size:
        return False
    if found.seconds_to_next_deadline < math.inf or active_thread_count():
        return False
    # Trio itself always waits for one thing, its wake-up call.
    counts = attrs.asdict(found.io_statistics).values()
    return sum(count for count in counts if isinstance(count, int)) <= 1


def _lower_shields() -> int:
    """Let the cancellation through to every task; how many shields there were."""
    lowered = 0
    for task in all_tasks():
        status: Any = task._cancel_status
        while status is not None:
            if status._scope.shield:
                status._scope.shield = False
                lowered += 1
            status = status._parent
    return lowered
