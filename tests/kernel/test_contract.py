"""What adapters and applications are promised beyond a single turn's stop."""

from __future__ import annotations

import gc
import inspect
import weakref
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import turnstop
from turnstop import (
    BackendLost,
    BackendRefused,
    Ending,
    Proof,
    Rooms,
    RoomsClosed,
    Settlement,
    StopBudget,
    StopReceipt,
    Turn,
    open_rooms,
)
from turnstop import abc as contract
from turnstop._service import open_service
from turnstop.abc import End, How, Request

from .backend import CANCELLED, CLAIMED, COMPLETED, Act, Recorder, Remote, ending, hang, occupy


def settled(turn: Turn) -> Settlement:
    assert turn.settlement is not None
    return turn.settlement


async def test_the_names_of_an_end_are_in_abc() -> None:
    assert (contract.End, contract.How, contract.Proof) == (End, How, Proof)
    assert [how.name for how in How] == ["COMPLETED", "CANCELLED", "FAILED", "SILENT"]
    assert [proof.name for proof in Proof] == ["EVENT", "STREAM", "PROCESS", "CLAIMED"]
    assert End(How.SILENT) == End(How.SILENT, Proof.EVENT, None, "")
    assert issubclass(contract.Silenced, Exception)
    assert issubclass(RoomsClosed, RuntimeError)


async def test_requests_and_ends_are_frozen() -> None:
    for record in (Request("a", "t", "x"), End(How.SILENT), StopBudget()):
        name = next(iter(record.__attrs_attrs__)).name
        with pytest.raises(AttributeError):
            setattr(record, name, None)
    assert (Request("a", "t", "x").session, Request("a", "t", "x").previous) == (None, None)


async def test_nothing_takes_a_timeout() -> None:
    for owner in (turnstop, Rooms, Turn, StopReceipt, turnstop.abc.RemoteTurn):
        for name, member in inspect.getmembers(owner, callable):
            if not name.startswith("_"):
                try:
                    parameters = inspect.signature(member).parameters
                except ValueError:
                    continue
                assert "timeout" not in parameters


async def test_a_stop_is_no_coroutine() -> None:
    for stop in (Turn.stop, Rooms.stop, Rooms.stop_all):
        assert not inspect.iscoroutinefunction(stop)


class Line:
    """A backend whose calls are served by a reader task, as a process's are."""

    def __init__(self, service: Any) -> None:
        self.told, self.answer = trio.open_memory_channel[str](10)
        self.ended, self.acked = trio.Event(), trio.Event()
        service.start_soon(self.read)

    async def read(self) -> None:
        async for message in self.answer:
            assert message == "cancel"
            await trio.sleep(0.5)
            self.acked.set()
            self.ended.set()

    async def start(self, request: object) -> Any:
        return self

    session = None

    async def follow(self, emit: object) -> End:
        await self.ended.wait()
        return CANCELLED

    async def cancel(self, sent: Any) -> None:
        await self.told.send("cancel")
        sent()
        await self.acked.wait()


async def test_a_floor_is_never_cancelled_before_the_floors_above_have_left() -> None:
    turns = []
    with trio.move_on_after(1):
        async with open_service() as service, open_rooms(Line(service)) as rooms:
            turns.append(rooms.turn("a", "x"))
            async with turns[0]:
                await trio.sleep_forever()
    found = settled(turns[0])
    assert (found.ending, found.asked_at, found.settled_at) == (Ending.STOPPED, 1, 1.5)
    assert trio.current_time() == 1.5


async def test_the_budget_of_a_turn_that_failed_by_itself_counts_from_its_failure() -> None:
    backend = Recorder(
        follow=Act(takes=1, raises=BackendLost("x")), cancel=hang(), kill=Act(takes=0.5)
    )
    async with open_rooms(backend, budget=StopBudget(4, 2)) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            async with turn:
                async for _ in turn:
                    pass
    assert (backend.at("cancel"), backend.at("kill")) == ([1], [5])
    found = settled(turn)
    assert (found.ending, found.gone, found.settled_at) == (Ending.FAILED, True, 5.5)
    assert (found.asked_at, found.ended_at, found.proof) == (None, 5.5, Proof.PROCESS)


async def test_a_turn_that_failed_by_itself_is_bounded_whatever_hangs() -> None:
    backend = Recorder(
        follow=Act(takes=1, raises=BackendLost("x")),
        cancel=Act(stubborn=50),
        kill=Act(stubborn=50),
        leftovers=Act(stubborn=50),
    )
    async with open_rooms(backend, budget=StopBudget(4, 2)) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            async with turn:
                async for _ in turn:
                    pass
        assert trio.current_time() == 9
        assert rooms.statistics().stragglers == 3
        found = settled(turn)
        assert (found.ending, found.gone, found.settled_at) == (Ending.FAILED, False, 9)
        for name in ("cancel", "kill", "leftovers"):
            assert any(name in survivor for survivor in found.survivors)


