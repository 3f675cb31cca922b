"""What happens in one instant, in whichever order the scheduler takes it.

Trio runs the tasks of a pass in random order, so each of these is played twenty times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, Rooms, RoomsClosed, Settlement, StopBudget, open_rooms
from turnstop.abc import End, How
from turnstop.events import Usage

from .backend import CANCELLED, Act, Recorder, Remote, ending, hang, occupy

BUDGET = StopBudget(cancel_within=4, kill_within=2)
ORDERS = range(20)


async def stopped(backend: Recorder, at_once: Callable[[], object] | None = None) -> Settlement:
    """A turn that is stopped at once; `at_once` is called in the instant when phase 2 begins."""
    begun = trio.current_time()
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        turn.stop()
        if at_once is not None:
            await trio.sleep_until(begun + BUDGET.cancel_within)
            at_once()
    assert turn.settlement is not None
    return turn.settlement


async def test_no_kill_after_the_end() -> None:
    for _ in ORDERS:
        backend = Recorder(cancel=hang(), kill=Act())
        await stopped(backend, lambda made=backend: made.remote.finish(CANCELLED))  # type: ignore[misc]
        calls = [name for name, *_ in backend.log]
        assert "kill" not in calls[calls.index("follow left") :]


async def test_an_answer_that_comes_with_the_end_is_an_acknowledgement() -> None:
    class Answering(Remote):
        def __init__(self, backend: Recorder, turn_id: str) -> None:
            super().__init__(backend, turn_id)
            self.answer = trio.Event()

        async def cancel(self, sent: Callable[[], None]) -> None:
            sent()
            await self.answer.wait()

    for _ in ORDERS:
        backend = Recorder(make=Answering)
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            turn = rooms.turn("a", "x")
            nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
            turn.stop()
            await wait_all_tasks_blocked()
            backend.remote.answer.set()  # type: ignore[attr-defined]
            backend.remote.finish(CANCELLED)
        assert turn.settlement is not None
        assert turn.settlement.acked_at is not None
        assert turn.settlement.clean


async def test_sent_is_when_it_was_said_first() -> None:
    class Repeating(Remote):
        async def cancel(self, sent: Callable[[], None]) -> None:
            sent()
            await trio.sleep(1)
            sent()
            self.finish(CANCELLED)

    found = await stopped(Recorder(make=Repeating))
    assert (found.sent_at, found.ended_at) == (0, 1)


async def test_an_end_that_comes_while_leftovers_are_looked_for_changes_nothing() -> None:
    late = End(How.COMPLETED, usage=Usage(1, 2))
    backend = Recorder(cancel=hang(), leftovers=Act(takes=1, returns=()))
    bound = BUDGET.cancel_within + BUDGET.kill_within

    async def finish() -> None:
        await trio.sleep(bound + 0.5)
        backend.remote.finish(late)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(finish)
        found = await stopped(backend)
    assert (found.ending, found.ended_at, found.usage) == (Ending.UNCONFIRMED, None, None)
    assert found.settled_at == bound + 1


async def test_leftovers_that_are_listed_quickly_do_not_use_up_their_time() -> None:
    found = await stopped(Recorder(cancel=hang(), leftovers=Act(returns=())))
    assert found.ending is Ending.UNCONFIRMED
    assert found.settled_at == BUDGET.cancel_within + BUDGET.kill_within


async def test_a_system_exit_of_an_adapter_is_for_open_rooms_and_not_for_the_reader() -> None:
    seen: list[BaseException] = []
    backend = Recorder(follow=Act(takes=1, raises=SystemExit(3)))

    async def read(rooms: Rooms[str]) -> None:
        async with rooms.turn("a", "x") as turn:
            try:
                async for _ in turn:
                    pass
            except BaseException as error:
                seen.append(error)
                raise

    async def run(outside: trio.Nursery) -> None:
        async with open_rooms(backend, budget=BUDGET) as rooms:
            outside.start_soon(read, rooms)
            await trio.sleep_forever()

    async with trio.open_nursery() as outside:
        with pytest.raises(SystemExit):
            await run(outside)
    assert [type(error) for error in seen] == [trio.Cancelled]


async def test_a_retire_from_outside_learns_that_forget_has_ended_the_rooms() -> None:
    backend = Recorder(session="s", forget=Act(takes=1, raises=SystemExit(3)))
    seen: list[type[BaseException]] = []

    async def retire(rooms: Rooms[str]) -> None:
        try:
            await rooms.retire("a")
        except BaseException as error:
            seen.append(type(error))

    async def run(outside: trio.Nursery) -> None:
        async with open_rooms(backend, budget=BUDGET) as rooms:
            async with rooms.turn("a", "x"):
                await wait_all_tasks_blocked()
            outside.start_soon(retire, rooms)
            await trio.sleep_forever()

    async with trio.open_nursery() as outside:
        with pytest.raises(SystemExit):
            await run(outside)
    assert seen == [RoomsClosed]


async def test_a_start_that_came_too_late_is_a_straggler_until_it_is_stopped() -> None:
    backend = Recorder(start=Act(stubborn=20), cancel=Act(takes=1), kill=ending(takes=1))
    async with open_rooms(backend, budget=BUDGET) as rooms:
        with trio.move_on_after(1):
            await occupy(rooms.turn("a", "x"))
        counts: dict[float, Any] = {}
        for when in (19.5, 20.5, 21.5, 22.5):
            await trio.sleep_until(when)
            counts[when] = rooms.statistics().stragglers
    assert counts == {19.5: 1, 20.5: 1, 21.5: 1, 22.5: 0}
