"""The block: the room is yours inside it, and leaving it means that the turn has settled."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from turnstop import Ending, StopBudget, StopVerdict, open_rooms
from turnstop.events import Text

from .backend import CANCELLED, COMPLETED, Act, Recorder, ending, hang, occupy, passes


async def test_the_turn_ends_and_the_block_is_left_as_finished() -> None:
    backend = Recorder(follow=Act(takes=3, returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x", turn_id="t") as turn:
            assert turn.settlement is None
            async for _ in turn:
                raise AssertionError("nothing was said")
        assert trio.current_time() == 3
        found = turn.settlement
        assert found is not None
        assert (found.ending, found.gone, found.clean) == (Ending.FINISHED, True, True)
        assert (found.room, found.turn_id, found.request) == ("a", "t", None)
        assert (found.asked_at, found.sent_at, found.acked_at) == (None, None, None)
        assert (found.ended_at, found.settled_at, found.asked_wall) == (3, 3, None)
    assert backend.calls == ["start", "follow"]


async def test_entering_returns_the_turn() -> None:
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        async with turn as entered:
            assert entered is turn


@pytest.mark.parametrize("way", ["end", "break", "error", "timeout", "stop", "app"])
async def test_leaving_for_any_reason_stops_the_turn_and_waits_until_it_is_settled(
    way: str,
) -> None:
    backend = Recorder(cancel=ending(takes=1.5))
    app = trio.CancelScope()
    left_at = math.nan
    with app:
        async with open_rooms(backend) as rooms:
            turn = rooms.turn("a", "x")
            with (
                pytest.raises(KeyError)
                if way == "error"
                else trio.move_on_after(2 if way == "timeout" else math.inf)
            ):
                try:
                    async with turn:
                        await trio.sleep(1)
                        if way == "error":
                            raise KeyError
                        if way == "stop":
                            turn.stop()
                        if way == "app":
                            app.cancel()
                        if way not in ("end", "break"):
                            await trio.sleep(5)
                finally:
                    left_at = trio.current_time()
                    assert turn.ending is Ending.STOPPED
    assert left_at == (3.5 if way == "timeout" else 2.5)
    assert backend.calls == ["start", "follow", "cancel"]


async def test_break_out_of_the_events_stops_the_turn() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.say(Text("one"))
            async for event in turn:
                assert event == Text("one")
                break
    assert turn.settlement is not None
    assert turn.settlement.request is not None
    assert turn.settlement.request.kind == "left"
    assert turn.ending is Ending.STOPPED


async def test_a_cancelled_leaver_waits_shielded_for_the_settlement() -> None:
    backend = Recorder(cancel=ending(takes=2))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with trio.CancelScope() as scope:
            async with turn:
                await wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
        assert trio.current_time() == 2
        assert turn.ending is Ending.STOPPED
        assert turn.settlement is not None
        assert turn.settlement.request is not None
        assert turn.settlement.request.kind == "cancelled"


async def test_a_leaver_cancelled_while_it_waits_goes_on_waiting() -> None:
    backend = Recorder(cancel=ending(takes=2))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with trio.move_on_after(1) as scope:
            async with turn:
                await wait_all_tasks_blocked()
        assert scope.cancelled_caught
        assert trio.current_time() == 2
        assert turn.ending is Ending.STOPPED


async def test_the_wait_of_the_leaver_is_bounded() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend, budget=StopBudget(3, 1)) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        assert trio.current_time() == 4
        assert turn.ending is Ending.UNCONFIRMED


async def test_no_function_takes_a_timeout_and_trios_own_bounds_a_turn() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        with pytest.raises(trio.TooSlowError):
            with trio.fail_after(7):
                async with rooms.turn("a", "x") as turn:
                    async for _ in turn:
                        pass
    assert trio.current_time() == 7
    assert turn.ending is Ending.STOPPED


async def test_the_room_stays_closed_until_the_block_has_left() -> None:
    backend = Recorder(follow=Act(takes=1, returns=COMPLETED))
    entered = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

        async def second() -> None:
            async with rooms.turn("a", "y"):
                entered.append(trio.current_time())

        async with rooms.turn("a", "x") as turn:
            nursery.start_soon(second)
            await trio.sleep(5)
            assert turn.ending is Ending.FINISHED
            assert entered == []
        await wait_all_tasks_blocked()
        assert entered == [5]


async def test_the_room_stays_closed_until_the_turn_is_settled() -> None:
    backend = Recorder(cancel=ending(takes=3))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        first, second = rooms.turn("a", "x", turn_id="1"), rooms.turn("a", "y", turn_id="2")
        nursery.start_soon(occupy, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(occupy, second)
        await wait_all_tasks_blocked()
        first.stop()
        await trio.sleep(2.9)
        assert backend.at("start", "2") == []
        await trio.sleep(1)
        assert backend.at("start", "2") == [3]
        nursery.cancel_scope.cancel()


async def test_a_body_that_shields_itself_holds_its_room_and_not_the_settlement() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

        async def shielded() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

        first, second = rooms.turn("a", "x"), rooms.turn("a", "y", turn_id="2")
        nursery.start_soon(lambda: occupy(first, inside=shielded))
        await wait_all_tasks_blocked()
        nursery.start_soon(occupy, second)
        await trio.sleep(1)
        (found,) = await first.stop().settled()
        assert (found.settled_at, found.ending) == (1, Ending.STOPPED)
        await trio.sleep(98)
        assert second.settlement is None
        assert backend.at("start", "2") == []
        await trio.sleep(2)
        assert backend.at("start", "2") == [100]
        nursery.cancel_scope.cancel()


async def test_rooms_do_not_wait_for_one_another() -> None:
    backend = Recorder(cancel=ending(takes=4))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        one, other = rooms.turn("a", "x"), rooms.turn("b", "y")
        nursery.start_soon(occupy, one)
        nursery.start_soon(occupy, other)
        await wait_all_tasks_blocked()
        rooms.stop("a")
        await wait_all_tasks_blocked()
        assert other.settlement is None
        assert "live" in repr(other)
        async with rooms.turn("c", "z"):
            await wait_all_tasks_blocked()
            assert trio.current_time() == 0
        assert trio.current_time() == 4
        assert other.settlement is None
        assert one.ending is Ending.STOPPED
        nursery.cancel_scope.cancel()


async def test_the_queue_is_first_come_first_served() -> None:
    backend = Recorder(follow=Act(takes=1, returns=COMPLETED))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        for number in range(5):

            async def one(name: str) -> None:
                async with rooms.turn("a", "x", turn_id=name) as turn:
                    async for _ in turn:
                        pass

            nursery.start_soon(one, str(number))
            await wait_all_tasks_blocked()
    assert [(turn, when) for name, turn, when in backend.log if name == "start"] == [
        (str(number), float(number)) for number in range(5)
    ]


async def test_the_leaver_hands_the_room_over_in_the_same_step() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        waiter = rooms.turn("a", "y", turn_id="waiter")
        async with rooms.turn("a", "x", turn_id="first"):
            nursery.start_soon(occupy, waiter)
            await wait_all_tasks_blocked()
        # No checkpoint since: a newcomer finds the room taken and the waiter goes first.
        newcomer = rooms.turn("a", "z", turn_id="newcomer")
        assert rooms.statistics().rooms == 1
        assert rooms.statistics().waiting == 0
        nursery.start_soon(occupy, newcomer)
        await wait_all_tasks_blocked()
        assert backend.at("start", "newcomer") == []
        assert waiter.settlement is None
        assert rooms.statistics().waiting == 1
        nursery.cancel_scope.cancel()


async def test_a_cancelled_waiter_removes_itself() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        waiter, last = rooms.turn("a", "y"), rooms.turn("a", "z", turn_id="last")
        async with rooms.turn("a", "x"):
            with trio.move_on_after(1):
                await passes(1)
                async with trio.open_nursery() as inner:
                    inner.start_soon(occupy, waiter)
                    await wait_all_tasks_blocked()
                    nursery.start_soon(occupy, last)
                    await wait_all_tasks_blocked()
                    assert rooms.statistics().waiting == 2
            assert rooms.statistics().waiting == 1
            assert waiter.ending is Ending.UNSTARTED
            assert waiter.settlement is not None
            assert waiter.settlement.settled_at == 1
            assert waiter.settlement.request is not None
            assert waiter.settlement.request.kind == "cancelled"
        await wait_all_tasks_blocked()
        assert backend.at("start", "last") == [1]
        nursery.cancel_scope.cancel()
    assert len(backend.at("start")) == 2


async def test_a_waiter_cancelled_in_the_pass_in_which_it_got_the_room_passes_it_on() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def cancelled() -> None:
            with scope:
                await occupy(rooms.turn("a", "y", turn_id="cancelled"))

        async with rooms.turn("a", "x"):
            nursery.start_soon(cancelled)
            await wait_all_tasks_blocked()
            nursery.start_soon(occupy, rooms.turn("a", "z", turn_id="last"))
            await wait_all_tasks_blocked()
        scope.cancel()  # in the same step as the hand-over
        await wait_all_tasks_blocked()
        assert backend.at("start", "cancelled") == []
        assert backend.at("start", "last") == [0]
        nursery.cancel_scope.cancel()


async def test_a_whole_queue_handed_over_and_cancelled_leaves_the_room_free() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with trio.open_nursery() as nursery:
            async with rooms.turn("a", "x"):
                for _ in range(5):
                    nursery.start_soon(occupy, rooms.turn("a", "y"))
                await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert rooms.statistics().rooms == 0
        async with rooms.turn("a", "z", turn_id="z"):
            await wait_all_tasks_blocked()
    assert backend.at("start", "z") == [0]
    assert len(backend.at("start")) == 2


async def test_a_turn_stopped_in_the_queue_is_settled_at_once_and_nothing_is_sent() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        waiter = rooms.turn("a", "y", turn_id="waiter")
        async with rooms.turn("a", "x"):
            nursery.start_soon(occupy, waiter)
            await wait_all_tasks_blocked()
            receipt = waiter.stop("why", "me")
            assert waiter.ending is Ending.UNSTARTED
            assert receipt.verdict is StopVerdict.ASKED
            assert waiter.settlement is not None
            assert waiter.settlement.gone
            assert waiter.settlement.proof is None
            assert waiter.settlement.request is not None
            assert (waiter.settlement.request.reason, waiter.settlement.request.source) == (
                "why",
                "me",
            )
            assert waiter.settlement.asked_at == waiter.settlement.settled_at == 0
    assert backend.at("start", "waiter") == []


async def test_a_turn_stopped_in_the_queue_still_enters_in_its_turn_and_cancelled() -> None:
    backend = Recorder()
    ran = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        waiter = rooms.turn("a", "y")

        async def body() -> None:
            async with waiter:
                assert trio.current_effective_deadline() == -math.inf
                ran.append("entered")
                await trio.lowlevel.checkpoint()
                ran.append("went on")

        async with rooms.turn("a", "x"):
            nursery.start_soon(body)
            await wait_all_tasks_blocked()
            waiter.stop()
            await wait_all_tasks_blocked()
            assert ran == []
    assert ran == ["entered"]


async def test_a_stop_in_the_step_of_the_hand_over_starts_nothing() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        waiter = rooms.turn("a", "y", turn_id="waiter")
        async with rooms.turn("a", "x"):
            nursery.start_soon(occupy, waiter)
            await wait_all_tasks_blocked()
        assert rooms.stop("a").turn_ids == ("waiter",)
        assert waiter.ending is Ending.UNSTARTED
    assert backend.at("start", "waiter") == []


async def test_a_stop_in_the_pass_of_entering_starts_nothing_or_stops_it() -> None:
    backend = Recorder()
    seen = set()
    async with open_rooms(backend) as rooms:
        for number in range(40):
            async with trio.open_nursery() as nursery:
                turn = rooms.turn("a", "x", turn_id=str(number))
                nursery.start_soon(occupy, turn)
                while rooms.statistics().live == 0:
                    await trio.lowlevel.checkpoint()
                turn.stop()
            seen.add(turn.ending)
            begun = turn.ending is Ending.STOPPED
            assert len(backend.at("start", str(number))) == begun
            assert len(backend.at("cancel", str(number))) == begun
    assert seen <= {Ending.STOPPED, Ending.UNSTARTED}


async def test_a_block_left_before_the_first_step_of_the_turns_life_sends_nothing() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            pass
        assert turn.ending is Ending.UNSTARTED
        assert turn.settlement is not None
        assert turn.settlement.request is not None
        assert turn.settlement.request.kind == "left"
    assert backend.log == []


async def test_a_turn_stopped_before_the_first_step_of_its_life_sends_nothing() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            turn.stop()
            assert turn.ending is Ending.UNSTARTED
            await trio.lowlevel.checkpoint()
            raise AssertionError("the body goes on")
    assert backend.log == []


async def test_a_turn_cancelled_while_it_enters_a_free_room_sends_nothing() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with trio.CancelScope() as scope:
            scope.cancel()
            async with turn:
                raise AssertionError("entered")
        assert scope.cancelled_caught
        assert turn.ending is Ending.UNSTARTED
        assert rooms.statistics().rooms == 0
    assert backend.log == []


async def test_a_turn_stopped_before_entering_enters_cancelled() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        assert turn.stop().verdict is StopVerdict.ASKED
        assert turn.ending is Ending.UNSTARTED
        async with turn:
            await trio.lowlevel.checkpoint()
            raise AssertionError("the body goes on")
    assert backend.log == []


async def test_nested_turns_of_two_rooms_in_one_task_all_stop_on_an_outer_cancel() -> None:
    backend = Recorder(cancel=ending(takes=1))
    async with open_rooms(backend) as rooms:
        outer, inner = rooms.turn("a", "x"), rooms.turn("b", "y")
        with trio.move_on_after(2) as scope:
            async with outer, inner:
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert inner.ending is outer.ending is Ending.STOPPED
        assert trio.current_time() == 4


async def test_a_stop_of_the_inner_turn_leaves_the_outer_alone() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        outer, inner = rooms.turn("a", "x"), rooms.turn("b", "y")
        async with outer:
            async with inner:
                await wait_all_tasks_blocked()
                inner.stop()
                await trio.sleep_forever()
            await trio.sleep(1)
            assert outer.settlement is None
        assert inner.ending is Ending.STOPPED


async def test_a_stop_of_the_outer_turn_leaves_through_the_inner() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        outer, inner = rooms.turn("a", "x"), rooms.turn("b", "y")
        async with outer:
            async with inner:
                await wait_all_tasks_blocked()
                outer.stop()
                await trio.sleep_forever()
        assert inner.ending is outer.ending is Ending.STOPPED
        assert inner.settlement is not None
        assert inner.settlement.request is not None
        assert inner.settlement.request.kind == "cancelled"


async def test_a_block_is_a_checkpoint() -> None:
    async with open_rooms(Recorder()) as rooms:
        with assert_checkpoints():
            async with rooms.turn("a", "x"):
                pass
        with assert_checkpoints():
            async with rooms.turn("a", "x") as turn:
                turn.stop()


async def test_a_block_is_a_checkpoint_even_if_another_task_reads() -> None:
    backend = Recorder(follow=Act(returns=COMPLETED))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def read() -> None:
            async for _ in turn:
                pass

        await turn.__aenter__()
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert turn.ending is Ending.FINISHED
        yielded = True
        try:
            with assert_checkpoints():
                await turn.__aexit__(None, None, None)
        except AssertionError:
            yielded = False
        assert yielded


async def test_thousand_rooms_used_once_leave_nothing_behind() -> None:
    backend = Recorder(follow=Act(returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        for number in range(1000):
            async with rooms.turn(f"room {number}", "x"):
                pass
        assert rooms._house.doors == {}
        assert rooms._house.stragglers == {}
        assert rooms.statistics().rooms == 0


async def test_a_room_used_again_after_it_was_forgotten_serialises_as_before() -> None:
    backend = Recorder(cancel=ending(CANCELLED, takes=1))
    async with open_rooms(backend) as rooms:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(
                        lambda: occupy(rooms.turn("a", "x"), inside=wait_all_tasks_blocked)
                    )
    starts, ends = backend.at("start"), backend.at("follow left")
    assert len(starts) == len(ends) == 9
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert starts == [float(n) for n in range(9)]


async def test_reading_a_turn_that_was_never_entered_says_what_is_missing() -> None:
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(RuntimeError, match="enter it with"):
            await anext(turn)
        turn.stop()
        assert [event async for event in turn] == []


@pytest.mark.parametrize("wrong", [None, object(), Recorder])
async def test_what_is_no_backend_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="takes a backend"):
        async with open_rooms(wrong):
            pass
