"""The bound: one budget from the asking, three phases, and nobody waits for a task to finish."""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import BackendLost, BackendRefused, Ending, Settlement, StopBudget, Turn, open_rooms

from .backend import CANCELLED, COMPLETED, Act, Recorder, Remote, ending, hang, occupy

BUDGET = StopBudget(cancel_within=4, kill_within=2)


async def stopped(backend: Recorder, **options: Any) -> Settlement:
    """One turn that is stopped at 1, and its settlement."""
    async with open_rooms(backend, budget=BUDGET, **options) as rooms:
        turn = rooms.turn("a", "x", turn_id="t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(occupy, turn)
            await trio.sleep(1)
            turn.stop()
        assert turn.settlement is not None
        assert turn.settlement.settled_at == trio.current_time()
    return turn.settlement


async def test_phase_one_ends_at_cancel_within_and_kill_begins() -> None:
    backend = Recorder(cancel=hang(), kill=ending(takes=1))
    found = await stopped(backend)
    assert (backend.at("cancel"), backend.at("cancel left")) == ([1], [5])
    assert (backend.at("kill"), found.settled_at) == ([5], 6)
    assert found.ending is Ending.KILLED


async def test_the_wait_for_the_reveal_and_cancel_and_the_end_share_phase_one() -> None:
    backend = Recorder(start=Act(takes=3), cancel=Act(takes=1), kill=Act())
    found = await stopped(backend)
    assert (backend.at("cancel"), backend.at("kill")) == ([3], [5])
    assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)


async def test_cancel_that_returned_leaves_the_rest_of_phase_one_to_the_end() -> None:
    backend = Recorder(cancel=Act(takes=1), kill=Act())
    found = await stopped(backend)
    assert backend.at("kill") == [5]
    assert found.acked_at == 2


@pytest.mark.parametrize("kill", [None, Act(), Act(takes=100)])
async def test_phase_two_ends_with_or_without_a_kill(kill: Act | None) -> None:
    found = await stopped(Recorder(cancel=hang(), kill=kill))
    assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)
    assert (found.gone, found.proof) == (False, None)


async def test_phase_two_begins_early_once_follow_has_raised_and_cancel_has_returned() -> None:
    backend = Recorder(cancel=Act(takes=1), kill=hang())
    backend.follow = Act(takes=1.5, raises=BackendLost("broken"))
    found = await stopped(backend)
    assert backend.at("kill") == [2]
    # And ends where it always does.
    assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)
    assert backend.at("kill left") == [7]


async def test_a_reveal_in_phase_two_is_cancelled_and_killed_once_cancel_has_returned() -> None:
    backend = Recorder(start=Act(takes=5.5), cancel=Act(sent=False, takes=0.5), kill=ending())
    found = await stopped(backend)
    assert (backend.at("cancel"), backend.at("kill")) == ([5.5], [6])
    assert (found.ending, found.settled_at) == (Ending.KILLED, 6)


async def test_a_reveal_in_phase_two_is_killed_once_cancel_was_sent() -> None:
    backend = Recorder(start=Act(takes=5.5), cancel=hang(), kill=ending(takes=1))
    found = await stopped(backend)
    assert (backend.at("cancel"), backend.at("kill")) == ([5.5], [5.5])
    assert (found.ending, found.settled_at) == (Ending.KILLED, 6.5)


async def test_a_reveal_in_phase_two_whose_cancel_ends_it_is_stopped() -> None:
    backend = Recorder(start=Act(takes=5.5), cancel=ending(), kill=None)
    found = await stopped(backend)
    assert (found.ending, found.settled_at) == (Ending.STOPPED, 5.5)


async def test_a_reveal_in_phase_two_with_nothing_that_works_ends_with_the_phase() -> None:
    backend = Recorder(start=Act(takes=5.5), cancel=hang(), kill=None)
    found = await stopped(backend)
    assert (backend.at("cancel"), found.settled_at) == ([5.5], 7)
    assert found.ending is Ending.UNCONFIRMED


