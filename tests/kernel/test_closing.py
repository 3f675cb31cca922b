"""Closing is a state: entered by the watcher or the exit, and never left."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, RoomsClosed, StopVerdict, open_rooms

from .backend import Passes, Recorder, ending, occupy


async def test_an_apps_shutdown_tells_the_backends_before_any_body_unwinds() -> None:
    backend = Recorder()
    app = trio.CancelScope()
    unwound = []

    async def body() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(30)
            unwound.append(trio.current_time())

    with app:
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            turns = [rooms.turn(room, "x") for room in "abc"]
            for turn in turns:
                nursery.start_soon(lambda turn=turn: occupy(turn, inside=body))
            await trio.sleep(1)
            app.cancel()
            await trio.sleep_forever()
    assert backend.at("cancel") == [1, 1, 1]
    assert unwound == [31, 31, 31]
    for turn in turns:
        assert turn.settlement is not None
        assert turn.settlement.request is not None
        assert (turn.settlement.settled_at, turn.settlement.ending) == (1, Ending.STOPPED)
        assert turn.settlement.request.kind == "closing"


@pytest.mark.parametrize("repeat", range(3))
async def test_the_watcher_stops_in_the_step_in_which_its_cancellation_arrives(repeat: int) -> None:
    counter = Passes()
    trio.lowlevel.add_instrument(counter)
    found: list[int] = []
    backend = Recorder(cancel=ending(notify=lambda: found.append(counter.count)))
    app = trio.CancelScope()

    async def shielded() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    with app:
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            for room in "abc":
                nursery.start_soon(lambda room=room: occupy(rooms.turn(room, "x"), inside=shielded))
            await trio.sleep(1)
            now = counter.count
            app.cancel()
            await trio.sleep_forever()
    # The watcher is woken in the next pass, and cancel is called in the one after.
    assert found == [now + 2] * 3


async def test_the_watcher_stops_what_waits_and_what_shields_itself_whole() -> None:
    backend = Recorder()
    app = trio.CancelScope()
    with app:
        async with open_rooms(backend) as rooms:
            with trio.CancelScope(shield=True):
                # The body of open_rooms itself hears nothing of the cancellation.
                async with rooms.turn("a", "x") as turn:
                    await trio.sleep(1)
                    app.cancel()
                    await wait_all_tasks_blocked()
                    assert turn.settlement is not None
                    with pytest.raises(RoomsClosed):
                        async with rooms.turn("b", "y"):
                            pass
    assert turn.ending is Ending.STOPPED


async def test_entering_while_the_rooms_close_raises_and_registers_nothing() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        pass
    turn = rooms.turn("a", "x")
    with pytest.raises(RoomsClosed, match="closing"):
        async with turn:
            pass
    assert rooms.statistics().rooms == 0
    assert rooms._house.doors == {}
    assert turn.settlement is None
    assert backend.log == []


async def test_closing_begins_in_the_first_step_of_the_exit() -> None:
    backend = Recorder(cancel=ending(takes=2))
    raised = []
    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            turn = rooms.turn("a", "x")
            nursery.start_soon(occupy, turn)
            await trio.sleep(1)

            async def late() -> None:
                await trio.sleep(0.5)
                with pytest.raises(RoomsClosed):
                    async with rooms.turn("b", "y"):
                        pass
                raised.append(trio.current_time())

            nursery.start_soon(late)
            await wait_all_tasks_blocked()
        assert trio.current_time() == 3
        assert raised == [1.5]
        assert turn.settlement is not None
        assert turn.settlement.request is not None
        assert (turn.settlement.asked_at, turn.settlement.request.kind) == (1, "closing")


async def test_the_exit_waits_until_every_block_has_left() -> None:
    backend = Recorder()

    async def body() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            turns = [rooms.turn("a", "x"), rooms.turn("a", "y"), rooms.turn("b", "z")]
            for turn in turns:
                nursery.start_soon(lambda turn=turn: occupy(turn, inside=body))
                await wait_all_tasks_blocked()
        # The waiting one had its turn too, its body shielded itself for a minute more.
        assert trio.current_time() == 120
        assert rooms.statistics().rooms == 0


async def test_a_stop_during_the_exit_joins_it() -> None:
    backend = Recorder(cancel=ending(takes=2))
    async with trio.open_nursery() as nursery:

        async def stopper() -> None:
            await trio.sleep(2)
            assert rooms.stop("a").verdict is StopVerdict.JOINED
            assert turn.stop().verdict is StopVerdict.JOINED

        async with open_rooms(backend) as rooms:
            turn = rooms.turn("a", "x")
            nursery.start_soon(occupy, turn)
            nursery.start_soon(stopper)
            await trio.sleep(1)
    assert backend.at("cancel") == [1]


async def test_closing_is_never_left_and_asks_once() -> None:
    backend = Recorder(cancel=ending(takes=2))
    with trio.CancelScope() as app:
        async with trio.open_nursery() as nursery:
            async with open_rooms(backend) as rooms:
                turn = rooms.turn("a", "x")
                nursery.start_soon(occupy, turn)
                await trio.sleep(1)
                nursery.start_soon(trio.sleep, 1)
                app.deadline = 2
    assert app.cancelled_caught
    assert turn.settlement is not None
    assert (turn.settlement.asked_at, turn.settlement.settled_at) == (1, 3)
    assert backend.at("cancel") == [1]