async def test_claimed_and_unasked_is_unconfirmed() -> None:
    async with open_rooms(Recorder(follow=Act(takes=1, returns=CLAIMED))) as rooms:
        async with rooms.turn("a", "x") as turn:
            async for _ in turn:
                pass
        found = settled(turn)
        assert (found.ending, found.gone, found.request) == (Ending.UNCONFIRMED, False, None)
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()


async def test_a_claimed_end_is_told_to_the_rooms_next_start() -> None:
    backend = Recorder(follow=Act(returns=CLAIMED))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            async for _ in turn:
                pass
        async with rooms.turn("a", "y"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].previous is turn.settlement


@pytest.mark.parametrize("way", ["finished", "stopped", "unconfirmed", "queued"])
async def test_a_turn_that_is_let_go_of_is_let_go_of_by_the_rooms(way: str) -> None:
    backend = Recorder(cancel=hang() if way == "unconfirmed" else ending())
    if way == "finished":
        backend.follow = Act(returns=COMPLETED)
    async with open_rooms(backend, observers=[lambda _: None]) as rooms:
        turn = rooms.turn("a", "x")
        if way == "queued":
            async with rooms.turn("a", "y"):
                with trio.move_on_after(1):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(occupy, turn)
        else:
            async with turn:
                await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert turn.settlement is not None
        gone = weakref.ref(turn._life), weakref.ref(turn._gate)
        del turn
        backend.remotes.clear()
        gc.collect()
        assert [found() for found in gone] == [None, None]


async def test_thousands_of_stops_leave_no_alarms_behind() -> None:
    backend = Recorder()
    async with open_rooms(backend, budget=StopBudget(1000, 1000)) as rooms:
        for _ in range(50):
            async with rooms.turn("a", "x"):
                await wait_all_tasks_blocked()
            backend.remotes.clear()
        watch = rooms._house.watch
        assert len(watch._first) == 0
        assert len(watch._later) == 0
        assert trio.current_time() == 0


async def test_settled_is_settled_within_its_budget_when_the_reveal_comes_at_a_bound() -> None:
    # Both happen in one pass, in whatever order: often enough for either.
    for takes in (4.0, 6.0) * 8:
        backend = Recorder(start=Act(takes=1 + takes), cancel=ending(), kill=ending())
        async with open_rooms(backend, budget=StopBudget(4, 2)) as rooms:
            begun = trio.current_time()
            turn = rooms.turn("a", "x")
            with trio.move_on_after(1):
                await occupy(turn)
            found = settled(turn)
            assert found.settled_at == begun + 1 + takes
            assert found.ending in (Ending.STOPPED, Ending.KILLED, Ending.UNCONFIRMED)
            # Told once if it could be told at all, in its life or after it.
            await wait_all_tasks_blocked()
        assert len(backend.at("cancel")) == len(backend.remotes)


async def test_a_reveal_at_the_bound_whose_follow_raises_at_once_is_told_too() -> None:
    for _ in range(16):
        backend = Recorder(start=Act(takes=7), cancel=Act(), kill=Act())
        backend.follow = Act(raises=BackendLost("x"))
        async with open_rooms(backend, budget=StopBudget(4, 2)) as rooms:
            begun = trio.current_time()
            turn = rooms.turn("a", "x")
            with trio.move_on_after(1):
                await occupy(turn)
            assert settled(turn).settled_at == begun + 7
        # An exception is no end: its work may be alive, and it has a name.
        assert len(backend.at("cancel")) == len(backend.remotes) == 1


async def test_follow_that_raises_while_leftovers_are_looked_for_is_kept() -> None:
    late = BackendLost("while dying")

    class Dying(Remote):
        async def follow(self, emit: Any) -> End:
            try:
                await trio.sleep_forever()
            finally:
                raise late
            return COMPLETED

    backend = Recorder(make=Dying, cancel=hang())
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        found = settled(turn)
        assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 2)
        # What it raised on being cancelled at the end of the bound is not lost.
        assert found.errors == (late,)


async def test_many_turns_of_many_rooms_at_random_never_overlap() -> None:
    backend = Recorder(cancel=ending(takes=0.5))
    inside: dict[str, int] = {}

    async def one(room: str, number: int) -> None:
        turn = rooms.turn(room, "x")
        with trio.move_on_after(number % 7):
            async with turn:
                inside[room] = inside.get(room, 0) + 1
                assert inside[room] == 1
                try:
                    await trio.sleep(number % 3)
                finally:
                    inside[room] -= 1

    async with open_rooms(backend) as rooms:
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(one, "abc"[number % 3], number)
                await trio.sleep((number % 5) / 4)
                if number % 11 == 0:
                    rooms.stop("a")
        assert rooms.statistics() == turnstop.Statistics(0, 0, 0, 0, 0, 0)
        assert len(backend.at("cancel")) <= len(backend.at("start"))


