"""Where a stop may come from: any task, Trio's own ways in, and no other thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, StopVerdict, open_rooms

from .backend import Act, Recorder, ending, occupy


async def test_a_stop_from_another_thread_is_refused_and_says_what_to_call() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            stops: list[Callable[[], Any]] = [turn.stop, lambda: rooms.stop("a"), rooms.stop_all]
            for stop in stops:
                with pytest.raises(RuntimeError) as caught:
                    await trio.to_thread.run_sync(stop)
                assert "trio.from_thread.run_sync" in str(caught.value)
                assert "TrioToken.run_sync_soon" in str(caught.value)
            await trio.lowlevel.checkpoint()
            assert turn.settlement is None
            assert backend.at("cancel") == []


async def test_a_stop_from_another_trio_run_is_refused() -> None:
    caught: list[BaseException] = []
    async with open_rooms(Recorder()) as rooms:
        async with rooms.turn("a", "x") as turn:

            async def elsewhere() -> None:
                try:
                    turn.stop()
                except RuntimeError as error:
                    caught.append(error)

            thread = threading.Thread(target=trio.run, args=(elsewhere,))
            thread.start()
            thread.join()
            assert turn.settlement is None
    assert len(caught) == 1
    assert "run_sync_soon" in str(caught[0])


async def test_a_stop_from_a_thread_by_way_of_trio_works() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        receipt = await trio.to_thread.run_sync(trio.from_thread.run_sync, turn.stop)
        assert receipt.verdict is StopVerdict.ASKED
        await receipt.settled()
        assert turn.ending is Ending.STOPPED


async def test_a_stop_from_run_sync_soon_works() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        trio.lowlevel.current_trio_token().run_sync_soon(rooms.stop, "a")
        await wait_all_tasks_blocked()
        assert turn.ending is Ending.STOPPED


async def test_a_stop_from_adapter_code_works() -> None:
    backend = Recorder()
    backend.follow = Act(notify=lambda: rooms.stop("a", source="the adapter"))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep_forever()
        assert turn.ending is Ending.STOPPED
        assert backend.calls == ["start", "follow", "cancel"]
    backend = Recorder()
    backend.cancel = ending(notify=lambda: rooms.stop("a"))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        assert backend.at("cancel") == [0]
