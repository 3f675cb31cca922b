"""Kernels that mix up who hears what, or whose stop it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import attrs

from ...._account import Account
from ...._admission import Door
from ...._errors import Silenced
from ...._gate import Gate
from ...._life import Life
from ...._records import StopRequest, StopVerdict
from ...._rooms import Rooms
from ...._turn import Turn
from ....abc import Request
from ....events import Ask, Event
from .._saboteur import in_kernel

Honest = Callable[..., Any]


@in_kernel(Gate, "finish", breaks=("every_word_is_heard",))
def the_end_drops_what_is_unread(
    honest: Honest, gate: Gate, error: BaseException | None = None
) -> None:
    """What was not read before the end is not heard."""
    gate._waiting = None
    honest(gate, error)


@in_kernel(Gate, "close", breaks=("nothing_is_heard_after_a_stop",))
def a_stop_leaves_the_gate_open(honest: Honest, gate: Gate) -> None:
    """What is said after the stop is heard."""
    gate._silence()


_spilt: WeakKeyDictionary[Door, list[Event]] = WeakKeyDictionary()


@in_kernel(Gate, "__call__", breaks=("late_words_stay_with_their_turn",))
def late_words_are_kept_for_the_next(honest: Honest, gate: Gate, event: Event) -> None:
    """What is said after the stop is heard in the room's next turn."""
    owner: Any = gate.owner
    spilt = _spilt.setdefault(owner.door, [])
    if gate._closed:
        spilt.append(event)
        return
    for late in (*spilt, event):
        honest(gate, late)
    spilt.clear()


@in_kernel(Life, "_make_request", breaks=("room_goes_on_after_a_stop",))
def sessions_are_not_kept(honest: Honest, life: Life) -> Request[object]:
    """The room's next turn is not told what it continues."""
    request: Request[object] = honest(life)
    return attrs.evolve(request, session=None)


@in_kernel(Account, "_look_back", breaks=("room_goes_on_after_a_stop",))
def sessions_end_with_their_turn(honest: Honest, life: Life) -> None:
    """A turn that ends by itself leaves nothing for the next to go on with."""
    honest(life)
    if life.since is None and life.door is not None:
        life.door.session = None


@in_kernel(Rooms, "_forget", breaks=("retired_room_begins_anew",))
async def a_retired_room_keeps_its_session(
    honest: Honest, rooms: Rooms[Any], room: str, session: object
) -> None:
    """A room goes on with its conversation after it was retired."""
    await honest(rooms, room, session)
    rooms._house.doors[room].session = session


_stopped: WeakSet[Door] = WeakSet()


async def _enter(honest: Honest, turn: Turn) -> Turn:
    await honest(turn)
    assert turn._door is not None
    if turn._door in _stopped:
        turn.stop()
    return turn


@in_kernel(
    Turn,
    "ask",
    (Turn, "__aenter__", _enter),
    breaks=("room_goes_on_after_a_stop", "repeated_end_ends_nothing_else"),
)
def a_stop_is_the_rooms(honest: Honest, turn: Turn, request: StopRequest) -> StopVerdict:
    """A stop is of the room: it stops the next turn too."""
    if turn._door is not None:
        _stopped.add(turn._door)
    verdict: StopVerdict = honest(turn, request)
    return verdict


@in_kernel(Rooms, "stop", breaks=("neighbours_are_untouched",))
def a_stop_is_of_every_room(honest: Honest, rooms: Rooms[Any], room: str, **_: Any) -> Any:
    """A stop of one room stops all of them."""
    return rooms.stop_all()


@in_kernel(Gate, "answer", breaks=("answers_reach_the_work",))
def answers_are_dropped(honest: Honest, gate: Gate, ask_id: str, reply: object) -> bool:
    """What a person answers is taken, and given to nobody."""
    return gate._asks is not None and ask_id in gate._asks


@in_kernel(Gate, "ask", breaks=("answers_reach_the_work",))
async def every_answer_is_consent(honest: Honest, gate: Gate, ask: Ask) -> object:
    """Whatever a person answers, the far end is told the first choice."""
    await honest(gate, ask)
    return (*ask.choices, "yes")[0]


@in_kernel(Gate, "ask", breaks=("stopped_approvals_are_answered",))
async def silence_is_consent(honest: Honest, gate: Gate, ask: Ask) -> object:
    """A question that nobody will answer any more is answered by its first choice."""
    try:
        return await honest(gate, ask)
    except Silenced:
        return (*ask.choices, "yes")[0]


@in_kernel(Gate, "_silence", breaks=("stopped_approvals_are_answered",))
def open_questions_stay_open(honest: Honest, gate: Gate) -> None:
    """Whoever asks a person is left waiting when the turn is stopped."""
