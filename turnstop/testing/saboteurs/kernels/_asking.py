"""Kernels whose stop does not reach the work, or not once, or not at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from .... import _account, _life
from ...._life import Life
from ...._records import StopRequest, StopVerdict
from ...._rooms import Rooms
from ...._turn import Turn
from .._saboteur import in_kernel
from .._wrap import long, tell_unasked

Honest = Callable[..., Any]


@in_kernel(
    Life,
    "_do_cancel",
    breaks=(
        "stop_ends_the_work",
        "stop_is_told_at_once",
        "early_stop_reaches_the_work",
        "timeout_is_a_stop",
        "error_in_the_body_is_a_stop",
        "lost_turn_is_still_told",
    ),
)
async def the_stop_is_not_told(honest: Honest, life: Life) -> None:
    """A stop waits for the end and tells nobody."""


@in_kernel(Life, "_do_cancel", breaks=("stop_is_told_at_once",))
async def the_stop_is_told_when_the_body_is_out(honest: Honest, life: Life) -> None:
    """The far end is told once the body has unwound."""
    turn: Any = life.block
    while turn._leaver is None and life.settlement is None:  # noqa: ASYNC110  nobody signals it
        await trio.sleep(0.01)
    await honest(life)


@in_kernel(Life, "_reveal", breaks=("early_stop_reaches_the_work",))
def an_early_stop_is_forgotten(honest: Honest, life: Life, remote: object) -> None:
    """A stop that came before the start was answered is not told at the reveal."""
    since, life.since = life.since, None
    honest(life, remote)
    life.since = since


@in_kernel(Life, "_begin_stop", breaks=("early_stop_reaches_the_work",))
def an_early_stop_settles(honest: Honest, life: Life) -> None:
    """A stop that comes before the start is answered settles the turn, as if nothing began."""
    honest(life)
    if life._remote is None and life.settlement is None:
        life._settle()


@in_kernel(Turn, "ask", breaks=("stop_is_told_once",))
def every_stop_is_the_first(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """A stop that joins another says that it was the one that asked."""
    verdict: StopVerdict = honest(turn, request)
    return StopVerdict.ASKED if verdict is StopVerdict.JOINED else verdict


@in_kernel(Turn, "ask", breaks=("stop_is_told_once",), needs=("refuse_cancels",))
def every_stop_is_told(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """A stop that joins another tells the far end again."""
    verdict: StopVerdict = honest(turn, request)
    if verdict is StopVerdict.JOINED:
        tell_unasked(turn._life)
    return verdict


@in_kernel(Rooms, "stop", breaks=("settlement_has_its_times",))
def reasons_are_not_kept(honest: Honest, rooms: Rooms[Any], room: str, **_: str) -> Any:
    """Who asks for a stop, and why, is forgotten."""
    return honest(rooms, room)


@in_kernel(Turn, "ask", breaks=("stop_in_the_queue_sends_nothing",))
def the_queue_hears_no_stop(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """A turn that waits for its room is not stopped."""
    waits = turn._door is not None and turn._door.holder is not turn
    if waits and request.kind == "stop":
        return StopVerdict.ASKED
    verdict: StopVerdict = honest(turn, request)
    return verdict


@in_kernel(Turn, "__aenter__", breaks=("stop_in_the_queue_sends_nothing",))
async def a_stopped_waiter_begins(honest: Honest, turn: Turn) -> Turn:
    """A turn that was stopped in the queue is sent when its room is free."""
    life = turn._life

    async def send() -> None:
        with trio.move_on_after(long(life.house.budget)):
            remote = await life.house.backend.start(life._make_request())
            await remote.follow(life.gate)

    await honest(turn)
    if turn._halted:
        life.begin()
        life._spawn(send, "sent")
    return turn


@in_kernel(Turn, "ask", breaks=("finished_turn_is_told_nothing",), needs=("refuse_cancels",))
def a_stop_is_told_after_the_end(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """A stop that finds the turn over tells the far end all the same."""
    verdict: StopVerdict = honest(turn, request)
    if turn.settlement is not None and turn._life._cancel is None:
        tell_unasked(turn._life)
    return verdict


@in_kernel(_account, "judge", breaks=("refused_start_is_no_turn",))
def a_refused_start_may_have_begun(honest: Honest, **facts: Any) -> Any:
    """A start that was refused is taken for one that may have begun."""
    return honest(**{**facts, "revealed": True})


@in_kernel(_account, "judge", breaks=("late_reveal_is_undone",))
def a_start_without_an_answer_is_none(honest: Honest, **facts: Any) -> Any:
    """A start that was not answered within the bound is taken for one that never was."""
    return honest(**{**facts, "began": facts["revealed"] or facts["error"] is not None})


@in_kernel(_life, "unprotected", breaks=("one_turn_is_one_request",), needs=("hold_starts",))
async def a_slow_start_is_repeated(honest: Honest, fn: Honest, *args: Any) -> Any:
    """A start that takes longer than half a second is tried again."""
    if fn.__name__ == "start":
        with trio.move_on_after(0.5):
            return await honest(fn, *args)
    return await honest(fn, *args)