async def test_start_is_cancelled_at_the_end_of_phase_two_and_is_unconfirmed() -> None:
    undone = []
    backend = Recorder(start=Act(takes=100, undo=lambda: undone.append(trio.current_time())))
    found = await stopped(backend)
    assert undone == [7]
    assert (found.ending, found.gone, found.settled_at) == (Ending.UNCONFIRMED, False, 7)
    assert found.survivors == ()


async def test_a_start_that_refuses_once_cancelled_is_unconfirmed_and_never_unstarted() -> None:
    class Refuses(Recorder):
        async def start(self, request: Any) -> Any:
            try:
                await trio.sleep(100)
            finally:
                raise BackendRefused("too late")

    found = await stopped(Refuses())
    assert (found.ending, found.gone, found.settled_at) == (Ending.UNCONFIRMED, False, 7)


async def test_a_start_that_refuses_in_phase_two_is_unstarted() -> None:
    found = await stopped(Recorder(start=Act(takes=5.5, raises=BackendRefused("busy"))))
    assert (found.ending, found.settled_at) == (Ending.UNSTARTED, 5.5)


async def test_leftovers_and_sweep_share_kill_within_after_the_end() -> None:
    backend = Recorder(leftovers=Act(takes=1, returns=["sh"]), sweep=Act(takes=100))
    found = await stopped(backend)
    assert (backend.at("leftovers"), backend.at("sweep")) == ([1], [2])
    assert (backend.at("sweep left"), found.settled_at) == ([3], 3)
    assert (found.ending, found.survivors) == (Ending.STOPPED, ("sh",))
    assert (found.clean, found.errors) == (False, ())


async def test_a_cancel_that_never_answers_does_not_live_on_while_leftovers_are_swept() -> None:
    backend = Recorder(cancel=hang(), leftovers=Act(takes=1, returns=["sh"]))
    backend.follow = Act(takes=2, returns=CANCELLED)
    found = await stopped(backend)
    assert (backend.at("cancel left"), backend.at("leftovers")) == ([2], [2])
    assert (found.ending, found.settled_at, found.acked_at) == (Ending.STOPPED, 3, None)


async def test_leftovers_are_swept_and_the_turn_is_clean() -> None:
    backend = Recorder(leftovers=Act(returns=["sh", "sleep"]))
    found = await stopped(backend)
    assert backend.swept == [["sh", "sleep"]]
    assert found.survivors == ()
    assert found.clean


async def test_what_sweep_says_is_still_alive_survives() -> None:
    backend = Recorder(leftovers=Act(returns=["sh", "sleep"]), sweep=Act(returns=["sleep"]))
    found = await stopped(backend)
    assert (found.survivors, found.clean, found.gone) == (("sleep",), False, True)


async def test_nothing_is_swept_where_nothing_is_left() -> None:
    backend = Recorder(leftovers=Act(returns=[]))
    found = await stopped(backend)
    assert backend.calls == ["start", "follow", "cancel", "leftovers"]
    assert found.survivors == ()


async def test_without_sweep_leftovers_are_listed_and_left_alive() -> None:
    backend = Recorder(leftovers=Act(returns=["sh"]))
    found = await stopped(backend, sweep=False)
    assert backend.swept == []
    assert found.survivors == ("sh",)


async def test_leftovers_that_hang_are_cancelled_and_the_bound_is_the_sum_of_three() -> None:
    backend = Recorder(cancel=hang(), kill=hang(), leftovers=hang())
    found = await stopped(backend)
    assert (backend.at("leftovers"), backend.at("leftovers left")) == ([7], [9])
    assert (found.settled_at, found.ending) == (9, Ending.UNCONFIRMED)
    # Nobody could say what is left, and being cut off is no error.
    assert (found.survivors != (), found.errors) == (True, ())


async def test_leftovers_that_raise_end_up_in_the_errors() -> None:
    broken = ValueError("no process table")
    found = await stopped(Recorder(leftovers=Act(raises=broken)))
    assert found.errors == (broken,)
    assert (found.ending, found.settled_at) == (Ending.STOPPED, 1)
    assert found.survivors != ()


