"""What an application is given: rooms, turns, receipts, settlements, statistics."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import (
    BackendLost,
    BackendRefused,
    Ending,
    Rooms,
    StopBudget,
    StopReceipt,
    Turn,
    open_rooms,
)
from turnstop.abc import End, Request, current_turn
from turnstop.events import Other

from .backend import COMPLETED, Act, Recorder, Remote, ending, hang, occupy

# Requests and sessions.


async def test_start_is_given_the_request() -> None:
    backend = Recorder()
    content = object()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("kitchen", content, turn_id="t"):
            await wait_all_tasks_blocked()
    (request,) = backend.requests
    assert (request.room, request.turn_id) == ("kitchen", "t")
    assert request.content is content
    assert (request.session, request.previous) == (None, None)


async def test_a_rooms_session_is_kept_from_the_reveal_and_read_again_at_settlement() -> None:
    backend = Recorder(session="at the reveal")
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "1"):
            await wait_all_tasks_blocked()
        async with rooms.turn("a", "2"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].session == "at the reveal"
            backend.remote.session = "at settlement"
        async with rooms.turn("a", "3"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].session == "at settlement"
        async with rooms.turn("b", "4"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].session is None


async def test_a_session_survives_a_turn_whose_start_failed() -> None:
    backend = Recorder(session="s")
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "1"):
            await wait_all_tasks_blocked()
        backend.start_act = Act(raises=BackendRefused("busy"))
        with pytest.raises(BackendRefused):
            await occupy(rooms.turn("a", "2"))
        backend.start_act = Act()
        async with rooms.turn("a", "3"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].session == "s"


async def test_a_turn_that_fails_after_the_reveal_leaves_its_session() -> None:
    backend = Recorder(session="s", follow=Act(raises=BackendLost("x", gone=True)))
    async with open_rooms(backend) as rooms:
        with pytest.raises(BackendLost):
            await occupy(rooms.turn("a", "1"))
        backend.follow = Act()
        async with rooms.turn("a", "2"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].session == "s"
        assert backend.requests[-1].previous is None


async def test_a_session_that_raises_at_settlement_is_an_error_of_the_settlement() -> None:
    broken = ValueError("no session")

    class Moody(Remote):
        calm = True

        @property
        def session(self) -> object:
            if self.calm:
                return "s"
            raise broken

        @session.setter
        def session(self, value: object) -> None:
            pass

    backend = Recorder(make=Moody)
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.calm = False  # type: ignore[attr-defined]
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.errors) == (Ending.STOPPED, (broken,))


async def test_previous_is_told_to_every_start_until_one_has_returned() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "1") as first:
            await wait_all_tasks_blocked()
        assert first.ending is Ending.UNCONFIRMED
        backend.cancel, backend.start_act = ending(), Act(raises=BackendRefused("busy"))
        for _ in range(2):
            with pytest.raises(BackendRefused):
                await occupy(rooms.turn("a", "2"))
            assert backend.requests[-1].previous is first.settlement
        # One that never began tells nothing.
        async with rooms.turn("a", "3"):
            pass
        backend.start_act = Act()
        async with rooms.turn("a", "4"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].previous is first.settlement
        async with rooms.turn("a", "5"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].previous is None
        async with rooms.turn("b", "6"):
            await wait_all_tasks_blocked()
        assert backend.requests[-1].previous is None


async def test_previous_is_the_last_whose_work_may_be_alive() -> None:
    backend = Recorder(cancel=hang(), start=Act(raises=BackendLost("no answer")))
    async with open_rooms(backend) as rooms:
        for _ in range(2):
            turn = rooms.turn("a", "x")
            with pytest.raises(BackendLost):
                await occupy(turn)
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.gone) == (Ending.FAILED, False)
        backend.start_act = Act()
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
            assert backend.requests[-1].previous is turn.settlement


async def test_previous_is_none_after_every_end_that_was_seen() -> None:
    backend = Recorder(kill=ending())
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
        for act in (ending(), ending(COMPLETED), hang()):
            backend.cancel = act
            async with rooms.turn("a", "x") as turn:
                await wait_all_tasks_blocked()
                assert backend.requests[-1].previous is None
            assert turn.settlement is not None
            assert turn.settlement.gone


async def test_a_context_variable_names_the_turn_in_every_call() -> None:
    seen: list[str] = []

    def note() -> None:
        seen.append(current_turn.get())

    acts: dict[str, Any] = {
        "start": Act(notify=note),
        "follow": Act(notify=note),
        "cancel": Act(notify=note),
        "kill": ending(notify=note),
        "leftovers": Act(notify=note, returns=["sh"]),
        "sweep": Act(notify=note, returns=[]),
    }
    backend = Recorder(**acts)
    current_turn.set("of the test")
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
        async with rooms.turn("a", "x", turn_id="t"):
            await wait_all_tasks_blocked()
        assert current_turn.get() == "of the test"
    assert seen == ["t"] * 6
    assert backend.calls == ["start", "follow", "cancel", "kill", "leftovers", "sweep"]


async def test_a_cancel_runs_in_the_turns_context_and_not_in_the_askers() -> None:
    seen: list[str] = []
    backend = Recorder(cancel=ending(notify=lambda: seen.append(current_turn.get())))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x", turn_id="t")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        current_turn.set("the asker")
        turn.stop()
    assert seen == ["t"]


# Turns.


async def test_turns_of_two_rooms_with_one_id_are_told_apart_by_identity() -> None:
    seen: list[str] = []

    def note() -> None:
        seen.append(current_turn.get())

    backend = Recorder(follow=Act(notify=note), cancel=ending(notify=note))
    async with open_rooms(backend) as rooms:
        for room in "ab":
            async with rooms.turn(room, "", turn_id="1"):
                await wait_all_tasks_blocked()
    followed_a, cancelled_a, followed_b, cancelled_b = seen
    assert {*seen} == {"1"}
    assert followed_a is cancelled_a
    assert followed_b is cancelled_b
    assert followed_a is not followed_b


async def test_a_backend_that_would_close_before_the_rooms_is_refused_before_anything() -> None:
    class Inside(Recorder):
        def check_nesting(self) -> None:
            raise RuntimeError("move it out")

    before = trio.lowlevel.current_task().child_nurseries
    with pytest.raises(RuntimeError, match="move it out"):
        async with open_rooms(Inside()):
            raise AssertionError("never entered")
    assert trio.lowlevel.current_task().child_nurseries == before


async def test_a_backend_is_asked_for_its_nesting_in_the_task_that_opens_the_rooms() -> None:
    task = trio.lowlevel.current_task()
    asked: list[object] = []

    class Asked(Recorder):
        def check_nesting(self) -> None:
            asked.extend((trio.lowlevel.current_task(), task.child_nurseries))

    before = task.child_nurseries
    async with open_rooms(Asked()):
        assert asked == [task, before]


async def test_turn_ids_are_made_up_and_unique() -> None:
    async with open_rooms(Recorder()) as rooms, open_rooms(Recorder()) as others:
        ids = {rooms.turn("a", "x").turn_id for _ in range(50)}
        ids |= {others.turn("a", "x").turn_id for _ in range(50)}
        assert len(ids) == 100
        assert rooms.turn("a", "x", turn_id="mine").turn_id == "mine"


@pytest.mark.parametrize("turn_id", [0, 7, b"1", object()])
async def test_an_id_that_is_no_str_is_refused(turn_id: Any) -> None:
    async with open_rooms(Recorder()) as rooms:
        with pytest.raises(TypeError, match="a turn's id is a str: got "):
            rooms.turn("kitchen", "bake", turn_id=turn_id)


async def test_an_empty_id_is_refused() -> None:
    async with open_rooms(Recorder()) as rooms:
        with pytest.raises(ValueError, match="leave turn_id out"):
            rooms.turn("a", "x", turn_id="")


async def test_a_room_is_named_by_a_str() -> None:
    async with open_rooms(Recorder()) as rooms:
        with pytest.raises(TypeError, match="str"):
            rooms.turn(1, "x")  # type: ignore[arg-type]


async def test_nobody_else_makes_what_open_rooms_makes() -> None:
    for kind in (Turn, Rooms, StopReceipt):
        with pytest.raises(TypeError, match="open_rooms"):
            kind()


async def test_a_turns_repr_tells_its_state() -> None:
    async with open_rooms(Recorder(cancel=ending(takes=1))) as rooms, trio.open_nursery() as nurse:
        turn, waiter = rooms.turn("a", "x", turn_id="t"), rooms.turn("a", "y")
        assert repr(turn) == "<Turn t of 'a': new>"
        nurse.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        nurse.start_soon(occupy, waiter)
        await wait_all_tasks_blocked()
        assert repr(turn) == "<Turn t of 'a': live>"
        assert "waiting" in repr(waiter)
        turn.stop()
        assert repr(turn) == "<Turn t of 'a': stopping>"
        await trio.sleep(2)
        assert repr(turn) == "<Turn t of 'a': stopped>"
        assert "open" in repr(rooms)
        nurse.cancel_scope.cancel()
    assert "closing" in repr(rooms)


async def test_finished_with_unread_events_is_defined_and_the_reader_gets_them() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.say(Other("1"))
            backend.remote.finish(COMPLETED)
            await wait_all_tasks_blocked()
            assert turn.ending is Ending.FINISHED
            assert [event async for event in turn] == [Other("1")]


# Misuse.


@pytest.mark.parametrize("state", ["live", "settled"])
async def test_entering_a_room_that_this_task_already_holds_is_refused(state: str) -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            if state == "settled":
                backend.remote.finish(COMPLETED)
                await wait_all_tasks_blocked()
            refused = rooms.turn("a", "y")
            with pytest.raises(RuntimeError, match="already"):
                await occupy(refused)
            assert rooms.statistics().waiting == 0
            assert state == "settled" or turn.settlement is None
        # It was not registered, so it may be entered where it is right.
        async with refused:
            await wait_all_tasks_blocked()
        assert len(backend.requests) == 2


async def test_another_task_of_the_same_body_waits_its_turn() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x"):
            nursery.start_soon(occupy, rooms.turn("a", "y"))
            await wait_all_tasks_blocked()
            assert rooms.statistics().waiting == 1
        nursery.cancel_scope.cancel()


async def test_entering_a_turn_twice_is_refused() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        async with turn:
            await wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="before"):
                await turn.__aenter__()
            nursery.start_soon(self_refused, turn)
            await wait_all_tasks_blocked()
            assert turn.settlement is None
        with pytest.raises(RuntimeError, match="before"):
            await occupy(turn)
    assert len(backend.requests) == 1


async def self_refused(turn: Turn) -> None:
    with pytest.raises(RuntimeError, match="before"):
        await occupy(turn)


# Statistics.


async def test_statistics_count_rooms_live_waiting_and_stopping() -> None:
    backend = Recorder(cancel=ending(takes=1))

    def counts() -> tuple[int, int, int, int]:
        found = rooms.statistics()
        return found.rooms, found.live, found.waiting, found.stopping

    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        assert counts() == (0, 0, 0, 0)
        turns = [rooms.turn(room, "x") for room in ("a", "a", "b")]
        for turn in turns:
            nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
        assert counts() == (2, 2, 1, 0)
        turns[2].stop()
        assert counts() == (2, 2, 1, 1)
        await trio.sleep(2)
        assert counts() == (1, 1, 1, 0)
        rooms.stop("a")
        await trio.sleep(2)
        assert counts() == (0, 0, 0, 0)
        with pytest.raises(AttributeError):
            rooms.statistics().live = 3  # type: ignore[misc]


async def test_a_turn_that_is_over_with_its_block_open_keeps_the_room_and_is_not_live() -> None:
    backend = Recorder(follow=Act(returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
            found = rooms.statistics()
            assert (found.rooms, found.live, found.stopping) == (1, 0, 0)


async def test_a_turn_that_is_over_is_freed_at_once_and_not_at_some_collection() -> None:
    class Brief:
        session = None

        async def start(self, request: Request[object]) -> Brief:
            return self

        async def follow(self, emit: object) -> End:
            return COMPLETED

        async def cancel(self, sent: object) -> None:
            raise AssertionError

    class Content:
        pass

    gc.collect()
    gc.disable()
    try:
        async with open_rooms(Brief()) as rooms:
            kept = []
            for _ in range(3):
                content = Content()
                kept.append(weakref.ref(content))
                async with rooms.turn("a", content) as turn:
                    async for _ in turn:
                        pass
                del turn, content
            await wait_all_tasks_blocked()
            assert [ref() for ref in kept] == [None, None, None]
    finally:
        gc.enable()
