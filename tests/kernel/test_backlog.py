"""The backlog: a reader that is too slow fails its turn."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import BackendError, Ending, Proof, Turn, open_rooms
from turnstop._gate import MAX_EVENTS, MAX_TEXT
from turnstop.abc import How, Silenced
from turnstop.events import Ask, Event, Other, Text, Thought, ToolCall, Usage

from .backend import CLAIMED, COMPLETED, Act, Recorder, drain, ending, hang

ASK = Ask("1", "approval", "may it?", ("yes", "no"))


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


async def test_one_event_of_any_size_is_no_backlog() -> None:
    backend = Recorder()
    event = ToolCall("1", "sh", "running", "x" * (10 * 1024 * 1024))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            backend.remote.say(event)
            backend.remote.finish(COMPLETED)
            assert await drain(turn) == [event]
        assert turn.ending is Ending.FINISHED


async def test_single_events_that_were_read_do_not_count_either() -> None:
    backend = Recorder()
    event = ToolCall("1", "sh", "running", "x" * (3 * 512 * 1024))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            for _ in range(3):
                backend.remote.say(event)
                backend.remote.say(event)
                assert await turn.__anext__() == event
                assert await turn.__anext__() == event
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
