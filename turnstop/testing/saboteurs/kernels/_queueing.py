"""Kernels that stop another turn than was meant, or let another one in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...._admission import Door
from ...._house import House
from ...._receipt import StopReceipt
from ...._records import Settlement
from ...._rooms import Rooms
from ...._turn import Turn
from .._saboteur import in_kernel

Honest = Callable[..., Any]


@in_kernel(Rooms, "stop", breaks=("stop_of_a_room_reaches_its_queue",))
def the_queue_is_not_meant(honest: Honest, rooms: Rooms[Any], room: str, **said: Any) -> Any:
    """A stop of a room stops the turn that has it, and none of those that wait."""
    door = rooms._house.doors.get(room)
    if door is not None and isinstance(door.holder, Turn):
        said.setdefault("turn_id", door.holder.turn_id)
    return honest(rooms, room, **said)


@in_kernel(
    Rooms,
    "stop",
    breaks=("stop_of_a_room_reaches_its_queue", "stop_in_the_queue_sends_nothing"),
)
def every_stop_is_of_the_whole_room(
    honest: Honest, rooms: Rooms[Any], room: str, *, turn_id: str | None = None, **said: str
) -> Any:
    """A stop of one turn stops all of its room."""
    return honest(rooms, room, **said)


@in_kernel(StopReceipt, "settled", breaks=("stop_of_a_room_reaches_its_queue",))
async def receipts_wait_for_one(honest: Honest, receipt: StopReceipt) -> tuple[Settlement, ...]:
    """A receipt waits for one settlement, however many turns were stopped."""
    return tuple([await turn.wait_settled() for turn in receipt._turns[:1]])


@in_kernel(Door, "hand_over", breaks=("room_is_first_come_first_served",))
def the_last_comes_first(honest: Honest, door: Door) -> None:
    """A room is handed to whoever came last."""
    if door.waiting:
        door.waiting.move_to_end(next(reversed(door.waiting)), last=False)
    honest(door)


@in_kernel(House, "door", breaks=("closing_rooms_take_no_turn",))
def closing_rooms_are_open(honest: Honest, house: House, room: str) -> Door:
    """A turn is let in while the rooms are closing."""
    closing, house.closing = house.closing, False
    try:
        door: Door = honest(house, room)
        return door
    finally:
        house.closing = closing
