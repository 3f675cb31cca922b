"""Scenarios A1-A30 and races X1-X21 of the asyncio peer, in this kernel's terms.

Void since their notions are gone: A18, A22, A25. What is not here by its number is tested under
the sentence that it became.
"""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import (
    BackendLost,
    BackendRefused,
    Ending,
    Settlement,
    StopBudget,
    StopVerdict,
    Turn,
    open_rooms,
)

from .backend import CANCELLED, COMPLETED, Act, Recorder, Remote, ending, hang, occupy

BUDGET = StopBudget(4, 2)


def settled(turn: Turn) -> Settlement:
    assert turn.settlement is not None
    return turn.settlement


async def test_a1_x1_a_stop_without_a_turn_leaves_no_record() -> None:
    seen: list[Settlement] = []
    backend = Recorder()
    async with open_rooms(backend, observers=[seen.append]) as rooms:
        assert rooms.stop("a").verdict is StopVerdict.NOTHING
        await wait_all_tasks_blocked()
    assert (seen, backend.log) == ([], [])


async def test_a2_an_owner_cancelled_means_one_cancel_and_the_owner_ends_cancelled() -> None:
    backend = Recorder(cancel=ending(takes=1))
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1) as scope:
            await occupy(turn)
        assert scope.cancelled_caught
    assert backend.at("cancel") == [1]


async def test_a3_x9_every_way_to_ask_at_once_is_one_call() -> None:
    backend = Recorder(cancel=ending(takes=1))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x", turn_id="t")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        for _ in range(2):
            turn.stop()
            rooms.stop("a")
            rooms.stop("a", turn_id="t")
            rooms.stop_all()
            nursery.cancel_scope.cancel()
    assert backend.at("cancel") == [0]


async def test_a4_x2_x4_a_stop_before_the_reveal_is_told_at_the_reveal_and_waited_for() -> None:
    go = trio.Event()
    backend = Recorder(start=Act(hold=go), cancel=ending(takes=1))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(1)
        receipt = turn.stop()
        assert rooms.statistics().stopping == 1
        await trio.sleep(1)
        assert turn.settlement is None
        go.set()
        (found,) = await receipt.settled()
        assert (found.settled_at, found.ending) == (3, Ending.STOPPED)


async def test_a5_a_turn_that_ends_before_it_was_revealed_is_told_nothing() -> None:
    backend = Recorder(start=Act(takes=2, raises=BackendRefused("busy")))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(1)
        turn.stop()
    assert (turn.ending, backend.calls) == (Ending.UNSTARTED, ["start"])


async def test_a6_x3_start_goes_on_though_its_owner_is_cancelled_and_is_told_once() -> None:
    backend = Recorder(start=Act(takes=3), cancel=ending())
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1) as scope:
            await occupy(turn)
        assert scope.cancelled_caught
    assert (backend.at("start left"), backend.at("cancel")) == ([3], [3])
    found = settled(turn)
    assert (found.asked_at, found.sent_at, found.settled_at) == (1, 3, 3)
    assert found.request is not None
    assert (found.request.kind, found.ending) == ("cancelled", Ending.STOPPED)


async def test_a7_x5_start_that_raises_after_the_owner_was_cancelled_is_settled_at_once() -> None:
    lost = BackendLost("no answer")
    backend = Recorder(start=Act(takes=3, raises=lost))
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1) as scope:
            await occupy(turn)
        assert scope.cancelled_caught
    found = settled(turn)
    assert (found.settled_at, found.errors, backend.calls) == (3, (lost,), ["start"])
    assert found.ending is Ending.UNCONFIRMED


async def test_a9_x6_a_start_slower_than_the_budget_is_said_to_be_unconfirmed() -> None:
    backend = Recorder(start=Act(stubborn=20), cancel=ending())
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1):
            await occupy(turn)
        assert trio.current_time() == 7
        assert settled(turn).ending is Ending.UNCONFIRMED
    # And what it started is not lost: it is told as soon as it can be named.
    assert backend.at("cancel") == [20]


async def test_a10_a_receipt_comes_back_only_when_the_revealed_turn_has_settled() -> None:
    backend = Recorder(start=Act(takes=2), cancel=ending(takes=1))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        nursery.start_soon(occupy, rooms.turn("a", "x"))
        await trio.sleep(1)
        await rooms.stop("a").settled()
        assert trio.current_time() == 3


