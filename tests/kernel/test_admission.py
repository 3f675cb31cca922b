"""One room's door: held by one, never free while somebody waits."""

from __future__ import annotations

import attrs
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from turnstop import Rooms, open_rooms
from turnstop._admission import Door

from .backend import Recorder


@attrs.define(eq=False)
class Visitor:
    name: str
    task: trio.lowlevel.Task | None = None


async def visit(door: Door, visitor: Visitor, log: list[str]) -> None:
    if not door.take_nowait(visitor):
        await door.wait(visitor)
    log.append(visitor.name)


async def test_a_free_door_is_taken_and_a_held_one_is_not() -> None:
    door = Door("a")
    one, two = Visitor("one"), Visitor("two")
    assert door.idle
    assert door.take_nowait(one)
    assert not door.take_nowait(two)
    assert door.holder is one
    assert not door.idle
    door.hand_over()
    assert door.holder is None
    assert door.idle


async def test_the_room_goes_to_the_next_in_the_step_of_the_hand_over() -> None:
    door, log = Door("a"), []
    visitors = [Visitor(str(number)) for number in range(4)]
    async with trio.open_nursery() as nursery:
        for visitor in visitors:
            nursery.start_soon(visit, door, visitor, log)
            await wait_all_tasks_blocked()
        assert log == ["0"]
        assert list(door.guests()) == visitors
        for number in range(1, 4):
            door.hand_over()
            assert door.holder is visitors[number]
            assert not door.take_nowait(Visitor("newcomer"))
            await wait_all_tasks_blocked()
            assert log[-1] == str(number)
        door.hand_over()
    assert door.idle


async def test_who_is_cancelled_leaves_the_queue() -> None:
    door, log = Door("a"), []
    door.take_nowait(Visitor("holder"))
    waiting = Visitor("waiting")
    last = Visitor("last")
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(visit, door, last, log)
            scope.deadline = 1
            await door.wait(waiting)
        assert scope.cancelled_caught
        assert waiting not in list(door.guests())
        door.hand_over()
        assert door.holder is last


async def test_a_door_with_something_to_inherit_is_not_idle() -> None:
    door = Door("a")
    door.session = "s"
    assert not door.idle
    door.session = None
    assert door.idle


async def test_a_waiter_that_is_given_the_room_and_cancelled_in_one_step_never_enters() -> None:
    entered: list[str] = []
    waiting, go = trio.CancelScope(), trio.Event()

    async def hold(rooms: Rooms[str]) -> None:
        async with rooms.turn("a", "x"):
            await go.wait()
        # The room was handed over in this step.
        waiting.cancel()

    async def wait(rooms: Rooms[str]) -> None:
        with waiting:
            async with rooms.turn("a", "y"):
                entered.append("y")

    async with open_rooms(Recorder()) as rooms, trio.open_nursery() as nursery:
        nursery.start_soon(hold, rooms)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, rooms)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert entered == []
