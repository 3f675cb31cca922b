"""A backlog is read on in one pass, lets others run now and then, and loses nothing."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop.transports.backlog import Backlog


@pytest.fixture
def backlog() -> Backlog[int]:
    return Backlog()


async def passes_during(backlog: Backlog[int], count: int) -> int:
    """In how many scheduler passes so many items are received."""
    passes = 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_passes)
        await wait_for_start()
        before = passes
        for _ in range(count):
            await backlog.receive()
        found = passes - before
        nursery.cancel_scope.cancel()
    return found


async def wait_for_start() -> None:
    for _ in range(3):
        await trio.lowlevel.checkpoint()


async def test_what_was_posted_is_received_in_order(backlog: Backlog[int]) -> None:
    for number in range(3):
        backlog.post(number)
    assert len(backlog) == 3
    assert [await backlog.receive() for _ in range(3)] == [0, 1, 2]
    assert len(backlog) == 0


async def test_who_waits_is_woken_each_time(backlog: Backlog[int]) -> None:
    found: list[int] = []

    async def read() -> None:
        while True:
            found.append(await backlog.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for number in range(3):
            await wait_all_tasks_blocked()
            backlog.post(number)
            backlog.post(10 + number)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert found == [0, 10, 1, 11, 2, 12]


async def test_what_is_there_is_received_in_one_pass(backlog: Backlog[int]) -> None:
    for number in range(1_900):
        backlog.post(number)
    assert await passes_during(backlog, 1_900) == 0


async def test_however_much_there_is_others_run_now_and_then(backlog: Backlog[int]) -> None:
    for number in range(9_000):
        backlog.post(number)
    # Four waits, and who runs first in a pass is drawn.
    assert 3 <= await passes_during(backlog, 9_000) <= 5


async def test_after_a_wait_as_many_may_be_received_again(backlog: Backlog[int]) -> None:
    async def post() -> None:
        await wait_all_tasks_blocked()
        backlog.post(0)

    for number in range(1_500):
        backlog.post(number)
    for _ in range(1_500):
        await backlog.receive()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(post)
        await backlog.receive()
    for number in range(1_500):
        backlog.post(number)
    assert await passes_during(backlog, 1_500) == 0


async def test_a_cancelled_one_loses_nothing(backlog: Backlog[int]) -> None:
    backlog.post(1)
    for _ in range(2):
        with trio.CancelScope() as scope:
            scope.cancel()
            await backlog.receive()
        assert scope.cancelled_caught
    assert await backlog.receive() == 1
    with trio.move_on_after(0) as waiting:
        await backlog.receive()
    assert waiting.cancelled_caught
    backlog.post(2)
    assert await backlog.receive() == 2


async def test_what_is_there_can_be_taken_at_once(backlog: Backlog[int]) -> None:
    assert backlog.take() == []
    backlog.post(1)
    backlog.post(2)
    assert (backlog.take(), len(backlog)) == ([1, 2], 0)
    with trio.move_on_after(0) as waiting:
        await backlog.receive()
    assert waiting.cancelled_caught


async def test_a_closed_one_gives_what_it_has_and_takes_no_more(backlog: Backlog[int]) -> None:
    backlog.post(1)
    backlog.close()
    backlog.post(2)
    assert await backlog.receive() == 1
    for _ in range(2):
        with pytest.raises(trio.EndOfChannel):
            await backlog.receive()


async def test_who_waits_hears_that_it_is_closed(backlog: Backlog[int]) -> None:
    async def close() -> None:
        await wait_all_tasks_blocked()
        backlog.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        with trio.fail_after(5), pytest.raises(trio.EndOfChannel):
            await backlog.receive()
