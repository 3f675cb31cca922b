"""Kernels whose rooms wait for each other, or that reach beyond a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from .... import _life
from ...._calls import Reaping, offers
from ...._gate import Gate
from ...._life import Life
from ...._turn import Turn
from ....events import Event
from .._saboteur import in_kernel
from .._wrap import tell_unasked

Honest = Callable[..., Any]

_lock: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("the only one")


def _the_only_lock() -> trio.Lock:
    try:
        return _lock.get()
    except LookupError:
        _lock.set(trio.Lock())
        return _lock.get()


def _others(life: Life) -> list[Life]:
    """The turns of other rooms that are not settled."""
    holders = [door.holder for door in life.house.doors.values()]
    lives = [holder._life for holder in holders if isinstance(holder, Turn)]
    return [one for one in lives if one is not life and one.settlement is None]


@in_kernel(Life, "_do_cancel", breaks=("rooms_do_not_wait_for_each_other",))
async def stops_take_turns(honest: Honest, life: Life) -> None:
    """One stop at a time, over all rooms."""
    async with _the_only_lock():
        await honest(life)


@in_kernel(_life, "unprotected", breaks=("starts_do_not_wait_for_each_other",))
async def starts_take_turns(honest: Honest, fn: Honest, *args: Any) -> Any:
    """One start at a time, over all rooms."""
    if fn.__name__ != "start":
        return await honest(fn, *args)
    async with _the_only_lock():
        return await honest(fn, *args)


@in_kernel(Life, "_live", breaks=("rooms_do_not_wait_for_each_other",))
async def starts_wait_for_stops(honest: Honest, life: Life) -> None:
    """A turn begins when no other room's is being stopped."""
    while any(other.phase for other in _others(life)):  # noqa: ASYNC110  nobody signals it
        await trio.sleep(0.05)
    await honest(life)


@in_kernel(Gate, "__call__", breaks=("rooms_do_not_wait_for_each_other",), needs=("say",))
def words_wait_for_stops(honest: Honest, gate: Gate, event: Event) -> None:
    """What is said while another room's turn is being stopped is not heard."""
    # A turn that has left has none.
    owner: Any = getattr(gate, "owner", None)
    if owner is None or not any(other.phase for other in _others(owner)):
        honest(gate, event)


@in_kernel(Life, "_enter_phase_two", breaks=("force_stays_with_its_turn",))
def force_is_used_on_everybody(honest: Honest, life: Life) -> None:
    """When it is time for force, every turn is killed, and told where nothing kills."""
    honest(life)
    for other in _others(life):
        if offers(other._remote, "kill"):
            other._start_kill()
        else:
            tell_unasked(other)


@in_kernel(Life, "_do_reap", breaks=("leftovers_are_swept",))
async def everybodys_leftovers_are_swept(honest: Honest, life: Life, reaping: Reaping) -> None:
    """What any turn has left is ended with what the stopped one has."""
    for other in _others(life):
        await Reaping(other._remote, True).run()
    await honest(life, reaping)
