"""A wait with an end, a call that nobody can answer any more, and a farewell."""

import pytest
import trio
from trio.testing import MockClock

from turnstop.transports.pace import call_unless, open_farewell, wait_at_most


async def test_it_ends_with_the_sign_or_with_the_time(autojump_clock: MockClock) -> None:
    event = trio.Event()
    begin = trio.current_time()
    assert not await wait_at_most(event, 2.0)
    assert trio.current_time() == begin + 2.0
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(1.0)
            event.set()

        nursery.start_soon(later)
        assert await wait_at_most(event, 2.0)
    assert trio.current_time() == begin + 3.0


async def answer(after: float) -> str:
    await trio.sleep(after)
    return "yes"


async def test_a_call_returns_what_it_returns(autojump_clock: MockClock) -> None:
    assert await call_unless(trio.Event(), lambda: answer(1.0)) == "yes"
    assert await call_unless(trio.Event(), lambda: answer(1.0), within=2.0) == "yes"


async def test_a_call_ends_with_who_would_answer(autojump_clock: MockClock) -> None:
    gone = trio.Event()
    gone.set()
    with pytest.raises(trio.BrokenResourceError):
        await call_unless(gone, lambda: answer(1.0))
    begin = trio.current_time()
    with pytest.raises(trio.TooSlowError):
        await call_unless(trio.Event(), lambda: answer(9.0), within=2.0)
    assert trio.current_time() == begin + 2.0


async def test_a_call_may_see_by_itself_that_nobody_answers(autojump_clock: MockClock) -> None:
    gone = trio.Event()
    gone.set()
    assert await call_unless(gone, lambda: answer(1.0), grace=2.0) == "yes"
    with pytest.raises(trio.BrokenResourceError):
        await call_unless(gone, lambda: answer(3.0), grace=2.0)


async def test_the_grace_begins_when_nobody_will_answer_any_more(autojump_clock: MockClock) -> None:
    gone = trio.Event()

    async def answer_late() -> str:
        await trio.sleep(5.0)
        gone.set()
        return await answer(1.0)

    assert await call_unless(gone, answer_late, grace=2.0) == "yes"


async def test_a_calls_error_leaves_as_itself(autojump_clock: MockClock) -> None:
    error = ZeroDivisionError()

    async def fail() -> None:
        await trio.sleep(0.1)
        raise error

    with pytest.raises(ZeroDivisionError) as caught:
        await call_unless(trio.Event(), fail)
    assert caught.value is error


async def test_a_calls_error_leaves_as_itself_also_on_a_cancellation(
    autojump_clock: MockClock,
) -> None:
    """As an asyncio task that fails in the grace that its cancellation has."""
    error = ZeroDivisionError()

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise error from None

    with trio.CancelScope() as scope, pytest.raises(ZeroDivisionError) as caught:
        scope.cancel()
        await call_unless(trio.Event(), fail)
    assert caught.value is error


async def test_a_farewell_is_bounded_and_not_cancelled(autojump_clock: MockClock) -> None:
    said = []

    async def dawdle() -> None:
        said.append("begun")
        await trio.sleep(2.0)
        said.append("done")
        await trio.sleep(600.0)

    begin = trio.current_time()
    with trio.move_on_after(1.0):
        async with open_farewell(dawdle, within=3.0):
            await trio.sleep_forever()
    assert said == ["begun", "done"]
    assert trio.current_time() == begin + 4.0