async def test_a_sweep_that_raises_leaves_them_all_as_survivors() -> None:
    broken = ValueError("not permitted")
    found = await stopped(Recorder(leftovers=Act(returns=["sh"]), sweep=Act(raises=broken)))
    assert (found.errors, found.survivors) == ((broken,), ("sh",))


@pytest.mark.parametrize("way", ["left", "closing", "failed", "stop"])
async def test_leftovers_are_looked_for_whoever_stopped_a_revealed_turn(way: str) -> None:
    backend = Recorder(leftovers=Act(returns=[]))
    backend.follow = Act(takes=1, raises=BackendLost("broken")) if way == "failed" else Act()
    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            turn = rooms.turn("a", "x")
            if way == "closing":
                nursery.start_soon(occupy, turn)
                await trio.sleep(1)
            elif way == "failed":
                with pytest.raises(BackendLost):
                    await occupy(turn)
            else:
                async with turn:
                    await trio.sleep(1)
                    if way == "stop":
                        turn.stop()
    assert backend.at("leftovers") == [1]


async def test_a_turn_that_ended_by_itself_is_not_searched_for_leftovers() -> None:
    backend = Recorder(follow=Act(returns=COMPLETED), leftovers=Act(returns=["sh"]))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            async for _ in turn:
                pass
        assert turn.settlement is not None
        assert turn.settlement.clean
    assert backend.at("leftovers") == []


async def test_a_turn_that_was_never_revealed_is_not_searched_for_leftovers() -> None:
    backend = Recorder(start=hang(), leftovers=Act(returns=["sh"]))
    found = await stopped(backend)
    assert found.settled_at == 7
    assert backend.at("leftovers") == []


@pytest.mark.parametrize(
    ("call", "when"), [("start", 7), ("follow", 7), ("cancel", 7), ("kill", 7), ("leftovers", 3)]
)
async def test_a_straggler_never_holds_up_the_settlement_and_is_named(
    call: str, when: float, caplog: pytest.LogCaptureFixture
) -> None:
    acts: dict[str, Any] = {"cancel": Act(), "kill": Act(), call: Act(stubborn=50)}
    if call == "leftovers":
        acts["cancel"] = ending()
    backend = Recorder(**acts)
    entered = []
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x", turn_id="t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(occupy, turn)
            await trio.sleep(1)
            turn.stop()
        backend.start_act = backend.follow = backend.cancel = backend.kill = Act()
        backend.leftovers = None
        found = turn.settlement
        assert found is not None
        assert found.settled_at == trio.current_time() == when
        assert any(call in name and "t" in name for name in found.survivors)
        assert not found.clean
        assert rooms.statistics().stragglers == 1
        # The room goes on.
        async with rooms.turn("a", "y", turn_id="next") as following:
            await wait_all_tasks_blocked()
            entered = backend.at("start", "next")
            backend.remote.finish(COMPLETED)
        assert entered == [when]
        assert following.ending is Ending.FINISHED
        assert rooms.statistics().stragglers == 1
    # Only the exit waits for it.
    begun = {"start": 0, "follow": 0, "cancel": 1, "kill": 5, "leftovers": 1}[call]
    assert trio.current_time() == begun + 50
    assert rooms.statistics().stragglers == 0
    named = [r for r in caplog.records if f"{call}()" in r.getMessage()]
    assert len([r for r in named if "has not returned" in r.getMessage()]) >= 1
    (line,) = (r.getMessage() for r in named if not r.getMessage().startswith("turn "))
    assert re.fullmatch(rf"{call}\(\) of turn \S+ has not returned: room '\S+' goes on .*", line)


async def test_a_follow_that_ends_late_though_cancelled_stays_a_straggler_until_then() -> None:
    backend = Recorder(cancel=Act(), follow=Act(stubborn=50, returns=CANCELLED))
    async with open_rooms(backend, budget=BUDGET) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
        found = turn.settlement
        assert rooms.statistics().stragglers == 1
        await trio.sleep_until(51)
        assert rooms.statistics().stragglers == 0
        assert turn.settlement is found
        assert backend.calls == ["start", "follow", "cancel"]


