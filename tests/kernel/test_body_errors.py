"""Whose error leaves a block: the body's own, then a cancellation, then the backend's."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import (
    BackendLost,
    Ending,
    open_rooms,
)

from .backend import Act, Recorder, ending

LOST = BackendLost("the line broke")


LOST = BackendLost("the line broke")


@pytest.mark.parametrize("outer", [False, True])
async def test_the_bodys_own_error_wins_over_everything(outer: bool) -> None:
    backend = Recorder(follow=Act(takes=1, raises=LOST))
    mine = ValueError("mine")
    mine.__cause__, mine.__context__ = KeyError("cause"), OSError("context")
    cause, context = mine.__cause__, mine.__context__
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with trio.CancelScope() as scope:
            with pytest.raises(ValueError, match="mine") as caught:
                async with turn:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(2)
                    if outer:
                        scope.cancel()
                    raise mine
        assert caught.value is mine
        assert caught.value.__cause__ is cause
        assert caught.value.__context__ is context
        assert turn.settlement is not None
        assert turn.settlement.errors == (LOST,)


async def test_then_a_cancellation_from_outside_wins_over_the_backends_error() -> None:
    backend = Recorder(follow=Act(takes=1, raises=LOST))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with trio.CancelScope() as scope:
            async with turn:
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
                scope.cancel()
        assert scope.cancelled_caught
        assert turn.settlement is not None
        assert (turn.settlement.errors, turn.ending) == ((LOST,), Ending.FAILED)


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("kind", [ValueError, StopIteration, StopAsyncIteration, GeneratorExit])
async def test_the_bodys_error_leaves_as_the_same_object(
    stop: bool, kind: type[BaseException]
) -> None:
    mine = kind("mine")
    turn: Any = None
    try:
        async with open_rooms(Recorder()) as rooms:
            turn = rooms.turn("a", "x")
            try:
                async with turn:
                    await trio.sleep(1)
                    if stop:
                        turn.stop()
                    raise mine
            except BaseException as error:
                assert error is mine
                assert error.__context__ is None
                raise
    except BaseException as error:
        assert error is mine
        assert error.__cause__ is None
    else:
        raise AssertionError("swallowed")
    assert turn.ending is Ending.STOPPED


async def test_the_error_of_a_body_that_was_cancelled_by_a_stop_keeps_its_context() -> None:
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        mine = ValueError("mine")
        with pytest.raises(ValueError, match="mine") as caught:
            async with turn:
                await wait_all_tasks_blocked()
                turn.stop()
                try:
                    await trio.sleep_forever()
                finally:
                    raise mine
        assert caught.value is mine
        assert isinstance(mine.__context__, trio.Cancelled)


async def test_of_a_group_only_the_stops_own_cancellations_are_taken() -> None:
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        mine = ValueError("mine")

        async def child() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise mine

        with pytest.raises(BaseExceptionGroup) as caught:
            async with turn:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(child)
                    nursery.start_soon(trio.sleep_forever)
                    await wait_all_tasks_blocked()
                    turn.stop()
        assert caught.value.exceptions == (mine,)
        assert isinstance(caught.value, ExceptionGroup)
        assert turn.ending is Ending.STOPPED
        assert turn.settlement is not None
        assert turn.settlement.request is not None
        assert turn.settlement.request.kind == "stop"


async def test_a_group_of_nothing_but_the_stops_cancellations_is_absorbed() -> None:
    async with open_rooms(Recorder()) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            turn.stop()
            cancelled = []
            for _ in range(2):
                try:
                    await trio.lowlevel.checkpoint()
                except trio.Cancelled as error:
                    cancelled.append(error)
            raise BaseExceptionGroup("both", cancelled)


@pytest.mark.parametrize("stop", [False, True])
async def test_a_group_of_the_body_leaves_the_block_as_the_same_object(stop: bool) -> None:
    mine = ExceptionGroup("mine", [ValueError("one")])
    mine.__cause__ = KeyError("cause")
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(ExceptionGroup) as caught:
            async with turn:
                await wait_all_tasks_blocked()
                if stop:
                    turn.stop()
                raise mine
        assert caught.value is mine


async def test_an_outer_cancellation_is_never_absorbed_by_a_stopped_block() -> None:
    async with open_rooms(Recorder(cancel=ending(takes=2))) as rooms:
        turn = rooms.turn("a", "x")
        reached = False
        with trio.CancelScope() as scope:
            async with turn:
                await wait_all_tasks_blocked()
                turn.stop()
                scope.cancel()
                await trio.sleep_forever()
            reached = True
        assert scope.cancelled_caught
        assert not reached
