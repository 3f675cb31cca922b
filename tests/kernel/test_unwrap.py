"""Only the group that our own nursery made is taken apart, and only where nothing is lost."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop._unwrap import open_private_nursery, reraise


async def crash(error: BaseException) -> None:
    raise error


async def test_one_error_of_a_child_leaves_as_itself() -> None:
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_private_nursery() as nursery:
            nursery.start_soon(crash, mine)
            await trio.sleep_forever()
    assert caught.value is mine


async def test_one_error_of_the_body_leaves_as_itself_with_cause_and_context() -> None:
    mine = ValueError("mine")
    mine.__cause__, mine.__context__ = KeyError("cause"), OSError("context")
    cause, context = mine.__cause__, mine.__context__
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_private_nursery():
            raise mine
    assert caught.value is mine
    assert (caught.value.__cause__, caught.value.__context__) == (cause, context)


async def test_two_errors_leave_as_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_private_nursery() as nursery:
            nursery.start_soon(crash, ValueError("one"))
            nursery.start_soon(crash, KeyError("two"))
    assert len(caught.value.exceptions) == 2


async def test_one_error_that_two_raise_leaves_as_itself() -> None:
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_private_nursery() as nursery:
            nursery.start_soon(crash, mine)
            nursery.start_soon(crash, mine)
    assert caught.value is mine


async def test_the_cancellations_of_several_leave_as_one() -> None:
    with trio.CancelScope() as scope:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - the scope takes a group too
            async with open_private_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
    assert type(caught.value) is trio.Cancelled


@pytest.mark.parametrize("who", ["body", "child"])
async def test_a_group_of_the_body_or_a_child_stays_whole(who: str) -> None:
    group = ExceptionGroup("mine", [ValueError("one")])
    with pytest.raises(ExceptionGroup) as caught:
        async with open_private_nursery() as nursery:
            if who == "body":
                raise group
            nursery.start_soon(crash, group)
    assert caught.value.message == "mine"
    assert [str(error) for error in caught.value.exceptions] == ["one"]


async def test_an_error_beside_a_cancellation_from_outside_loses_neither() -> None:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cancelled")

    with trio.CancelScope() as scope:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with open_private_nursery() as nursery:
                nursery.start_soon(fail)
                await wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
        kinds = {type(error) for error in caught.value.exceptions}
        assert kinds == {ValueError, trio.Cancelled}


async def test_nothing_but_cancellations_leave_as_one() -> None:
    with trio.CancelScope() as scope:
        with pytest.raises(trio.Cancelled):
            async with open_private_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(trio.sleep_forever)
                await wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()


async def test_a_loose_run_unwraps_no_group_for_us_and_ours_no_group_of_others() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as outer:
            async with open_private_nursery() as nursery:
                nursery.start_soon(crash, ValueError("one"))
            outer.start_soon(crash, KeyError("never"))
    assert [type(error) for error in caught.value.exceptions] == [ValueError]


def test_reraise_keeps_the_context() -> None:
    mine = ValueError("mine")
    mine.__context__ = context = KeyError("context")
    with pytest.raises(ValueError, match="mine") as caught:
        try:
            raise OSError("handled")
        except OSError:
            reraise(mine)
    assert caught.value is mine
    assert mine.__context__ is context
