"""Kernels that settle too early, too late, or not for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import attrs
import trio

from .... import _account
from ...._account import Account
from ...._calls import Call
from ...._ending import End, Ending, How
from ...._life import Life
from ...._records import Settlement, StopRequest, StopVerdict
from ...._turn import Turn
from ...._watch import Watch
from ....abc import Request
from .._saboteur import in_kernel
from .._wrap import long, tell_unasked

Honest = Callable[..., Any]


@in_kernel(
    Life,
    "_begin_stop",
    breaks=("settled_means_ended", "next_turn_waits", "leaving_waits", "teardown_waits"),
)
def the_asking_is_the_end(honest: Honest, life: Life) -> None:
    """A turn is stopped and gone as soon as somebody asks for it."""
    honest(life)
    if life._remote is not None:
        tell_unasked(life)
        life._note_end(End(How.CANCELLED), None)


@in_kernel(
    Life,
    "_do_cancel",
    breaks=("acknowledgement_is_no_end", "settled_means_ended"),
    needs=("ignore_cancels",),
)
async def the_acknowledgement_is_the_end(honest: Honest, life: Life) -> None:
    """A turn is stopped and gone as soon as cancel has returned."""
    await honest(life)
    if life._cancel is not None and life._cancel.ok and not life._life.over:
        life._note_end(End(How.CANCELLED), None)


@in_kernel(Life, "_advance", breaks=("end_needs_no_acknowledgement",))
def an_end_waits_for_the_acknowledgement(honest: Honest, life: Life) -> None:
    """A turn that has ended is settled when cancel has returned too."""
    if not (life._life.over and life._cancel is not None and life._cancel.alive):
        honest(life)


@in_kernel(Watch, "set_first", breaks=("hung_cancel_is_bounded", "late_reveal_is_undone"))
def a_stop_has_no_bound(honest: Honest, watch: Watch, who: Any, due: float) -> None:
    """A stop waits for the end for as long as anybody may look."""
    honest(watch, who, due + 10 * long(who.house.budget))


@in_kernel(Life, "_enter_phase_two", breaks=("hung_cancel_is_bounded",))
def half_the_bound_is_enough(honest: Honest, life: Life) -> None:
    """A stop without an end is given up when it is time for the forceful rung."""
    honest(life)
    life._conclude()


@in_kernel(Life, "_attempt", breaks=("refused_cancel_is_reported",))
async def errors_of_a_cancel_are_dropped(
    honest: Honest, life: Life, call: Call, *args: Any
) -> None:
    """An error of cancel is nobody's business."""
    before = life._errors
    await honest(life, call, *args)
    life._errors = before


@in_kernel(Life, "_attempt", breaks=("refused_cancel_is_reported",))
async def errors_of_a_cancel_are_raised(honest: Honest, life: Life, call: Call, *args: Any) -> None:
    """An error of cancel is raised in the block of the turn."""
    before = life._errors
    await honest(life, call, *args)
    if life._errors != before:
        life.gate.finish(life._errors[-1])


_settled: WeakKeyDictionary[Life, Turn] = WeakKeyDictionary()


def _remember(honest: Honest, turn: Turn) -> None:
    honest(turn)
    _settled[turn._life] = turn


def _follow_is_never_cancelled(honest: Honest, call: Call) -> None:
    if call.name != "follow":
        honest(call)


@in_kernel(
    Life,
    "_note_end",
    (Call, "give_up", _follow_is_never_cancelled),
    (Turn, "note_settled", _remember),
    breaks=("unconfirmed_is_final",),
)
def a_late_end_rewrites_the_ending(
    honest: Honest, life: Life, end: End | None, error: BaseException | None
) -> None:
    """An end that comes after the settlement makes another settlement."""
    honest(life, end, error)
    if end is not None and life.settlement is not None and life in _settled:
        late = attrs.evolve(life.settlement, ending=Ending.STOPPED, gone=True)
        _settled[life].settlement = late


@in_kernel(Watch, "report", breaks=("unconfirmed_is_final",))
def observers_are_told_twice(honest: Honest, watch: Watch, settlement: Settlement) -> None:
    """Observers are told of each settlement twice."""
    honest(watch, settlement)
    honest(watch, settlement)