@pytest.mark.parametrize("when", ["over", "left"])
async def test_a11_x8_a_finished_turn_is_told_nothing(when: str) -> None:
    backend = Recorder(follow=Act(returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            await wait_all_tasks_blocked()
            if when == "over":
                rooms.stop("a")
        if when == "left":
            rooms.stop("a")
            turn.stop()
        await wait_all_tasks_blocked()
    assert backend.calls == ["start", "follow"]
    assert turn.ending is Ending.FINISHED


async def test_a12_x7_x14_the_next_turn_waits_for_a_stop_in_flight() -> None:
    backend = Recorder(cancel=ending(takes=3))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        first, second = rooms.turn("a", "x"), rooms.turn("a", "y", turn_id="second")
        nursery.start_soon(occupy, first)
        await wait_all_tasks_blocked()
        first.stop()
        nursery.start_soon(occupy, second)
        await trio.sleep(2.5)
        assert backend.at("start", "second") == []
        await trio.sleep(1)
        assert backend.at("start", "second") == [3]
        nursery.cancel_scope.cancel()


async def test_a13_x15_a_waiter_that_is_cancelled_leaves_the_stop_running_and_sends_nothing() -> (
    None
):
    backend = Recorder(cancel=ending(takes=3))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        first, second = rooms.turn("a", "x", turn_id="first"), rooms.turn("a", "y")
        nursery.start_soon(occupy, first)
        await wait_all_tasks_blocked()
        first.stop()
        with trio.move_on_after(1):
            await occupy(second)
        assert (first.settlement, second.ending) == (None, Ending.UNSTARTED)
        await trio.sleep(3)
        assert settled(first).settled_at == 3
    assert [turn for name, turn, _ in backend.log if name == "cancel"] == ["first"]


@pytest.mark.parametrize("sync", [False, True])
async def test_a14_a15_x11_x13_a_cancel_that_raises_is_seen_by_nobody_else(sync: bool) -> None:
    broken = ValueError("no such turn")
    backend = Recorder(cancel=Act(sync=broken) if sync else Act(raises=broken), kill=ending())
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1) as scope:
            await occupy(turn)
        assert scope.cancelled_caught
    found = settled(turn)
    # It is no end: the budget goes on, and kill follows.
    assert (found.errors, found.ending, found.settled_at) == ((broken,), Ending.KILLED, 5)


async def test_a16_a17_x11_x12_a_cancel_that_hangs_or_refuses_is_bounded_exactly() -> None:
    for act, survivors in ((hang(), 0), (Act(stubborn=100), 1)):
        backend = Recorder(cancel=act)
        async with open_rooms(backend, budget=BUDGET) as rooms:
            begun = trio.current_time()
            turn = rooms.turn("a", "x")
            with trio.move_on_after(1):
                await occupy(turn)
            assert trio.current_time() == begun + 7
            assert settled(turn).settled_at == begun + 7
            assert len(settled(turn).survivors) == survivors
            assert rooms.statistics().stragglers == survivors
        assert trio.current_time() == begun + (101 if survivors else 7)


async def test_a19_a_waiter_that_is_cancelled_leaves_the_stop() -> None:
    backend = Recorder(cancel=ending(takes=3))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await rooms.stop("a").settled()
        await trio.sleep(5)
        assert settled(turn).settled_at == 3


async def test_a20_a_stop_leaves_the_neighbour_alone() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        stopped, neighbour = rooms.turn("a", "x"), rooms.turn("b", "y")
        nursery.start_soon(occupy, stopped)
        nursery.start_soon(occupy, neighbour)
        await wait_all_tasks_blocked()
        rooms.stop("a")
        backend.cancel = ending()
        await wait_all_tasks_blocked()
        assert neighbour.settlement is None
        neighbour.stop()
        await wait_all_tasks_blocked()
        async with rooms.turn("b", "z", turn_id="z"):
            await wait_all_tasks_blocked()
        assert backend.at("start", "z") == [0]


async def test_a21_x18_turns_of_one_room_never_overlap_and_a_stop_reaches_its_own() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(occupy, rooms.turn("a", "x", turn_id=str(number)))
            await wait_all_tasks_blocked()
        for number in range(4):
            rooms.stop("a", turn_id=str(number))
            await trio.sleep(1)
    told = [(name, turn) for name, turn, _ in backend.log if name in ("start", "cancel")]
    assert told == [(name, str(n)) for n in range(4) for name in ("start", "cancel")]


async def test_a23_x17_x20_x21_cancelled_and_closed_in_one_step_is_told_and_waited_for() -> None:
    backend = Recorder(cancel=ending(takes=2))
    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            turns = [rooms.turn(room, "x") for room in "ab"]
            for turn in turns:
                nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
            turns[0].stop()
            nursery.cancel_scope.cancel()
        assert [settled(turn).ending for turn in turns] == [Ending.STOPPED] * 2
    assert (backend.at("cancel"), trio.current_time()) == ([0, 0], 2)


async def test_a24_a_body_that_raises_has_its_turn_stopped_and_its_error_leaves() -> None:
    backend = Recorder(cancel=ending(takes=1))
    mine = ValueError("mine")
    async with open_rooms(backend) as rooms:
        with pytest.raises(ValueError, match="mine") as caught:
            async with rooms.turn("a", "x") as turn:
                await wait_all_tasks_blocked()
                raise mine
        assert caught.value is mine
        assert (turn.ending, trio.current_time()) == (Ending.STOPPED, 1)


async def test_a26_a_cancel_may_find_out_for_itself_that_there_is_nothing_to_tell() -> None:
    told: list[str] = []

    class Flagged(Remote):
        async def cancel(self, sent: Any) -> None:
            self.finish(COMPLETED)

    backend = Recorder(make=Flagged)
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
    assert (settled(turn).sent_at, turn.ending, told) == (None, Ending.FINISHED, [])


async def test_a27_what_the_asker_has_in_its_context_does_not_reach_the_cancel() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []
    backend = Recorder(cancel=ending(notify=lambda: seen.append(variable.get())))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        variable.set("when the turn was made")
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        variable.set("the asker's")
        rooms.stop("a")
    assert seen == ["when the turn was made"]


async def test_a28_start_and_cancel_share_the_budget() -> None:
    backend = Recorder(start=Act(takes=4), cancel=hang(), kill=Act(takes=1, ends=CANCELLED))
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(1)
        turn.stop()
    assert (backend.at("cancel"), backend.at("kill")) == ([4], [5])
    assert (settled(turn).ending, settled(turn).settled_at) == (Ending.KILLED, 6)


async def test_a29_x10_x16_the_app_cancelled_during_a_stop_lets_it_finish_within_its_limit() -> (
    None
):
    backend = Recorder(cancel=ending(takes=3))
    with trio.move_on_after(2):
        async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
            turn = rooms.turn("a", "x")
            nursery.start_soon(occupy, turn)
            await trio.sleep(1)
            turn.stop("before")
            await trio.sleep_forever()
    found = settled(turn)
    assert (found.ending, found.settled_at, trio.current_time()) == (Ending.STOPPED, 4, 4)
    assert found.request is not None
    assert found.request.reason == "before"
    assert backend.at("cancel") == [1]


async def test_a30_the_record_of_a_timeout_around_a_start() -> None:
    backend = Recorder(start=Act(takes=2), cancel=Act(takes=0.5))
    backend.follow = Act(takes=2, returns=CANCELLED)
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1):
            await occupy(turn)
    found = settled(turn)
    assert found.request is not None
    assert found.request.kind == "cancelled"
    times = (found.asked_at, found.sent_at, found.acked_at, found.ended_at, found.settled_at)
    assert times == (1, 2, 2.5, 4, 4)


