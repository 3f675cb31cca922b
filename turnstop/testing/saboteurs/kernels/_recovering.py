"""Kernels that note too little for another process, or do not end what one has left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs

from ...._errors import BackendLost, BackendRefused
from ...._house import Orphan
from ...._life import Life
from ...._records import Settlement
from ...._rooms import Rooms
from ....abc import Request
from .._saboteur import in_kernel

Honest = Callable[..., Any]


@in_kernel(Life, "_reveal", breaks=("turn_tells_where_it_is",))
def where_it_is_is_not_noted(honest: Honest, life: Life, remote: Any) -> None:
    """Where a turn is is not noted when it is revealed."""
    entry, life._entry = life._entry, None
    honest(life, remote)
    life._entry = entry


@in_kernel(
    Life,
    "_note_settlement",
    breaks=("turn_tells_where_it_is", "disk_holds_up_no_stop", "left_turn_is_stopped"),
)
def an_end_is_not_noted(honest: Honest, life: Life, *facts: Any) -> Settlement:
    """A turn that is settled is open for ever, as far as the journal knows."""
    life._entry = None
    settlement: Settlement = honest(life, *facts)
    return settlement


@in_kernel(Life, "_announce", breaks=("what_begins_is_announced",))
async def an_announcement_is_not_waited_for(honest: Honest, life: Life, address: str) -> None:
    """What is announced is sent whether it is on the disk or not."""
    life._admit()
    assert life._entry is not None
    life._entry.note_address(address)


@in_kernel(Life, "_announce", breaks=("early_left_turn_is_no_lie",))
async def what_is_announced_is_noted_when_it_has_begun(
    honest: Honest, life: Life, address: str
) -> None:
    """Where a turn will be is noted when its start was answered."""


@in_kernel(Life, "_announce", breaks=("stop_before_sending_sends_nothing",))
async def a_stop_is_no_answer_to_an_announcement(honest: Honest, life: Life, address: str) -> None:
    """A turn that is stopped while it is announced is sent."""
    with suppress(BackendRefused):
        await honest(life, address)


@in_kernel(Life, "_begin_stop", breaks=("stop_before_sending_sends_nothing",))
def a_stop_waits_for_the_announcement(honest: Honest, life: Life) -> None:
    """A stop does not end the wait for the disk."""
    life._announcing = ()
    honest(life)


@in_kernel(Life, "_announce", breaks=("disk_holds_up_no_start",))
async def a_start_waits_for_the_disk(honest: Honest, life: Life, address: str) -> None:
    """What is announced is sent when it is on the disk, however long that takes."""
    life._admit()
    assert life._entry is not None
    life._entry.note_address(address)
    await life._entry.saved()


@in_kernel(Life, "_do_cancel", breaks=("disk_holds_up_no_stop",))
async def a_stop_waits_for_the_disk(honest: Honest, life: Life) -> None:
    """The far end is told when the asking is on the disk."""
    if life._entry is not None:
        await life._entry.saved()
    await honest(life)


@in_kernel(Life, "_opening", breaks=("left_turn_is_stopped", "old_address_harms_nobody"))
def what_was_left_is_begun_again(honest: Honest, life: Life) -> tuple[Any, object]:
    """What was left is asked for once more, to be stopped then."""
    if isinstance(life.content, Orphan):
        content = life.content.turn_id.removesuffix(" again")
        return life.house.backend.start, Request(life.room, life.turn_id, content)
    found: tuple[Any, object] = honest(life)
    return found


@in_kernel(Rooms, "_end", breaks=("left_turn_is_stopped", "left_turn_tells_its_end"))
async def what_was_left_is_forgotten(honest: Honest, rooms: Rooms[Any], orphan: Orphan) -> None:
    """What was left is taken over, and nobody ends it."""


@in_kernel(Rooms, "_end", breaks=("left_turn_holds_its_room",))
async def what_was_left_holds_no_room(honest: Honest, rooms: Rooms[Any], orphan: Orphan) -> None:
    """What was left is ended, and its room is open meanwhile."""
    await honest(rooms, attrs.evolve(orphan, room=f"{orphan.room}, as it was"))


@in_kernel(Life, "_attaching", breaks=("foreign_address_tells_nothing",))
def what_cannot_be_taken_up_never_was(
    honest: Honest, life: Life, orphan: Orphan
) -> tuple[Any, object]:
    """What cannot be taken up is taken for what was never begun."""
    attach, address = honest(life, orphan)

    async def take_up(address: str) -> Any:
        try:
            return await attach(address)
        except BackendLost as error:
            raise BackendRefused(str(error)) from error

    return take_up, address
