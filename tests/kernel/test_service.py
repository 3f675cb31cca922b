"""A service outlives the body: its tasks are cancelled only after everything inside has left."""

from __future__ import annotations

import gc

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop._service import open_service, see_through

LOG = list[tuple[str, float]]


async def serve(log: LOG) -> None:
    try:
        await trio.sleep_forever()
    finally:
        log.append(("service", trio.current_time()))


async def body(log: LOG) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        log.append(("body", trio.current_time()))


async def test_an_outer_cancellation_reaches_the_body_first_and_the_service_when_it_has_left() -> (
    None
):
    log: LOG = []
    with trio.move_on_after(1):
        async with open_service() as service:
            service.start_soon(serve, log)
            await body(log)
    assert log == [("body", 3), ("service", 3)]


async def test_a_service_works_for_the_body_on_its_way_out() -> None:
    answers, questions = trio.open_memory_channel[int](0), trio.open_memory_channel[int](0)

    async def answer() -> None:
        async for number in questions[1]:
            await answers[0].send(number + 1)

    found = []
    with trio.move_on_after(1):
        async with open_service() as service:
            service.start_soon(answer)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await questions[0].send(1)
                    found.append(await answers[1].receive())
    assert found == [2]


@pytest.mark.parametrize("how", ["ends", "raises"])
async def test_a_body_that_leaves_ends_the_service(how: str) -> None:
    log: LOG = []
    with pytest.raises(ValueError, match="body") if how == "raises" else trio.CancelScope():
        async with open_service() as service:
            service.start_soon(serve, log)
            await trio.sleep(1)
            if how == "raises":
                raise ValueError("body")
    assert log == [("service", 1)]


async def test_an_error_of_a_service_cancels_the_body_and_leaves_as_itself() -> None:
    broken = ValueError("service")
    log: LOG = []

    async def fail() -> None:
        await trio.sleep(1)
        raise broken

    with pytest.raises(ValueError, match="service") as caught:
        async with open_service() as service:
            service.start_soon(fail)
            service.start_soon(serve, log)
            await body(log)
    assert caught.value is broken
    assert log == [("body", 3), ("service", 3)]


async def test_a_service_started_after_the_end_is_cancelled_at_its_first_checkpoint() -> None:
    log: LOG = []

    async def first() -> None:
        try:
            await trio.sleep_forever()
        finally:
            service.start_soon(serve, log)

    async with open_service() as service:
        service.start_soon(first)
        await wait_all_tasks_blocked()
    assert log == [("service", 0)]


async def test_a_service_that_has_not_run_yet_is_not_reached_by_an_outer_cancellation() -> None:
    log: LOG = []
    with trio.CancelScope() as scope:
        async with open_service() as service:
            service.start_soon(serve, log)
            scope.cancel()
            await body(log)
    assert log == [("body", 2), ("service", 2)]


async def test_the_exit_waits_for_a_services_own_clean_up() -> None:
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    async with open_service() as service:
        service.start_soon(slow)
        await trio.sleep(1)
    assert trio.current_time() == 6


async def test_a_service_that_ends_by_itself_changes_nothing() -> None:
    async with open_service() as service:
        service.start_soon(trio.sleep, 1)
        await trio.sleep(3)
    assert trio.current_time() == 3


async def test_services_are_named() -> None:
    names = []

    async def look() -> None:
        names.append(trio.lowlevel.current_task().name)

    async with open_service() as service:
        service.start_soon(look, name="the reader")
        service.start_soon(look)
        await wait_all_tasks_blocked()
    assert "the reader" in names
    assert any("look" in name for name in names)


async def test_a_service_keeps_nothing_of_tasks_that_are_over() -> None:
    async def quick() -> None:
        pass

    def count() -> int:
        gc.collect()
        return sum(isinstance(one, trio.CancelScope) for one in gc.get_objects())

    async with open_service() as service:
        before = count()
        for _ in range(100):
            service.start_soon(quick)
        await wait_all_tasks_blocked()
        assert count() < before + 50


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_is_seen_through_goes_on_whoever_is_cancelled(
    cancelled: bool, autojump_clock: MockClock
) -> None:
    told: list[object] = []

    async def finish() -> None:
        await trio.sleep(0.5)
        told.append(trio.lowlevel.currently_ki_protected())

    with trio.CancelScope() as scope:
        if cancelled:
            scope.cancel()
        await see_through(1.0, finish)
        told.append("over")
    assert told == [True, "over"]


async def test_what_is_seen_through_has_its_time_and_no_more(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    await see_through(1.0, trio.sleep_forever)
    assert trio.current_time() - begun == 1.0