async def test_two_backends_side_by_side_know_nothing_of_one_another() -> None:
    one, other = Recorder(), Recorder()
    async with open_rooms(one) as first, open_rooms(other) as second:
        async with first.turn("a", "x") as turn, second.turn("a", "y") as neighbour:
            await wait_all_tasks_blocked()
            second.stop_all()
            first.stop("b")
            with pytest.raises(trio.Cancelled):
                await trio.lowlevel.checkpoint()
            assert turn.settlement is None
        assert (turn.ending, neighbour.ending) == (Ending.STOPPED, Ending.STOPPED)
        assert settled(turn).request is not None


async def test_rooms_opened_inside_a_turn_of_others_close_first() -> None:
    outer, inner = Recorder(), Recorder(cancel=ending(takes=1))
    async with open_rooms(outer) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            async with open_rooms(inner) as nested:
                child = nested.turn("a", "y")
                async with child:
                    await trio.sleep(1)
                    turn.stop()
                    await trio.sleep_forever()
        assert (turn.ending, child.ending) == (Ending.STOPPED, Ending.STOPPED)
        assert (settled(turn).settled_at, settled(child).settled_at) == (1, 2)
        assert settled(child).request is not None


async def test_a_body_error_of_open_rooms_leaves_as_itself_after_the_turns_have_settled() -> None:
    backend = Recorder(cancel=ending(takes=2))
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with trio.open_nursery() as nursery:
            try:
                async with open_rooms(backend) as rooms:
                    turn = rooms.turn("a", "x")
                    nursery.start_soon(occupy, turn)
                    await wait_all_tasks_blocked()
                    raise mine
            except ValueError as error:
                assert error is mine
                assert trio.current_time() == 2
                assert turn.ending is Ending.STOPPED
                raised = error
        raise raised
    assert caught.value is mine


async def test_a_waiting_turn_is_stopped_by_the_closing_and_enters_cancelled() -> None:
    backend = Recorder()
    entered = []
    async with trio.open_nursery() as nursery:

        async def second() -> None:
            async with waiting:
                entered.append(trio.current_effective_deadline())
                await trio.lowlevel.checkpoint()
                raise AssertionError("goes on")

        async with open_rooms(backend) as rooms:
            first, waiting = rooms.turn("a", "x"), rooms.turn("a", "y")
            nursery.start_soon(occupy, first)
            await wait_all_tasks_blocked()
            nursery.start_soon(second)
            await wait_all_tasks_blocked()
    found = settled(waiting)
    assert found.request is not None
    assert (found.ending, found.request.kind) == (Ending.UNSTARTED, "closing")
    assert entered == [-float("inf")]
    assert len(backend.requests) == 1


async def test_a_retire_in_flight_is_waited_for_by_the_exit() -> None:
    backend = Recorder(session="s", forget=Act(takes=1))
    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            async with rooms.turn("a", "x"):
                await wait_all_tasks_blocked()
            nursery.start_soon(rooms.retire, "a")
            await wait_all_tasks_blocked()
        assert trio.current_time() == 1
    assert backend.forgotten == ["s"]


async def test_a_refusal_after_the_reveal_of_the_budget_is_told_from_a_loss() -> None:
    for error, name in ((BackendRefused("x"), "UNSTARTED"), (BackendLost("x"), "UNCONFIRMED")):
        backend = Recorder(start=Act(takes=2, raises=error))
        async with open_rooms(backend) as rooms:
            turn = rooms.turn("a", "x")
            with trio.move_on_after(1):
                await occupy(turn)
            assert settled(turn).ending.name == name


async def test_a_kill_may_find_the_end_and_is_itself_cancelled_by_it() -> None:
    backend = Recorder(cancel=Act(), kill=hang(), follow=Act(takes=6, returns=CANCELLED))
    async with open_rooms(backend, budget=StopBudget(4, 3)) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        assert (backend.at("kill"), backend.at("kill left")) == ([4], [6])
        assert settled(turn).ending is Ending.KILLED


async def test_entering_and_leaving_in_a_row_in_one_task() -> None:
    backend = Recorder(follow=Act(returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        for _ in range(3):
            async with rooms.turn("a", "x") as turn:
                async for _ in turn:
                    pass
            assert turn.ending is Ending.FINISHED
    assert backend.calls == ["start", "follow"] * 3


@pytest.mark.parametrize("when", ["live", "settled", "left"])
async def test_answers_and_reads_from_outside_the_block_are_harmless(when: str) -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            await wait_all_tasks_blocked()
            if when == "settled":
                backend.remote.finish(COMPLETED)
                await wait_all_tasks_blocked()
            if when != "left":
                assert turn.answer(turnstop.events.Ask("1", "question", "?"), "x") is False
        assert turn.answer(turnstop.events.Ask("1", "question", "?"), "x") is False
        assert [event async for event in turn] == []
