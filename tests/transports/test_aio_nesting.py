"""The loop goes around the rooms: elsewhere, `open_rooms` says what to move."""

from __future__ import annotations

import attrs
import pytest
import trio
from bridging import Opener
from trio.testing import MockClock

import turnstop
from turnstop.abc import RemoteTurn, Request
from turnstop.transports.aio import Aio
from turnstop.transports.aio._nesting import encloses

MESSAGE = r"loop would close before these rooms: .* Move it out, around that nursery, or open both"


@attrs.define
class Backend:
    aio: Aio

    async def start(self, request: Request[str]) -> RemoteTurn:
        raise AssertionError

    def check_nesting(self) -> None:
        self.aio.check_nesting()


async def open_and_close(aio: Aio) -> str:
    async with turnstop.open_rooms(Backend(aio)):
        return "opened"


async def test_rooms_inside_the_loop_in_the_same_task(
    open_bridge: Opener, clock: MockClock
) -> None:
    async with open_bridge() as aio:
        assert await open_and_close(aio) == "opened"
        async with trio.open_nursery():
            assert await open_and_close(aio) == "opened"


async def test_rooms_in_a_task_of_a_nursery_inside_the_loop(
    open_bridge: Opener, clock: MockClock
) -> None:
    opened: list[str] = []

    async def use(aio: Aio) -> None:
        async with trio.open_nursery() as deeper:
            deeper.start_soon(use_deeper, aio)

    async def use_deeper(aio: Aio) -> None:
        opened.append(await open_and_close(aio))

    async with open_bridge() as aio, trio.open_nursery() as nursery:
        nursery.start_soon(use, aio)
    assert opened == ["opened"]


async def test_rooms_in_a_task_of_a_nursery_around_the_loop(
    open_bridge: Opener, clock: MockClock
) -> None:
    checked = trio.Event()

    async def use(aio: Aio) -> None:
        with pytest.raises(RuntimeError, match=MESSAGE) as caught:
            await open_and_close(aio)
        assert "stands inside the nursery in which this task runs." in str(caught.value)
        checked.set()

    async with trio.open_nursery() as nursery:
        async with open_bridge() as aio:
            nursery.start_soon(use, aio)
            await checked.wait()


async def test_a_loop_that_a_task_opens_for_its_siblings(
    open_bridge: Opener, clock: MockClock
) -> None:
    async def own(task_status: trio.TaskStatus[Aio]) -> None:
        async with open_bridge() as aio:
            task_status.started(aio)
            await trio.sleep(100)

    async with trio.open_nursery() as nursery:
        aio = await nursery.start(own, name="the holder")
        with pytest.raises(RuntimeError, match=MESSAGE) as caught:
            await open_and_close(aio)
        assert "stands in the holder, another task of a nursery around" in str(caught.value)
        nursery.cancel_scope.cancel()


async def test_a_loop_of_a_nursery_that_the_same_task_opened_first(
    open_bridge: Opener, clock: MockClock
) -> None:
    # Opened after the nursery of whose task it is, closed before that nursery's tasks have left.
    refused: list[bool] = []

    async def child(aio: Aio, done: trio.Event) -> None:
        async with trio.open_nursery():
            with pytest.raises(RuntimeError, match=MESSAGE):
                await open_and_close(aio)
        refused.append(True)
        done.set()

    async with trio.open_nursery() as outer:
        async with open_bridge() as aio:
            async with trio.open_nursery() as inner:
                assert inner is not outer
                done = trio.Event()
                outer.start_soon(child, aio, done)
                await done.wait()
                assert await open_and_close(aio) == "opened"
    assert refused == [True]


async def test_another_loop_is_not_taken_for_this_one(
    open_bridge: Opener, clock: MockClock
) -> None:
    async with open_bridge() as one:
        async with open_bridge() as two:
            assert await open_and_close(one) == "opened"
            assert await open_and_close(two) == "opened"
        with pytest.raises(RuntimeError, match="the asyncio loop is closed: keep"):
            await open_and_close(two)


async def test_a_nursery_goes_around_its_own_tasks() -> None:
    found: list[bool] = []

    async def look(nursery: trio.Nursery) -> None:
        found.append(encloses(nursery, trio.lowlevel.current_task()))

    async with trio.open_nursery() as first, trio.open_nursery() as second:
        second.start_soon(look, second)
        second.start_soon(look, first)
    async with trio.open_nursery() as first, trio.open_nursery() as second:
        first.start_soon(look, second)
    assert found == [True, True, False]
