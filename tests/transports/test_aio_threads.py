"""Threads of a loop's executor: as many as asyncio would have, and none that an exit waits for."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from queue import Empty

import pytest

from turnstop.transports.aio._filing import Filing
from turnstop.transports.aio._threads import Threads

BOUND = 30


def test_all_work_is_done_by_no_more_threads_than_allowed() -> None:
    threads, names, together = Threads(Filing()), set(), threading.Barrier(2)

    def work(number: int) -> int:
        names.add(threading.current_thread().ident)
        return number

    # While one round ends, the next one begins: nothing that comes in between is forgotten.
    for _ in range(200):
        futures = [threads.submit(work, number) for number in range(10)]
        assert [future.result(BOUND) for future in futures] == [*range(10)]
    assert len(names) <= threads._max_workers + 10

    pair = [threads.submit(together.wait) for _ in range(2)]
    assert sorted(future.result(BOUND) for future in pair) == [0, 1]


def test_work_waits_for_a_thread_to_be_free_and_may_be_cancelled_meanwhile() -> None:
    threads, let_go = Threads(Filing()), threading.Event()
    begun = threading.Semaphore(0)
    most = threads._max_workers

    def block() -> None:
        begun.release()
        let_go.wait()

    blocked = [threads.submit(block) for _ in range(most)]
    for _ in range(most):
        assert begun.acquire(timeout=BOUND)
    late, never = threads.submit(int, "7"), threads.submit(begun.release)
    assert not begun.acquire(timeout=0.05)
    assert never.cancel()
    let_go.set()
    for future in blocked:
        future.result(BOUND)
    assert late.result(BOUND) == 7
    assert not begun.acquire(blocking=False)
    with pytest.raises(CancelledError):
        never.result(BOUND)


@pytest.mark.parametrize("error", [ValueError("no"), Empty(), SystemExit(3)])
def test_an_error_is_the_futures_and_the_thread_goes_on(error: BaseException) -> None:
    threads = Threads(Filing())

    def fail() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            threads.submit(fail).result(BOUND)
        assert caught.value is error
    assert threads.submit(int, "7").result(BOUND) == 7
    # As many are free as before.
    for _ in range(threads._max_workers):
        assert threads._free.acquire(timeout=BOUND)
