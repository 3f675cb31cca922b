"""Retire: the room ends, and its session is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import turnstop
from turnstop import (
    Ending,
    StopBudget,
    open_rooms,
)

from .backend import FAILED, Act, Recorder, ending, hang, occupy


async def test_retire_stops_waits_for_the_room_and_has_the_session_forgotten() -> None:
    backend = Recorder(session="s", cancel=ending(takes=2))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(1)
        await rooms.retire("a")
        assert (turn.ending, trio.current_time()) == (Ending.STOPPED, 3)
        assert (backend.forgotten, backend.at("forget")) == (["s"], [3])
        assert rooms._house.doors == {}
        async with rooms.turn("a", "y"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].session is None


async def test_retire_queues_like_a_turn() -> None:
    backend = Recorder(session="s", cancel=ending(takes=2), forget=Act(takes=1))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        first, waiting = rooms.turn("a", "x"), rooms.turn("a", "y")
        after = rooms.turn("a", "z", turn_id="after")
        nursery.start_soon(occupy, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(occupy, waiting)
        await wait_all_tasks_blocked()
        nursery.start_soon(rooms.retire, "a")
        await wait_all_tasks_blocked()
        nursery.start_soon(occupy, after)
        await wait_all_tasks_blocked()
        assert waiting.ending is Ending.UNSTARTED
        assert after.settlement is None
        await trio.sleep(5)
        assert backend.at("forget") == [2]
        assert backend.at("start", "after") == [3]
        assert backend.requests[-1].session is None
        nursery.cancel_scope.cancel()


async def test_an_error_of_forget_is_raised_and_the_session_is_dropped_anyway() -> None:
    broken = ValueError("no such session")
    backend = Recorder(session="s", forget=Act(raises=broken))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
        with pytest.raises(ValueError, match="no such session") as caught:
            await rooms.retire("a")
        assert caught.value is broken
        assert rooms._house.doors == {}


@pytest.mark.parametrize("act", [hang(), Act(stubborn=50)])
async def test_forget_is_bounded_by_kill_within(act: Act) -> None:
    backend = Recorder(session="s", forget=act)
    async with open_rooms(backend, budget=StopBudget(5, 2)) as rooms:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
        with pytest.raises(turnstop.BackendError, match="forget"):
            await rooms.retire("a")
        assert trio.current_time() == 2
        async with rooms.turn("a", "y"):
            await wait_all_tasks_blocked()
            assert rooms.statistics().stragglers == (1 if act.stubborn else 0)
        assert backend.requests[-1].session is None
    assert trio.current_time() == (50 if act.stubborn else 2)


async def test_retire_also_drops_what_may_be_alive() -> None:
    backend = Recorder(session="s", cancel=hang())
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
        await rooms.retire("a")
        async with rooms.turn("a", "y"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].previous is None


async def test_a_backend_may_do_without_forget() -> None:
    class NoForget:
        def __init__(self) -> None:
            self.inner = Recorder(session="s")

        async def start(self, request: Any) -> Any:
            return await self.inner.start(request)

    backend = NoForget()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
        await rooms.retire("a")
        assert rooms._house.doors == {}


async def test_retire_inside_its_block_is_refused_and_the_turn_lives_on() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="block"):
                await rooms.retire("a")
            await trio.lowlevel.checkpoint()
            assert turn.settlement is None
            await rooms.retire("b")


async def test_retire_while_the_rooms_close_is_refused() -> None:
    async with open_rooms(Recorder()) as rooms:
        pass
    with pytest.raises(turnstop.RoomsClosed):
        await rooms.retire("a")


async def test_a_retire_that_is_cancelled_while_it_waits_passes_the_room_on() -> None:
    backend = Recorder(session="s", cancel=ending(takes=3))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
        nursery.start_soon(occupy, rooms.turn("a", "y"))
        await wait_all_tasks_blocked()
        with trio.move_on_after(1) as scope:
            await rooms.retire("a")
        assert scope.cancelled_caught
        async with rooms.turn("a", "z"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].session == "s"
        assert backend.forgotten == []
        nursery.cancel_scope.cancel()


async def test_a_retire_that_is_given_the_room_and_cancelled_in_one_step_forgets_nothing() -> None:
    backend = Recorder(session="s", cancel=ending())
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        waiting = trio.CancelScope()

        async def hold() -> None:
            async with rooms.turn("a", "x"):
                await trio.sleep_forever()
            # The room was handed over in this step.
            waiting.cancel()

        nursery.start_soon(hold)
        await wait_all_tasks_blocked()
        with waiting:
            await rooms.retire("a")
        assert waiting.cancelled_caught
        async with rooms.turn("a", "y"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].session == "s"
    assert backend.forgotten == []


@pytest.mark.parametrize("who", ["retire", "app"])
async def test_a_cancellation_during_forget_leaves_it_its_time(who: str) -> None:
    cut: list[float] = []
    backend = Recorder(session="s")
    backend.forget_act = Act(takes=1.5, undo=lambda: cut.append(trio.current_time()))
    app, caller = trio.CancelScope(), trio.CancelScope()
    with app:
        async with open_rooms(backend, budget=StopBudget(5, 2)) as rooms:
            async with rooms.turn("a", "x"):
                await wait_all_tasks_blocked()
            with caller:
                (app if who == "app" else caller).deadline = 1
                await rooms.retire("a")
            assert trio.current_time() == 1.5
            await trio.lowlevel.checkpoint()
    assert (backend.at("forget"), backend.at("forget left"), cut) == ([0], [1.5], [])
    assert rooms._house.doors == {}


async def test_retires_and_turns_that_race_leave_nothing_behind() -> None:
    async def body() -> None:
        await trio.sleep(1)

    backend = Recorder(session="s", cancel=ending(takes=0.5), forget=Act(takes=0.25))
    async with open_rooms(backend) as rooms:
        async with trio.open_nursery() as nursery:
            for number in range(12):
                if number % 3 == 2:
                    nursery.start_soon(rooms.retire, "a")
                else:
                    turn = rooms.turn("a", "x")
                    nursery.start_soon(lambda turn=turn: occupy(turn, inside=body))
                await trio.sleep(0.3)
        await rooms.retire("a")
        assert rooms._house.doors == {}
        assert rooms.statistics() == turnstop.Statistics(0, 0, 0, 0, 0, 0)


async def test_a_base_exception_of_forget_leaves_open_rooms() -> None:
    backend = Recorder(session="s", forget=Act(raises=SystemExit("forget")))
    with pytest.raises(SystemExit, match="forget"):
        async with open_rooms(backend) as rooms:
            async with rooms.turn("a", "x"):
                await wait_all_tasks_blocked()
            await rooms.retire("a")


async def test_an_end_that_failed_after_the_asking_is_never_raised() -> None:
    backend = Recorder(cancel=Act())
    async with open_rooms(backend) as rooms:
        for number in range(10):
            async with rooms.turn("a", "x", turn_id=str(number)) as turn:
                await wait_all_tasks_blocked()
                backend.remote.finish(FAILED)
                turn.stop()
            # Whether cancel was called before the end is the scheduler's choice.
            called = len(backend.at("cancel", str(number))) == 1
            assert turn.ending is (Ending.STOPPED if called else Ending.FAILED)