async def test_a_stubborn_cancel_does_not_hold_a_turn_whose_follow_has_ended() -> None:
    backend = Recorder(cancel=Act(stubborn=50), follow=Act(takes=2, returns=CANCELLED))
    found = await stopped(backend)
    assert (found.ending, found.settled_at) == (Ending.STOPPED, 2)
    assert any("cancel" in name for name in found.survivors)


async def test_a_stubborn_cancel_does_not_hold_up_kill() -> None:
    backend = Recorder(cancel=Act(stubborn=50), kill=ending(takes=1))
    found = await stopped(backend)
    assert backend.at("kill") == [5]
    assert (found.ending, found.settled_at) == (Ending.KILLED, 6)


async def test_a_stubborn_cancel_that_never_said_sent_does_not_hold_up_kill() -> None:
    backend = Recorder(cancel=Act(sent=False, stubborn=50), kill=ending(takes=1))
    found = await stopped(backend)
    assert backend.at("kill") == [5]
    assert (found.ending, found.settled_at) == (Ending.KILLED, 6)


async def test_a_stubborn_cancel_does_not_hold_up_kill_of_a_follow_that_raised() -> None:
    backend = Recorder(cancel=Act(stubborn=50), kill=Act())
    backend.follow = Act(takes=2, raises=BackendLost("broken"))
    found = await stopped(backend)
    assert backend.at("kill") == [5]
    assert (found.ending, found.settled_at) == (Ending.KILLED, 5)


async def late_reveal(backend: Recorder) -> Turn:
    """A turn whose start comes back at 20, long after its settlement at 7."""
    backend.start_act = Act(stubborn=20)
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x", turn_id="t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(occupy, turn)
            await trio.sleep(1)
            turn.stop()
        found = turn.settlement
        await trio.sleep(10)
        assert rooms.statistics().stragglers == 1
    assert found is turn.settlement
    assert found is not None
    assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)
    return turn


async def test_a_straggling_start_that_returns_a_turn_gets_one_cancel_and_one_kill() -> None:
    backend = Recorder(cancel=hang(), kill=hang())
    await late_reveal(backend)
    assert backend.calls == ["start", "cancel", "kill"]
    assert (backend.at("cancel"), backend.at("cancel left")) == ([20], [22])
    assert (backend.at("kill"), backend.at("kill left")) == ([22], [24])
    assert trio.current_time() == 24


async def test_a_late_cancel_and_kill_have_their_time_though_the_app_is_cancelled() -> None:
    backend = Recorder(start=Act(stubborn=20), cancel=hang(), kill=hang())
    with trio.move_on_after(1):
        async with open_rooms(backend, budget=BUDGET) as rooms:
            await occupy(rooms.turn("a", "x"))
    assert (backend.at("cancel"), backend.at("cancel left")) == ([20], [22])
    assert (backend.at("kill"), backend.at("kill left")) == ([22], [24])


async def test_the_errors_of_a_late_cancel_and_kill_are_logged_and_never_leave_the_kernel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Recorder(cancel=Act(raises=ValueError("one")), kill=Act(sync=ValueError("two")))
    await late_reveal(backend)
    assert backend.calls == ["start", "cancel", "kill"]
    raised = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert raised == ["one", "two"]


async def test_a_late_turn_without_a_kill_is_only_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Recorder()
    await late_reveal(backend)
    assert backend.calls == ["start", "cancel"]
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_stubborn_late_cancel_does_not_hold_up_the_late_kill() -> None:
    backend = Recorder(cancel=Act(stubborn=50), kill=Act())
    await late_reveal(backend)
    assert (backend.at("cancel"), backend.at("kill")) == ([20], [22])


