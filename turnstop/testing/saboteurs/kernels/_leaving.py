"""Kernels whose blocks and rooms are left too early, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from ...._admission import Door
from ...._life import Life
from ...._records import StopRequest, StopVerdict
from ...._turn import Turn
from ...._watch import Watch
from .._saboteur import in_kernel
from .._wrap import long

Honest = Callable[..., Any]


def _leave(turn: Turn, exc: tuple[Any, ...]) -> bool:
    """Leave the block in this step, and let the room go."""
    absorbed = turn._body.__exit__(*exc)
    assert turn._door is not None
    turn._house.leave(turn._door, turn)
    return absorbed


@in_kernel(
    Turn,
    "__aexit__",
    breaks=("leaving_waits", "next_turn_waits", "timeout_is_a_stop", "error_in_the_body_is_a_stop"),
)
async def leaving_does_not_wait(honest: Honest, turn: Turn, *exc: Any) -> bool:
    """Leaving the block stops the turn and does not wait for it."""
    turn.ask(StopRequest("left"))
    return _leave(turn, exc)


@in_kernel(
    Turn,
    "__aexit__",
    breaks=("leaving_waits", "timeout_is_a_stop", "error_in_the_body_is_a_stop"),
)
async def leaving_is_no_stop(honest: Honest, turn: Turn, *exc: Any) -> bool:
    """Leaving the block stops nothing: the turn goes on."""

    async def stop_for_decency() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(long(turn._house.budget))
        turn.ask(StopRequest("left"))

    turn._life._spawn(stop_for_decency, "decency")
    return _leave(turn, exc)


@in_kernel(Turn, "__aexit__", breaks=("error_in_the_body_is_a_stop",))
async def an_error_leaves_as_another(honest: Honest, turn: Turn, *exc: Any) -> bool:
    """A body's error leaves its block as an error of the turn."""
    absorbed: bool = await honest(turn, *exc)
    if isinstance(exc[1], Exception):
        raise RuntimeError(f"turn {turn.turn_id} was stopped") from exc[1]
    return absorbed


@in_kernel(Door, "take_nowait", breaks=("next_turn_waits", "stop_in_the_queue_sends_nothing"))
def nobody_waits_for_a_room(honest: Honest, door: Door, guest: Any) -> bool:
    """A room is given to whoever comes."""
    door.holder = guest
    return True


@in_kernel(Turn, "ask", breaks=("next_turn_waits",))
def a_stop_opens_the_room(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """The room is handed over when the stop is asked for."""
    verdict: StopVerdict = honest(turn, request)
    if turn._door is not None and turn._door.holder is turn:
        turn._door.hand_over()
    return verdict


@in_kernel(Watch, "run", breaks=("teardown_waits",))
async def a_shutdown_waits_for_bodies(honest: Honest, watch: Watch, shut: Honest) -> None:
    """An application that is cancelled tells the far end when the bodies have unwound."""
    await honest(watch, lambda: None)


@in_kernel(Life, "begin", breaks=("teardown_waits",), needs=("hold_acknowledgements",))
def an_outer_cancel_ends_the_follow(honest: Honest, life: Life) -> None:
    """A cancellation from outside reaches the task that follows the turn to its end."""
    life._life.scope.shield = False
    honest(life)
