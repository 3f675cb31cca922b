"""Events and questions: emit never waits, asks are answered or silenced, a backlog is bounded."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from turnstop import BackendError, Ending, Proof, Turn, open_rooms
from turnstop._gate import MAX_EVENTS, MAX_TEXT
from turnstop.abc import End, How, Silenced
from turnstop.events import Ask, Event, Other, Text, Thought, ToolCall, Usage

from .backend import CLAIMED, COMPLETED, Act, Recorder, ending, hang, occupy

ASK = Ask("1", "approval", "may it?", ("yes", "no"))


async def drain(turn: Turn) -> list[Event]:
    return [event async for event in turn]


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


# Questions.


class Asking(Recorder):
    """Its turn asks at 1, in a task beside the one that reads the terminal frame."""

    async def ask(self, emit: Any) -> None:
        try:
            self.log.append(("answered", str(await emit.ask(ASK)), trio.current_time()))
        except Silenced:
            self.log.append(("silenced", "", trio.current_time()))

    async def start(self, request: Any) -> Any:
        remote = self._reveal(request.turn_id)
        original = remote.follow

        async def follow(emit: Any) -> End:
            remote.emit = emit
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    await trio.sleep(1)
                    await self.ask(emit)

                nursery.start_soon(ask)
                end: End = await original(emit)
                return end

        remote.follow = follow
        return remote


async def test_an_ask_waits_for_a_persons_answer() -> None:
    backend = Asking()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            ask = await turn.__anext__()
            assert ask == ASK
            assert isinstance(ask, Ask)
            await trio.sleep(4)
            assert turn.answer(ask, "yes") is True
            await wait_all_tasks_blocked()
            assert ("answered", "yes", 5) in backend.log
            # Nobody waits for it any more.
            assert turn.answer(ask, "no") is False


@pytest.mark.parametrize("way", ["stop", "end"])
async def test_an_ask_is_silenced_when_the_turn_is_stopped_or_over(way: str) -> None:
    backend = Asking(cancel=hang())
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(3)
        if way == "stop":
            turn.stop()
        else:
            # The asks are open until the terminal frame has been followed to its end.
            backend.remote.finish(COMPLETED)
            turn.stop()
        await trio.sleep(1)
        assert ("silenced", "", 3) in backend.log
        assert turn.answer(ASK, "yes") is False


async def test_an_ask_of_a_turn_that_is_over_is_silenced_by_its_end() -> None:
    silenced = []
    backend = Recorder(follow=Act(takes=3, returns=COMPLETED))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

        async def serve() -> None:
            await trio.sleep(1)
            try:
                await backend.remote.emit.ask(ASK)  # type: ignore[union-attr]
            except Silenced:
                silenced.append(trio.current_time())

        async with rooms.turn("a", "x"):
            nursery.start_soon(serve)
            await trio.sleep(5)
    assert silenced == [3]


async def test_an_ask_after_the_stop_or_the_end_is_silenced_at_once_and_counted() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        emit = backend.remote.emit
        assert emit is not None
        with pytest.raises(Silenced):
            await emit.ask(ASK)
        assert turn.answer(ASK, "yes") is False
        assert rooms.statistics().dropped == 1


async def test_an_answer_and_a_stop_in_one_step_answer() -> None:
    backend = Asking(cancel=hang())
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(2)
            assert turn.answer(ASK, "yes") is True
            turn.stop()
            assert turn.answer(ASK, "no") is False
        assert [name for name, _, _ in backend.log if name in ("answered", "silenced")] == [
            "answered"
        ]


async def test_an_ask_that_is_cancelled_is_withdrawn() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            emit = backend.remote.emit
            assert emit is not None
            with trio.move_on_after(1):
                await emit.ask(ASK)
            assert turn.answer(ASK, "yes") is False
            # And may be asked again.
            nursery.start_soon(emit.ask, ASK)
            await wait_all_tasks_blocked()
            assert turn.answer(ASK, "yes") is True


async def test_an_ask_whose_id_is_open_is_refused_and_the_first_stays_open() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            emit = backend.remote.emit
            assert emit is not None
            nursery.start_soon(emit.ask, ASK)
            await wait_all_tasks_blocked()
            with pytest.raises(ValueError, match="'1'"):
                await emit.ask(ASK)
            assert await turn.__anext__() == ASK
            assert turn.answer(ASK, "yes") is True


async def test_two_asks_are_answered_apart() -> None:
    backend = Recorder()
    found = {}
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()

            async def serve(ask: Ask) -> None:
                found[ask.id] = await backend.remote.emit.ask(ask)  # type: ignore[union-attr]

            one, two = Ask("1", "question", "a?"), Ask("2", "question", "b?")
            nursery.start_soon(serve, one)
            nursery.start_soon(serve, two)
            await wait_all_tasks_blocked()
            turn.answer(two, "second")
            turn.answer(one, "first")
            await wait_all_tasks_blocked()
    assert found == {"1": "first", "2": "second"}


# The backlog.


async def overflow(backend: Recorder, *events: Event) -> tuple[Turn, BaseException]:
    caught: BaseException | None = None
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        try:
            async with turn:
                await trio.sleep(1)
                for event in events:
                    backend.remote.say(event)
                await trio.sleep_forever()
        except BaseException as error:
            caught = error
    assert caught is not None
    return turn, caught


async def test_a_backlog_of_more_than_ten_thousand_events_fails_the_turn() -> None:
    backend = Recorder(cancel=ending(takes=1))
    turn, caught = await overflow(backend, *[Other("x")] * (MAX_EVENTS + 3))
    found = turn.settlement
    assert found is not None
    assert isinstance(caught, BackendError)
    assert "reader too slow" in str(caught)
    assert (found.ending, found.errors, found.gone) == (Ending.FAILED, (caught,), True)
    assert found.request is not None
    assert (found.request.kind, found.asked_at, found.settled_at) == ("backlog", 1, 2)
    assert found.dropped == MAX_EVENTS + 3
    assert backend.at("cancel") == [1]


async def test_a_backlog_of_exactly_ten_thousand_events_is_fine() -> None:
    assert MAX_EVENTS == 10_000
    assert MAX_TEXT == 4 * 1024 * 1024
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for _ in range(MAX_EVENTS):
                backend.remote.say(Other("x"))
            for _ in range(10):
                await turn.__anext__()
                backend.remote.say(Other("y"))
            backend.remote.finish(COMPLETED)
            assert len(await drain(turn)) == MAX_EVENTS


@pytest.mark.parametrize(
    "event",
    [
        Text("x" * 1024),
        Thought("x" * 1024),
        Text("\N{EURO SIGN}" * 342),
        ToolCall("1", "sh", "running", "x" * 1024),
        Ask("1", "question", "x" * 1024),
    ],
)
async def test_a_backlog_of_more_than_four_mebibytes_of_text_fails_the_turn(event: Event) -> None:
    turn, caught = await overflow(Recorder(), *[event] * (4 * 1024 + 1))
    assert (turn.ending, "reader too slow" in str(caught)) == (Ending.FAILED, True)


async def test_raw_frames_do_not_count_and_what_was_read_neither() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for _ in range(3):
                for _ in range(4 * 1024 - 1):
                    backend.remote.say(Text("x" * 1024, raw="y" * 4096))
                backend.remote.say(Usage(1, raw="z" * 5_000_000))
                assert len((await turn.__anext__()).delta) == 1024 * (4 * 1024 - 1)  # type: ignore[union-attr]
                await turn.__anext__()
            backend.remote.say(Text("a" * (4 * 1024 * 1024)))
            await wait_all_tasks_blocked()
            assert turn.settlement is None
            assert rooms.statistics().stopping == 0


async def test_a_backlog_that_says_it_completed_is_finished_and_raises_nothing() -> None:
    backend = Recorder(cancel=ending(COMPLETED))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
            for _ in range(MAX_EVENTS + 1):
                backend.remote.say(Other("x"))
            await trio.sleep_forever()
        assert turn.settlement is not None
        assert turn.ending is Ending.FINISHED
        assert [str(error)[:15] for error in turn.settlement.errors] == ["reader too slow"]


@pytest.mark.parametrize(
    ("act", "gone", "proof"),
    [(hang(), False, None), (ending(CLAIMED), False, Proof.CLAIMED), (ending(), True, Proof.EVENT)],
)
async def test_a_backlog_is_failed_and_gone_only_as_far_as_it_is_known(
    act: Act, gone: bool, proof: Proof | None
) -> None:
    turn, _ = await overflow(Recorder(cancel=act), *[Other("x")] * (MAX_EVENTS + 1))
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.gone) == (Ending.FAILED, gone)
    assert turn.settlement.proof is proof


async def test_an_ask_on_top_of_a_full_backlog_is_silenced() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError, match="too slow"):
            async with turn:
                await wait_all_tasks_blocked()
                for _ in range(MAX_EVENTS):
                    backend.remote.say(Other("x"))
                assert backend.remote.emit is not None
                with pytest.raises(Silenced):
                    await backend.remote.emit.ask(ASK)
                await trio.lowlevel.checkpoint()


async def test_a_stop_before_the_backlog_passes_is_no_failure() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            turn.stop()
            for _ in range(MAX_EVENTS + 5):
                backend.remote.say(Other("x"))
            await trio.sleep_forever()
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.errors) == (Ending.STOPPED, ())
        assert turn.settlement.dropped == MAX_EVENTS + 5


async def test_events_are_frozen_and_raw_is_neither_compared_nor_shown() -> None:
    assert Text("a", raw={"secret": 1}) == Text("a")
    assert "secret" not in repr(Text("a", raw={"secret": 1}))
    for event in (Text("a"), Thought("a"), ToolCall("1", "n", "started"), ASK, Usage(), Other("k")):
        assert event.raw is None
        with pytest.raises(AttributeError):
            event.raw = 1  # type: ignore[misc]
    assert How("silent") is How.SILENT
