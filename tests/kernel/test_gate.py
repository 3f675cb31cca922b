"""Events and questions: emit never waits, asks are answered or silenced, a backlog is bounded."""

from __future__ import annotations

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from turnstop import Ending, open_rooms
from turnstop.events import Ask, Other, Text, Thought, ToolCall, Usage

from .backend import COMPLETED, Recorder, drain, hang

ASK = Ask("1", "approval", "may it?", ("yes", "no"))


async def test_events_arrive_in_order_and_then_they_end() -> None:
    backend = Recorder()
    said = [Text("a"), ToolCall("1", "sh", "started"), Thought("b"), Other("x"), Usage(1, 2)]
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for event in said:
                backend.remote.say(event)
            backend.remote.finish(COMPLETED)
            assert await drain(turn) == said
            assert await drain(turn) == []


async def test_a_waiting_reader_is_given_each_event_at_once() -> None:
    backend = Recorder()
    heard = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

        async def speak() -> None:
            for number in range(3):
                await trio.sleep(1)
                backend.remote.say(Text(str(number)))
            backend.remote.finish(COMPLETED)

        async with rooms.turn("a", "x") as turn:
            nursery.start_soon(speak)
            async for event in turn:
                heard.append((trio.current_time(), event))
    assert heard == [(1, Text("0")), (2, Text("1")), (3, Text("2"))]


async def test_text_merges_while_the_reader_is_behind_and_only_with_its_like() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for event in (
                *(Text("a"), Text("b"), Text("c")),
                *(Thought("d"), Thought("e", raw="second")),
                Text("f"),
                Usage(1),
                *(Text("g"), Text("h", raw="not the last"), Text("i", raw="the last frame")),
            ):
                backend.remote.say(event)
            backend.remote.finish(COMPLETED)
            heard = await drain(turn)
            assert heard == [Text("abc"), Thought("de"), Text("f"), Usage(1), Text("ghi")]
            assert (heard[1].raw, heard[-1].raw) == ("second", "the last frame")


async def test_no_reader_delays_the_terminal_frame() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for number in range(1000):
                backend.remote.say(Other(str(number)))
            backend.remote.finish(COMPLETED)
            await trio.sleep(1)
            assert turn.ending is Ending.FINISHED
            assert len(await drain(turn)) == 1000
        assert turn.settlement is not None
        assert turn.settlement.dropped == 0


async def test_what_is_unread_on_leaving_counts_as_dropped() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for number in range(5):
                backend.remote.say(Other(str(number)))
            backend.remote.finish(COMPLETED)
            await turn.__anext__()
            await wait_all_tasks_blocked()
            assert turn.ending is Ending.FINISHED
            assert rooms.statistics().dropped == 0
        assert turn.settlement is not None
        assert turn.settlement.dropped == 4
        assert rooms.statistics().dropped == 4


async def test_emit_on_a_closed_gate_drops_and_counts_and_never_raises() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.say(Text("before"))
            turn.stop()
            for _ in range(3):
                backend.remote.say(Text("after"))
        assert turn.settlement is not None
        assert turn.settlement.dropped == 4
        backend.remote.say(Text("after the settlement"))
        assert rooms.statistics().dropped == 5


async def test_what_was_read_before_a_stop_is_the_readers_to_keep() -> None:
    backend = Recorder()
    heard = []
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.say(Text("one"))
            async for event in turn:
                heard.append(event)
                turn.stop()
    assert heard == [Text("one")]


async def test_a_reader_that_is_cancelled_loses_no_event() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            with trio.move_on_after(1):
                await turn.__anext__()
            with trio.CancelScope() as scope:
                scope.cancel()
                await turn.__anext__()
            backend.remote.say(Text("one"))
            with trio.CancelScope() as scope:
                scope.cancel()
                await turn.__anext__()
            assert await turn.__anext__() == Text("one")


async def test_a_reader_woken_and_cancelled_in_the_same_pass_loses_no_event() -> None:
    backend = Recorder()
    heard: list[object] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            scope = trio.CancelScope()

            async def read() -> None:
                with scope:
                    heard.append(await turn.__anext__())

            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            backend.remote.say(Text("one"))
            scope.cancel()
            await wait_all_tasks_blocked()
            backend.remote.say(Text("two"))
            backend.remote.finish(COMPLETED)
            heard += await drain(turn)
    assert "".join(event.delta for event in heard if isinstance(event, Text)) == "onetwo"


@pytest.mark.parametrize(
    "order", ["cancel emit", "cancel cancel emit", "emit cancel", "end cancel"]
)
async def test_a_reader_cancelled_and_woken_in_any_order_loses_no_event(order: str) -> None:
    backend = Recorder()
    heard: list[object] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            inner, outer = trio.CancelScope(), trio.CancelScope()

            async def read() -> None:
                with outer, inner:
                    async for event in turn:
                        heard.append(event)

            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            scopes = [inner, outer]
            for what in order.split():
                if what == "cancel":
                    scopes.pop(0).cancel()
                elif what == "emit":
                    backend.remote.say(Other("one"))
                else:
                    backend.remote.say(Other("one"))
                    backend.remote.finish(COMPLETED)
            await wait_all_tasks_blocked()
            backend.remote.finish(COMPLETED)
            await wait_all_tasks_blocked()
            heard += await drain(turn)
            assert turn.ending is Ending.FINISHED
    assert heard == [Other("one")]


async def test_a_cancelled_reader_leaves_the_place_to_another() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            heard: list[object] = []

            async def read() -> None:
                heard.append(await turn.__anext__())

            for _ in range(2):
                with trio.move_on_after(1):
                    await turn.__anext__()
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            backend.remote.say(Other("one"))
            await wait_all_tasks_blocked()
            assert heard == [Other("one")]


async def test_reading_is_a_checkpoint_even_where_events_wait() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.say(Text("one"))
            backend.remote.finish(COMPLETED)
            await wait_all_tasks_blocked()
            with assert_checkpoints():
                await turn.__anext__()
            with trio.CancelScope() as scope:
                scope.cancel()
                await turn.__anext__()
            assert scope.cancelled_caught


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_second_concurrent_reader_is_refused_and_the_first_reads_on(waiting: bool) -> None:
    backend = Recorder()
    heard: list[object] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:

            async def read() -> None:
                async for event in turn:
                    heard.append(event)

            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            if waiting:
                backend.remote.say(Text("one"))
            with pytest.raises(trio.BusyResourceError):
                await turn.__anext__()
            backend.remote.say(Text("two"))
            backend.remote.finish(COMPLETED)
            await wait_all_tasks_blocked()
    assert "".join(event.delta for event in heard if isinstance(event, Text)).endswith("two")


async def test_readers_may_take_turns() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            heard = []

            async def one() -> None:
                heard.append(await turn.__anext__())

            for number in range(3):
                nursery.start_soon(one)
                await wait_all_tasks_blocked()
                backend.remote.say(Other(str(number)))
                await wait_all_tasks_blocked()
            assert heard == [Other("0"), Other("1"), Other("2")]


async def test_emit_has_a_repr_in_every_state() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            assert repr(backend.remote.emit)
            turn.stop()
            assert repr(backend.remote.emit)
        assert repr(backend.remote.emit)
