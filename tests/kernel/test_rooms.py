"""What an application is given: rooms, turns, receipts, settlements, statistics."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

import turnstop
from turnstop import (
    BackendLost,
    BackendRefused,
    Ending,
    Rooms,
    StopBudget,
    StopReceipt,
    StopVerdict,
    Turn,
    open_rooms,
)
from turnstop.abc import End, How, current_turn
from turnstop.events import Other, Usage

from .backend import COMPLETED, FAILED, Act, Recorder, Remote, ending, hang, occupy

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


async def test_turn_ids_are_made_up_and_unique() -> None:
    async with open_rooms(Recorder()) as rooms, open_rooms(Recorder()) as others:
        ids = {rooms.turn("a", "x").turn_id for _ in range(50)}
        ids |= {others.turn("a", "x").turn_id for _ in range(50)}
        assert len(ids) == 100
        assert rooms.turn("a", "x", turn_id="mine").turn_id == "mine"


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


# Receipts.


async def test_a_stop_of_a_room_without_turns_is_nothing() -> None:
    async with open_rooms(Recorder()) as rooms:
        for receipt in (rooms.stop("a"), rooms.stop_all()):
            assert (receipt.verdict, receipt.turn_ids) == (StopVerdict.NOTHING, ())
            assert await receipt.settled() == ()
        assert rooms._house.doors == {}


async def test_of_several_verdicts_the_first_stands_for_all() -> None:
    assert [verdict.name for verdict in StopVerdict] == ["ASKED", "JOINED", "STALE", "NOTHING"]
    async with open_rooms(Recorder(cancel=ending(takes=1))) as rooms, trio.open_nursery() as nurse:
        turns = [rooms.turn("a", "x", turn_id=str(n)) for n in range(2)]
        nurse.start_soon(occupy, turns[0])
        await wait_all_tasks_blocked()
        turns[0].stop()
        nurse.start_soon(occupy, turns[1])
        await wait_all_tasks_blocked()
        receipt = rooms.stop("a")
        assert (receipt.verdict, receipt.turn_ids) == (StopVerdict.ASKED, ("0", "1"))
        assert rooms.stop("a").verdict is StopVerdict.JOINED
        assert rooms.stop_all().verdict is StopVerdict.JOINED


async def test_asked_stands_for_all_in_whatever_order_they_are_found() -> None:
    async with open_rooms(Recorder(cancel=ending(takes=1))) as rooms, trio.open_nursery() as nurse:
        turns = [rooms.turn("a", "x", turn_id=str(n)) for n in range(3)]
        for turn in turns:
            nurse.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
        turns[2].stop()
        receipt = rooms.stop("a")
        assert (receipt.verdict, receipt.turn_ids) == (StopVerdict.ASKED, ("0", "1", "2"))


async def test_waiting_on_a_receipt_is_a_checkpoint() -> None:
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        turn.stop()
        for receipt in (rooms.stop("b"), turn.stop()):
            with assert_checkpoints():
                await receipt.settled()


async def test_retire_is_a_checkpoint() -> None:
    async with open_rooms(Recorder()) as rooms:
        with assert_checkpoints():
            await rooms.retire("a")


async def test_a_receipt_waits_for_the_settlements_and_not_for_the_room() -> None:
    async def body() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async with open_rooms(Recorder(cancel=ending(takes=2))) as rooms, trio.open_nursery() as nurse:
        turn, waiter = rooms.turn("a", "x"), rooms.turn("a", "y")
        nurse.start_soon(lambda: occupy(turn, inside=body))
        await wait_all_tasks_blocked()
        nurse.start_soon(occupy, waiter)
        await wait_all_tasks_blocked()
        receipt = rooms.stop("a")
        found = await receipt.settled()
        assert trio.current_time() == 2
        assert found == (turn.settlement, waiter.settlement)
        assert await receipt.settled() == found


async def test_a_waiter_on_a_receipt_that_is_cancelled_leaves_the_stop_running() -> None:
    async with open_rooms(Recorder(cancel=ending(takes=2))) as rooms, trio.open_nursery() as nurse:
        turn = rooms.turn("a", "x")
        nurse.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        receipt = turn.stop()
        with trio.move_on_after(1):
            await receipt.settled()
        assert (trio.current_time(), turn.settlement) == (1, None)
        (found,) = await receipt.settled()
        assert found.settled_at == 2


async def test_several_tasks_wait_on_one_settlement() -> None:
    found = []
    async with open_rooms(Recorder(cancel=ending(takes=2))) as rooms, trio.open_nursery() as nurse:
        turn = rooms.turn("a", "x")
        nurse.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        receipt = turn.stop()

        async def wait() -> None:
            found.append(await receipt.settled())

        for _ in range(3):
            nurse.start_soon(wait)
    assert found == [(turn.settlement,)] * 3


async def test_a_stop_of_a_turn_that_has_left_is_stale_and_of_a_new_one_unstarted() -> None:
    async with open_rooms(Recorder()) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            pass
        assert turn.stop().verdict is StopVerdict.STALE
        assert turn.stop().turn_ids == ()
        new = rooms.turn("a", "y")
        receipt = new.stop("never mind", "me")
        assert (receipt.verdict, receipt.turn_ids) == (StopVerdict.ASKED, (new.turn_id,))
        (found,) = await receipt.settled()
        assert (found.ending, found.gone) == (Ending.UNSTARTED, True)
        assert found.request is not None
        assert (found.request.kind, found.request.reason, found.request.source) == (
            "stop",
            "never mind",
            "me",
        )


# Settlements.


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("turn", "stop"),
        ("room", "stop"),
        ("all", "stop_all"),
        ("left", "left"),
        ("error", "left"),
        ("cancelled", "cancelled"),
        ("closing", "closing"),
        ("retire", "retire"),
    ],
)
async def test_the_settlement_says_who_asked_and_when(way: str, kind: str) -> None:
    backend = Recorder(cancel=ending(takes=1))
    before = datetime.now(UTC)
    async with trio.open_nursery() as nursery:
        async with open_rooms(backend) as rooms:
            turn = rooms.turn("a", "x")
            scope = trio.CancelScope()
            leave = trio.Event()

            async def body() -> None:
                await leave.wait()
                if way == "error":
                    raise KeyError

            async def run() -> None:
                with scope:
                    try:
                        await occupy(turn, inside=body)
                    except KeyError:
                        pass

            nursery.start_soon(run)
            await trio.sleep(2)
            if way == "turn":
                turn.stop("why", "me")
            elif way == "room":
                rooms.stop("a", reason="why", source="me")
            elif way == "all":
                rooms.stop_all(reason="why", source="me")
            elif way == "cancelled":
                scope.cancel()
            elif way == "retire":
                await rooms.retire("a")
            elif way != "closing":
                leave.set()
            if way != "closing":
                await trio.sleep(2)
    found = turn.settlement
    assert found is not None
    assert found.request is not None
    assert found.request.kind == kind
    told = way in ("turn", "room", "all")
    assert (found.request.reason, found.request.source) == (("why", "me") if told else ("", ""))
    assert (found.asked_at, found.settled_at) == (2, 3)
    assert found.asked_wall is not None
    assert before <= found.asked_wall <= datetime.now(UTC)
    assert found.asked_wall.tzinfo is UTC


async def test_the_first_who_asked_is_who_asked() -> None:
    async with open_rooms(Recorder(cancel=ending(takes=2))) as rooms, trio.open_nursery() as nurse:
        turn = rooms.turn("a", "x")
        nurse.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        turn.stop("first")
        rooms.stop("a", reason="second")
        await trio.sleep(1)
        rooms.stop_all(reason="third")
    assert turn.settlement is not None
    assert turn.settlement.request is not None
    assert turn.settlement.request.reason == "first"


async def test_a_failed_turns_own_cancel_was_asked_by_nobody() -> None:
    backend = Recorder(follow=Act(raises=BackendLost("x")), cancel=Act(takes=1))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            await occupy(turn)
    found = turn.settlement
    assert found is not None
    assert (found.request, found.asked_at, found.asked_wall) == (None, None, None)
    assert (found.sent_at, found.acked_at, found.ended_at, found.settled_at) == (0, 1, None, 1)


async def test_a_settlement_is_frozen_and_becomes_json() -> None:
    backend = Recorder(
        cancel=ending(End(How.CANCELLED, usage=Usage(1, 2)), raises=None),
        leftovers=Act(returns=["sh"]),
        sweep=Act(raises=ValueError("not permitted")),
    )
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x", turn_id="t") as turn:
            await wait_all_tasks_blocked()
            turn.stop("why", "me")
    found = turn.settlement
    assert found is not None
    with pytest.raises(AttributeError):
        found.gone = False  # type: ignore[misc]
    made: dict[str, Any] = json.loads(json.dumps(found.to_json()))
    wall = found.asked_wall
    assert wall is not None
    assert made == {
        "room": "a",
        "turn_id": "t",
        "ending": "stopped",
        "proof": "event",
        "gone": True,
        "request": {"kind": "stop", "reason": "why", "source": "me"},
        "asked_at": 0,
        "sent_at": 0,
        "acked_at": 0,
        "ended_at": 0,
        "settled_at": 0,
        "asked_wall": wall.isoformat(),
        "errors": ["ValueError: not permitted"],
        "survivors": ["sh"],
        "dropped": 0,
        "usage": {"input_tokens": 1, "output_tokens": 2},
        "clean": False,
    }


async def test_a_settlement_of_nothing_becomes_json_too() -> None:
    async with open_rooms(Recorder(follow=Act(returns=COMPLETED))) as rooms:
        async with rooms.turn("a", "x") as turn:
            async for _ in turn:
                pass
    assert turn.settlement is not None
    made = json.loads(json.dumps(turn.settlement.to_json()))
    assert (made["request"], made["asked_wall"], made["usage"], made["clean"]) == (
        None,
        None,
        None,
        True,
    )


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


# Retire.


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
