"""Kernels that do not bear what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import _account
from ...._admission import Door
from ...._calls import Reaping
from ...._ending import End, How
from ...._errors import BackendLost, BackendRefused
from ...._gate import Gate
from ...._life import Life
from ...._records import StopRequest
from ...._turn import Turn
from .._saboteur import in_kernel

Honest = Callable[..., Any]


@in_kernel(Gate, "finish", breaks=("failure_is_raised_once", "death_is_noticed"))
def failures_are_not_raised(honest: Honest, gate: Gate, error: BaseException | None = None) -> None:
    """A turn that fails looks to its reader like one that is over."""
    honest(gate, None)


@in_kernel(
    Gate,
    "take_error",
    breaks=("failure_ends_a_body_that_does_not_read",),
)
def failures_are_for_readers(honest: Honest, gate: Gate) -> BaseException | None:
    """A failure that no reader was given is not raised when the block is left."""
    error: BaseException | None = honest(gate)
    return error if gate._reading else None


@in_kernel(Gate, "take_error", breaks=("failure_is_raised_once",))
def failures_are_raised_again(honest: Honest, gate: Gate) -> BaseException | None:
    """A failure is given to whoever asks, and again when the block is left."""
    return gate._error


@in_kernel(
    Life, "_note_end_unasked", breaks=("failure_is_raised_once", "rooms_go_on_after_a_death")
)
def a_failure_closes_the_rooms(
    honest: Honest, life: Life, end: End | None, error: BaseException | None
) -> None:
    """After a turn has failed no other may be entered."""
    life.house.closing = error is not None
    honest(life, end, error)


@in_kernel(Turn, "halt", breaks=("failure_ends_a_body_that_does_not_read",))
def failures_wait_for_a_reader(honest: Honest, turn: Turn) -> None:
    """A body that does not read is not told that its turn has failed."""


@in_kernel(Life, "_note_end", breaks=("failure_stays_with_its_turn",))
def a_failure_stops_everybody(
    honest: Honest, life: Life, end: End | None, error: BaseException | None
) -> None:
    """A turn that fails stops the turns of all rooms."""
    honest(life, end, error)
    if error is not None or (end is not None and end.how is How.FAILED):
        for door in life.house.doors.values():
            if isinstance(door.holder, Turn) and door is not life.door:
                door.holder.ask(StopRequest("closing"))


@in_kernel(
    Door,
    "hand_over",
    breaks=("failure_is_raised_once", "rooms_go_on_after_a_death", "garbage_is_bounded"),
)
def a_failed_turn_keeps_its_room(honest: Honest, door: Door) -> None:
    """A turn that something was raised in does not let the next one in."""
    settlement = door.holder.settlement if isinstance(door.holder, Turn) else None
    if settlement is None or not settlement.errors:
        honest(door)


@in_kernel(Life, "_note_end", breaks=("death_ends_a_stop", "garbage_ends_no_stop"))
def an_error_after_a_stop_is_raised(
    honest: Honest, life: Life, end: End | None, error: BaseException | None
) -> None:
    """What follow raises is raised in the block also after a stop."""
    if error is not None and life.since is not None:
        life.gate.finish(error)
    honest(life, end, error)


@in_kernel(Life, "_note_end", breaks=("lost_connection_is_no_end",))
def an_exception_is_an_end(
    honest: Honest, life: Life, end: End | None, error: BaseException | None
) -> None:
    """A turn whose follow raises is gone."""
    if end is None and life._remote is not None:
        end, error = End(How.FAILED, detail=str(error)), None
    honest(life, end, error)


@in_kernel(Life, "_note_end", breaks=("lost_connection_is_no_end",))
def what_is_lost_is_gone(
    honest: Honest, life: Life, end: End | None, error: BaseException | None
) -> None:
    """A turn whose connection is lost is gone with it."""
    if isinstance(error, BackendLost) and not error.gone:
        error = BackendLost(str(error), gone=True)
    honest(life, end, error)


@in_kernel(_account, "judge", breaks=("lost_start_is_no_refusal",))
def a_lost_start_never_was(honest: Honest, **facts: Any) -> Any:
    """A start that was lost, and may have begun, is taken for one that was refused."""
    return honest(**{**facts, "error": _as_refusal(facts)})


@in_kernel(_account, "judge", breaks=("lost_start_is_no_refusal",))
def a_stopped_start_that_is_lost_never_was(honest: Honest, **facts: Any) -> Any:
    """A start that was lost after a stop is taken for one that was refused."""
    return honest(**{**facts, "error": _as_refusal(facts) if facts["asked"] else facts["error"]})


def _as_refusal(facts: dict[str, Any]) -> Any:
    lost = isinstance(facts["error"], BackendLost) and not facts["revealed"]
    return BackendRefused(str(facts["error"])) if lost else facts["error"]


@in_kernel(Life, "_conclude", breaks=("leftovers_are_swept",))
def nobody_looks_for_leftovers(honest: Honest, life: Life) -> None:
    """What a stopped turn leaves is not looked for."""
    life._verdict = life._judge()
    life._wrap_up()


@in_kernel(Reaping, "run", breaks=("leftovers_are_swept",))
async def leftovers_are_only_listed(honest: Honest, reaping: Reaping) -> None:
    """What a stopped turn leaves is named and stays alive."""
    reaping.sweep = False
    await honest(reaping)
