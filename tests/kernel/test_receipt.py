"""What a stop answers, and what a settlement says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from turnstop import (
    BackendLost,
    Ending,
    StopVerdict,
    open_rooms,
)
from turnstop._receipt import join
from turnstop.abc import End, How
from turnstop.events import Usage

from .backend import COMPLETED, Act, Recorder, ending, occupy

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


@pytest.mark.parametrize("order", ["abc", "cab", "bca", "acb"])
async def test_of_several_receipts_the_first_verdict_stands_for_all(order: str) -> None:
    async with open_rooms(Recorder(cancel=ending(takes=1))) as rooms, trio.open_nursery() as nurse:
        for room in "ab":
            nurse.start_soon(occupy, rooms.turn(room, "x", turn_id=room))
            await wait_all_tasks_blocked()
        rooms.stop("a")
        joined = join(rooms.stop(room) for room in order)
        assert (joined.verdict, {*joined.turn_ids}) == (StopVerdict.ASKED, {"a", "b"})
        joined = join(rooms.stop(room) for room in order)
        assert joined.verdict is StopVerdict.JOINED
        assert join([rooms.stop("c")]).verdict is StopVerdict.NOTHING
        assert [found.room for found in await joined.settled()] == [*order.replace("c", "")]


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