async def test_a_stubborn_late_call_is_a_straggler_as_any_other() -> None:
    backend = Recorder(start=Act(stubborn=20), cancel=Act(stubborn=50), kill=Act())
    async with open_rooms(backend, budget=BUDGET) as rooms:
        async with rooms.turn("a", "x"):
            await trio.sleep(1)
        await trio.sleep_until(30)
        assert rooms.statistics().stragglers == 1
    assert trio.current_time() == 70
    assert rooms.statistics().stragglers == 0


async def test_a_start_that_swallows_its_cancellation_and_returns_at_once_is_still_told() -> None:
    class Swallows(Recorder):
        async def start(self, request: Any) -> Any:
            try:
                await trio.sleep(100)
            except trio.Cancelled:
                return self._reveal(request.turn_id)

    backend = Swallows(kill=Act())
    found = await stopped(backend)
    assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)
    assert (backend.at("cancel"), backend.at("kill")) == ([7], [7])


async def test_a_late_session_is_not_the_rooms() -> None:
    backend = Recorder(start=Act(stubborn=8), session="late")
    async with open_rooms(backend, budget=BUDGET) as rooms:
        async with rooms.turn("a", "x"):
            await trio.sleep(1)
        backend.start_act = Act()
        await trio.sleep(5)
        async with rooms.turn("a", "y"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].session is None


async def test_the_unconfirmed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    await stopped(Recorder(cancel=hang()))
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "is unconfirmed, its work may be alive" in caplog.text


async def test_a_budget_is_positive_and_finite_seconds() -> None:
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds"):
            StopBudget(cancel_within=wrong)
        with pytest.raises(ValueError, match="seconds"):
            StopBudget(kill_within=wrong)
    for worse in ("5", None, True):
        with pytest.raises(TypeError, match="seconds"):
            StopBudget(cancel_within=worse)  # type: ignore[arg-type]
    assert StopBudget() == StopBudget(5.0, 2.0)


async def test_the_budget_counts_from_the_first_asking_and_is_never_renewed() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(1)
        turn.stop()
        for _ in range(5):
            await trio.sleep(1)
            turn.stop()
            rooms.stop("a")
    assert turn.settlement is not None
    assert (turn.settlement.asked_at, turn.settlement.settled_at) == (1, 7)


async def test_ten_rooms_settle_in_the_time_of_one() -> None:
    backend = Recorder(cancel=hang(), kill=hang(), leftovers=hang())
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(occupy, rooms.turn(str(number), "x"))
        await trio.sleep(1)
        await rooms.stop_all().settled()
        assert trio.current_time() == 9


def jump() -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(0.5)


class Deaf(Remote):
    """Its follow comes back when the turn has ended, and not for being cancelled."""

    async def follow(self, emit: Any) -> Any:
        jump()
        with trio.CancelScope(shield=True):
            await self._over.wait()
        return self._end


@pytest.mark.parametrize("raises", [None, BackendLost("at once")])
async def test_a_turn_revealed_just_before_its_bound_is_told_though_the_bound_comes_first(
    raises: BackendLost | None,
) -> None:
    # The watcher and the canceller run in one pass, in either order: each comes up in twenty.
    for _ in range(20):
        backend = Recorder(start=Act(takes=6.75), follow=Act(notify=jump, raises=raises))
        async with open_rooms(backend, budget=BUDGET) as rooms:
            with trio.move_on_after(1):
                await occupy(rooms.turn("a", "x"))
        assert len(backend.at("cancel")) == 1


async def test_a_turn_revealed_just_before_its_bound_is_not_killed_when_telling_it_was_enough() -> (
    None
):
    for _ in range(20):
        backend = Recorder(start=Act(takes=6.75), make=Deaf, kill=Act())
        # It ends while it is still being told.
        end = partial(lambda made: made.remote.finish(CANCELLED), backend)
        backend.cancel = Act(sent=False, notify=end, takes=1)
        async with open_rooms(backend, budget=BUDGET) as rooms:
            with trio.move_on_after(1):
                await occupy(rooms.turn("a", "x"))
        assert backend.calls == ["start", "cancel"]