async def test_x19_two_stops_of_two_turns_in_one_room_are_both_waited_for() -> None:
    backend = Recorder(cancel=ending(takes=2))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        first, second = rooms.turn("a", "x"), rooms.turn("a", "y")
        nursery.start_soon(occupy, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(occupy, second)
        one = first.stop()
        await trio.sleep(3)
        other = second.stop()
        await one.settled()
        assert trio.current_time() == 3
        await other.settled()
        assert trio.current_time() == 5


async def test_an_app_that_is_cancelled_with_bodies_that_refuse_settles_and_waits_for_them() -> (
    None
):
    async def refuse() -> None:
        for _ in range(3):
            with trio.CancelScope(shield=True):
                await trio.sleep(10)

    backend = Recorder(cancel=ending(takes=1))
    with trio.move_on_after(1):
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            turns = [rooms.turn(room, "x") for room in "aab"]
            for turn in turns:
                nursery.start_soon(lambda turn=turn: occupy(turn, inside=refuse))
                await wait_all_tasks_blocked()
    assert [settled(turn).settled_at for turn in turns] == [2, 1, 2]
    assert len(backend.at("cancel")) == 2
    assert trio.current_time() == 30


async def test_a_body_that_swallows_its_cancellation_and_goes_on_hears_nothing_more() -> None:
    backend = Recorder(cancel=ending(takes=1))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            turn.stop()
            for _ in range(3):
                with pytest.raises(trio.Cancelled):
                    await turn.__anext__()
        assert trio.current_time() == 1
        assert turn.ending is Ending.STOPPED