@in_kernel(Life, "_make_request", breaks=("fresh_session_after_unconfirmed",))
def previous_is_not_told(honest: Honest, life: Life) -> Request[object]:
    """A start is not told that the turn before it may be alive."""
    request: Request[object] = honest(life)
    return attrs.evolve(request, previous=None)


@in_kernel(Life, "_reveal", breaks=("fresh_session_after_unconfirmed",))
def previous_is_told_for_ever(honest: Honest, life: Life, remote: object) -> None:
    """Each start is told of the turn that may be alive, also when one has answered since."""
    door: Any = life.door
    previous = door.previous
    honest(life, remote)
    door.previous = previous


@in_kernel(_account, "judge", breaks=("completion_wins", "left_turn_tells_its_end"))
def whoever_asks_has_stopped_it(honest: Honest, **facts: Any) -> Any:
    """A turn that was asked to stop is stopped, also where it completed."""
    verdict = honest(**facts)
    if facts["asked"] and verdict.ending is Ending.FINISHED:
        verdict.ending = Ending.STOPPED
    return verdict


@in_kernel(Turn, "ask", breaks=("finished_turn_is_told_nothing",))
def a_late_stop_rewrites_the_ending(honest: Honest, turn: Turn, request: Any) -> Any:
    """A stop that finds the turn over makes a stopped turn of it."""
    verdict = honest(turn, request)
    if turn.settlement is not None and turn.settlement.ending is Ending.FINISHED:
        turn.settlement = attrs.evolve(turn.settlement, ending=Ending.STOPPED)
    return verdict


@in_kernel(Turn, "ask", breaks=("finished_turn_is_told_nothing",))
def a_late_stop_leaves_the_body(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """A stop that finds the turn over lets its body go on."""
    if turn.settlement is not None and not turn._left:
        return StopVerdict.ASKED
    verdict: StopVerdict = honest(turn, request)
    return verdict


@in_kernel(Turn, "ask", breaks=("leaving_waits", "timeout_is_a_stop"))
def every_stop_is_of_the_same_kind(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """Whether somebody asked, left or was cancelled is forgotten."""
    verdict: StopVerdict = honest(turn, attrs.evolve(request, kind="stop"))
    return verdict


@in_kernel(Account, "_make_settlement", breaks=("settled_means_ended",))
def nobody_notes_when_it_ended(honest: Honest, life: Life, *facts: Any) -> Settlement:
    """When the work ended is not noted."""
    settlement: Settlement = honest(life, *facts)
    return attrs.evolve(settlement, ended_at=None)


@in_kernel(Account, "_make_settlement", breaks=("settled_means_ended",))
def nobody_notes_what_shows_it(honest: Honest, life: Life, *facts: Any) -> Settlement:
    """What shows that the work is over is not noted."""
    settlement: Settlement = honest(life, *facts)
    return attrs.evolve(settlement, proof=None)


@in_kernel(Life, "_note_sent", breaks=("settlement_has_its_times",))
def nobody_notes_when_it_was_sent(honest: Honest, life: Life) -> None:
    """When the far end was told is not noted."""


@in_kernel(Life, "_attempt", breaks=("settlement_has_its_times",), needs=("hold_acknowledgements",))
async def the_answer_is_the_sending(honest: Honest, life: Life, call: Call, *args: Any) -> None:
    """When the far end has answered is noted as when it was told."""
    await honest(life, call, *(lambda: None for _ in args))
    if args and call.ok:
        life._note_sent()


@in_kernel(Account, "_look_back", breaks=("hung_cancel_is_bounded",))
def the_asking_is_acknowledged(honest: Honest, life: Life) -> None:
    """When the stop was asked for is noted as when it was acknowledged."""
    honest(life)
    life._acked_at = life.since


def _phase_two_of_its_own(honest: Honest, life: Life) -> None:
    life.phase = 2
    life.house.watch.set_later(life, trio.current_time() + life.house.budget.kill_within)


@in_kernel(
    Life, "_reveal", (Life, "_enter_phase_two", _phase_two_of_its_own), breaks=("budget_is_one",)
)
def the_bound_begins_at_the_reveal(honest: Honest, life: Life, remote: object) -> None:
    """The wait for the end has a bound of its own, from the reveal on."""
    honest(life, remote)
    if life.since is not None:
        due = trio.current_time() + life.house.budget.cancel_within
        life.house.watch.set_later(life, due)
