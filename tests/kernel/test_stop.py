"""The stop: one synchronous step, told once, of a turn and not of a room."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import Ending, StopBudget, StopVerdict, open_rooms
from turnstop.events import Text

from .backend import CANCELLED, COMPLETED, Act, Passes, Recorder, ending, hang, occupy, passes


async def test_a_stop_never_waits_and_does_all_it_does_in_one_step() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        heard: list[object] = []
        turn = rooms.turn("a", "x")

        async def read() -> None:
            async with turn:
                async for event in turn:
                    heard.append(event)

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        backend.remote.say(Text("unread"))
        before = rooms.statistics()
        receipt = turn.stop("why", "me")
        # The request is recorded, and the gate is closed.
        assert receipt.verdict is StopVerdict.ASKED
        assert (before.stopping, rooms.statistics().stopping) == (0, 1)
        assert "stopping" in repr(turn)
        backend.remote.say(Text("too late"))
        await wait_all_tasks_blocked()
        assert heard == []
        assert backend.calls == ["start", "follow", "cancel"]
        nursery.cancel_scope.cancel()
    assert turn.settlement is not None
    assert turn.settlement.dropped == 2


@pytest.mark.parametrize("repeat", range(5))
async def test_cancel_is_called_in_the_next_scheduler_pass(repeat: int) -> None:
    backend = Recorder()
    counter = Passes()
    trio.lowlevel.add_instrument(counter)
    found: list[int] = []
    backend.cancel = ending(notify=lambda: found.append(counter.count))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        now = counter.count
        turn.stop()
        await wait_all_tasks_blocked()
    assert found == [now + 1]


async def test_cancel_is_called_in_the_pass_after_the_reveal() -> None:
    counter = Passes()
    trio.lowlevel.add_instrument(counter)
    go = trio.Event()
    found: list[int] = []
    backend = Recorder(
        start=Act(hold=go), cancel=ending(notify=lambda: found.append(counter.count))
    )
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        turn.stop()
        await wait_all_tasks_blocked()
        now = counter.count
        go.set()
        await wait_all_tasks_blocked()
    # start comes back in the next pass, and cancel is one more.
    assert found == [now + 2]


async def test_cancel_is_called_whatever_the_body_does_on_its_way_out() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def body() -> None:
            async with turn:
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(50)

        nursery.start_soon(body)
        await trio.sleep(1)
        rooms.stop("a")
        await wait_all_tasks_blocked()
        assert backend.at("cancel") == [1]
        assert turn.ending is Ending.STOPPED


async def test_the_body_is_cancelled_by_a_stop() -> None:
    async with open_rooms(Recorder()) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            turn.stop()
            await trio.lowlevel.checkpoint()
            raise AssertionError("the body goes on")
        assert turn.ending is Ending.STOPPED


async def test_nothing_is_heard_after_a_stop_not_even_what_the_reader_was_woken_for() -> None:
    backend = Recorder(cancel=hang())
    heard: list[object] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def read() -> None:
            async for event in turn:
                heard.append(event)
            heard.append("end")

        async with turn:
            await wait_all_tasks_blocked()
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            backend.remote.say(Text("woken"))
            turn.stop()
            backend.remote.say(Text("late"))
            await trio.sleep(1)
        assert turn.settlement is not None
        assert turn.settlement.dropped == 2
    assert heard == ["end"]


async def test_a_reader_in_the_body_is_woken_at_once_by_its_cancellation() -> None:
    backend = Recorder(cancel=ending(takes=3))
    woken = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def body() -> None:
            async with turn:
                try:
                    async for _ in turn:
                        pass
                finally:
                    woken.append(trio.current_time())

        nursery.start_soon(body)
        await trio.sleep(1)
        turn.stop()
    assert woken == [1]
    assert trio.current_time() == 4


async def test_a_reader_in_another_task_ends_when_the_turn_is_settled() -> None:
    backend = Recorder(cancel=ending(takes=3))
    ended = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def read() -> None:
            async for _ in turn:
                pass
            ended.append(trio.current_time())

        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        nursery.start_soon(read)
        await trio.sleep(1)
        turn.stop()
    assert ended == [4]


async def test_follow_keeps_reading_and_the_backends_own_end_settles_the_turn() -> None:
    backend = Recorder(cancel=Act())
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        turn.stop()
        await trio.sleep(2)
        # Acknowledged, and not ended.
        assert turn.settlement is None
        assert backend.at("cancel left") == [0]
        backend.remote.finish(CANCELLED)
        await wait_all_tasks_blocked()
        assert turn.settlement is not None
        assert (turn.settlement.asked_at, turn.settlement.sent_at) == (0, 0)
        assert (turn.settlement.acked_at, turn.settlement.ended_at) == (0, 2)
        assert turn.settlement.settled_at == 2


async def test_the_last_frames_of_a_stopped_turn_are_consumed_by_its_own_follow() -> None:
    backend = Recorder(cancel=Act())
    heard: list[object] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        first, second = rooms.turn("a", "x"), rooms.turn("a", "y")

        async def read() -> None:
            async with second:
                async for event in second:
                    heard.append(event)

        nursery.start_soon(occupy, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(read)
        first.stop()
        await trio.sleep(1)
        backend.remote.say(Text("last words of the first"))
        backend.remote.finish(CANCELLED)
        await wait_all_tasks_blocked()
        assert len(backend.remotes) == 2
        backend.remotes[0].say(Text("even later"))
        backend.remote.say(Text("of the second"))
        backend.remote.finish(COMPLETED)
    assert heard == [Text("of the second")]
    assert first.settlement is not None
    assert first.settlement.dropped == 1


async def test_at_most_one_cancel_and_one_kill_whatever_asks_and_how_often() -> None:
    backend = Recorder(cancel=hang(), kill=hang())
    async with trio.open_nursery() as app, open_rooms(backend, budget=StopBudget(2, 1)) as rooms:
        turn = rooms.turn("a", "x", turn_id="t")
        app.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        verdicts = [turn.stop().verdict]
        verdicts += [rooms.stop("a").verdict, rooms.stop("a", turn_id="t").verdict]
        verdicts += [rooms.stop_all().verdict]
        await trio.sleep(1)
        verdicts += [turn.stop().verdict]
        app.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(1.5)
            verdicts += [turn.stop().verdict]
            await rooms.stop("a").settled()
        assert verdicts == [StopVerdict.ASKED] + [StopVerdict.JOINED] * 5
    assert backend.at("cancel") == [0]
    assert backend.at("kill") == [2]
    assert trio.current_time() == 3


async def test_a_stop_that_finds_the_turn_over_cancels_the_body_and_sends_nothing() -> None:
    backend = Recorder()
    heard: list[object] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def read() -> None:
            async for event in turn:
                heard.append(event)

        async with turn:
            await wait_all_tasks_blocked()
            backend.remote.say(Text("unread"))
            backend.remote.finish(COMPLETED)
            await trio.sleep(1)
            assert turn.ending is Ending.FINISHED
            receipt = rooms.stop("a")
            assert receipt.verdict is StopVerdict.ASKED
            assert receipt.turn_ids == (turn.turn_id,)
            nursery.start_soon(read)
            await trio.lowlevel.checkpoint()
            raise AssertionError("the body goes on")
        assert (await receipt.settled()) == (turn.settlement,)
        assert len(rooms._house.watch._first) == 0
        assert turn.settlement is not None
        assert turn.settlement.request is None
        assert turn.settlement.dropped == 1
    assert heard == []
    assert backend.calls == ["start", "follow"]


async def test_a_stop_may_name_a_turn_and_leaves_the_others_of_the_room() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turns = [rooms.turn("a", "x", turn_id=str(n)) for n in range(3)]
        for turn in turns:
            nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
        receipt = rooms.stop("a", turn_id="1")
        assert (receipt.verdict, receipt.turn_ids) == (StopVerdict.ASKED, ("1",))
        assert turns[1].ending is Ending.UNSTARTED
        await wait_all_tasks_blocked()
        assert turns[0].settlement is None
        rooms.stop("a", turn_id="0")
        await wait_all_tasks_blocked()
        assert turns[0].ending is Ending.STOPPED
        assert backend.at("start", "2") == [0]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("turn_id", ["nobody", "elsewhere", "left"])
async def test_a_stop_of_an_id_that_is_not_live_here_is_stale(turn_id: str) -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x", turn_id="left"):
            pass
        async with rooms.turn("a", "x"), rooms.turn("b", "x", turn_id="elsewhere"):
            await wait_all_tasks_blocked()
            receipt = rooms.stop("a", turn_id=turn_id)
            assert (receipt.verdict, receipt.turn_ids) == (StopVerdict.STALE, ())
            assert await receipt.settled() == ()
            await trio.lowlevel.checkpoint()
            assert backend.at("cancel") == []


async def test_a_late_stop_by_id_never_reaches_the_rooms_next_turn() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        first = rooms.turn("a", "x", turn_id="1")
        async with first:
            await wait_all_tasks_blocked()
        async with rooms.turn("a", "y", turn_id="2") as second:
            await wait_all_tasks_blocked()
            assert first.stop().verdict is StopVerdict.STALE
            assert rooms.stop("a", turn_id="1").verdict is StopVerdict.STALE
            await trio.lowlevel.checkpoint()
            assert second.settlement is None
    assert backend.at("cancel", "1") == [0]


async def test_a_turn_id_used_again_names_the_new_turn_only() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        first = rooms.turn("a", "x", turn_id="t")
        async with first:
            await wait_all_tasks_blocked()
        before = first.settlement
        second = rooms.turn("a", "y", turn_id="t")
        async with second:
            await wait_all_tasks_blocked()
            assert rooms.stop("a", turn_id="t", reason="again").verdict is StopVerdict.ASKED
            await trio.sleep_forever()
        assert first.settlement is before
        assert second.settlement is not None
        assert second.settlement.request is not None
        assert second.settlement.request.reason == "again"


async def test_a_stop_of_the_room_stops_all_that_entered_before_and_nothing_after() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turns = [rooms.turn("a", "x", turn_id=str(n)) for n in range(4)]
        for turn in turns[:3]:
            nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
        receipt = rooms.stop("a", reason="all")
        nursery.start_soon(occupy, turns[3])
        assert receipt.turn_ids == ("0", "1", "2")
        found = await receipt.settled()
        assert [s.ending for s in found] == [Ending.STOPPED, Ending.UNSTARTED, Ending.UNSTARTED]
        await wait_all_tasks_blocked()
        assert turns[3].settlement is None
        assert backend.at("start", "3") == [0]
        nursery.cancel_scope.cancel()


async def test_stop_all_reaches_every_turn_of_every_room() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turns = [rooms.turn(room, "x") for room in ("a", "a", "b", "c")]
        for turn in turns:
            nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
        receipt = rooms.stop_all(reason="why", source="me")
        assert set(receipt.turn_ids) == {turn.turn_id for turn in turns}
        for found in await receipt.settled():
            assert found.request is not None
            assert (found.request.kind, found.request.reason) == ("stop_all", "why")
            assert found.request.source == "me"


async def test_a_stop_while_start_runs_waits_for_the_reveal_and_then_cancels() -> None:
    backend = Recorder(start=Act(takes=2), cancel=ending(takes=1))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(1)
        turn.stop()
        await trio.sleep(0.5)
        assert turn.settlement is None
    assert backend.at("cancel") == [2]
    assert turn.settlement is not None
    assert (turn.settlement.ending, turn.settlement.settled_at) == (Ending.STOPPED, 3)
    assert (turn.settlement.asked_at, turn.settlement.sent_at) == (1, 2)


async def test_a_stop_between_the_return_of_start_and_follow_is_told_to_the_backend() -> None:
    go = trio.Event()
    backend = Recorder(start=Act(hold=go))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        go.set()
        turn.stop()  # start is woken and has not come back
        await wait_all_tasks_blocked()
        assert turn.ending is Ending.STOPPED
        assert backend.calls == ["start", "follow", "cancel"]


async def test_an_end_in_the_step_of_the_stop_sends_no_cancel() -> None:
    backend = Recorder(cancel=Act())
    for _ in range(10):
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            turn = rooms.turn("a", "x")
            nursery.start_soon(occupy, turn)
            await wait_all_tasks_blocked()
            backend.remote.finish(COMPLETED)
            turn.stop()
            await wait_all_tasks_blocked()
            assert turn.ending is Ending.FINISHED
            follow_left = backend.log.index(("follow left", turn.turn_id, 0))
            after = [name for name, turn_id, _ in backend.log[follow_left:]]
            assert "cancel" not in after


async def test_the_stopper_returns_before_anything_happened_in_other_tasks() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await wait_all_tasks_blocked()
        turn.stop()
        assert backend.at("cancel") == []
        await passes(2)
        assert backend.at("cancel") == [0]
