"""Functions of this program as remote turns: async, and in threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import turnstop
from turnstop import Ending, Proof, StopBudget
from turnstop.abc import Silenced, current_turn
from turnstop.adapters.local import (
    AsyncFunction,
    Stopped,
    ThreadFunction,
    ThreadWork,
    Work,
    open_local,
)
from turnstop.events import Ask, Text


@asynccontextmanager
async def rooms_of(
    fn: AsyncFunction | ThreadFunction, *, within: float = 5
) -> AsyncIterator[turnstop.Rooms[object]]:
    budget = StopBudget(cancel_within=within, kill_within=1)
    async with open_local(fn) as local, turnstop.open_rooms(local, budget=budget) as rooms:
        yield rooms


async def test_an_async_function_streams_and_finishes(autojump_clock: trio.abc.Clock) -> None:
    async def agent(work: Work) -> None:
        work.emit(Text(f"{work.room}: {work.content}"))
        await trio.sleep(1)
        work.emit(Text(f"; {current_turn.get() == work.turn_id}"))

    async with rooms_of(agent) as rooms, rooms.turn("r", "hi") as turn:
        said = [event async for event in turn]
    assert said == [Text("r: hi"), Text("; True")]
    assert turn.ending is Ending.FINISHED


async def test_a_stop_waits_for_the_functions_own_clean_up(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def agent(work: Work) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async with rooms_of(agent) as rooms:
        with trio.move_on_after(1):
            async with rooms.turn("r", None) as turn:
                await trio.sleep_forever()
        assert trio.current_time() == 3
    assert turn.settlement is not None
    assert turn.ending is Ending.STOPPED
    assert turn.settlement.ended_at == turn.settlement.acked_at == 3


async def test_an_async_function_that_will_not_end_is_named_and_the_room_goes_on(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def agent(work: Work) -> None:
        if work.content == "refuse":
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async with rooms_of(agent) as rooms:
        with trio.move_on_after(1):
            async with rooms.turn("r", "refuse") as turn:
                await trio.sleep_forever()
        assert trio.current_time() == 1 + 5 + 1
        assert rooms.statistics().stragglers > 0
        async with rooms.turn("r", "go on") as after:
            assert [event async for event in after] == []
    assert turn.settlement is not None
    assert turn.ending is Ending.UNCONFIRMED
    assert any("follow() of turn" in name for name in turn.settlement.survivors)
    assert after.ending is Ending.FINISHED
    assert trio.current_time() == 100


async def test_a_functions_error_reaches_its_reader_as_itself(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def agent(work: Work) -> None:
        await trio.sleep(1)
        raise LookupError("no such file")

    async with rooms_of(agent) as rooms:
        turn = rooms.turn("r", None)

        async def read() -> None:
            async with turn:
                async for _ in turn:
                    pass

        with pytest.raises(LookupError, match="no such file"):
            await read()
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.gone) == (Ending.FAILED, True)
    assert trio.current_time() == 1


async def test_an_error_on_the_way_out_of_a_stop_is_a_stop(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def agent(work: Work) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("while cleaning up")

    async with rooms_of(agent) as rooms:
        async with rooms.turn("r", None) as turn:
            await trio.sleep(1)
    assert turn.ending is Ending.STOPPED


async def test_a_session_is_kept_and_is_fresh_after_work_that_may_be_alive(
    autojump_clock: trio.abc.Clock,
) -> None:
    seen: list[object] = []

    async def agent(work: Work) -> None:
        seen.append(work.session)
        work.session = len(seen)
        if work.content == "refuse":
            with trio.CancelScope(shield=True):
                await trio.sleep(50)

    async with rooms_of(agent) as rooms:
        for content in ("a", "refuse", "b", "c"):
            with trio.move_on_after(1):
                async with rooms.turn("r", content) as turn:
                    async for _ in turn:
                        pass
    assert seen == [None, 1, None, 3]


async def test_an_ask_is_answered_or_silenced(autojump_clock: trio.abc.Clock) -> None:
    heard: list[object] = []

    async def agent(work: Work) -> None:
        heard.append(await work.ask(Ask("1", "approval", "rm -rf?", ("yes", "no"))))
        try:
            await work.ask(Ask("2", "question", "why?"))
        except Silenced:
            heard.append("silenced")
            raise

    async with rooms_of(agent) as rooms:
        async with rooms.turn("r", None) as turn:
            async for event in turn:
                assert isinstance(event, Ask)
                if event.id == "2":
                    break
                assert turn.answer(event, "no")
        assert not turn.answer(event, "too late")
    assert heard == ["no", "silenced"]
    assert turn.ending is Ending.STOPPED


async def test_a_thread_stops_at_its_next_checkpoint() -> None:
    began, stopped = trio.Event(), threading.Event()

    def agent(work: ThreadWork) -> None:
        work.emit(Text("on it"))
        trio.from_thread.run_sync(began.set)
        try:
            while True:
                work.checkpoint()
        except Stopped:
            stopped.set()
            raise

    async with rooms_of(agent) as rooms:
        async with rooms.turn("r", None) as turn:
            async for event in turn:
                assert event == Text("on it")
                await began.wait()
                turn.stop()
    assert turn.settlement is not None
    assert stopped.is_set()
    assert (turn.ending, turn.settlement.survivors) == (Ending.STOPPED, ())
    # A flag is set, which nothing answers: the thread's end is all that there is.
    assert turn.settlement.acked_at is None


async def test_a_thread_that_never_looks_is_abandoned_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began, let_go, over = trio.Event(), threading.Event(), threading.Event()

    def agent(work: ThreadWork) -> None:
        if work.content == "stubborn":
            trio.from_thread.run_sync(began.set)
            let_go.wait()
            over.set()

    budget = StopBudget(cancel_within=0.05, kill_within=0.05)
    try:
        async with open_local(agent) as local, turnstop.open_rooms(local, budget=budget) as rooms:
            async with rooms.turn("r", "stubborn") as turn:
                await began.wait()
            assert not over.is_set()
            async with rooms.turn("r", "quick") as after:
                assert [event async for event in after] == []
    finally:
        let_go.set()
    assert turn.settlement is not None
    assert turn.ending is Ending.UNCONFIRMED
    assert turn.settlement.survivors == (f"thread of turn {turn.turn_id}",)
    assert after.ending is Ending.FINISHED
    assert "cannot be killed" in caplog.text
    await trio.to_thread.run_sync(over.wait)


async def test_threads_that_end_while_they_are_named_disturb_nothing() -> None:
    let_go, named = threading.Event(), []

    class LetGo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            named.append(record.getMessage())
            let_go.set()
            while local.alive:  # type: ignore[attr-defined]
                time.sleep(0.001)

    handler = LetGo()
    logger = logging.getLogger("turnstop.adapters.local")
    logger.addHandler(handler)
    budget = StopBudget(cancel_within=0.05, kill_within=0.05)
    try:
        async with open_local(lambda work: let_go.wait()) as local:
            async with turnstop.open_rooms(local, budget=budget) as rooms:
                async with rooms.turn("r", None), rooms.turn("s", None):
                    await wait_all_tasks_blocked()
    finally:
        let_go.set()
        logger.removeHandler(handler)
    assert len(named) == 2


async def test_a_threads_question_ends_with_its_turn() -> None:
    heard: list[object] = []

    def agent(work: ThreadWork) -> None:
        heard.append(work.ask(Ask("1", "question", "ready?")))
        work.ask(Ask("2", "question", "sure?"))
        heard.append("never")

    async with rooms_of(agent) as rooms:
        async with rooms.turn("r", None) as turn:
            async for event in turn:
                assert isinstance(event, Ask)
                if event.id == "2":
                    turn.stop()
                turn.answer(event, "yes")
    assert heard == ["yes"]
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.proof) == (Ending.STOPPED, Proof.EVENT)


class AsyncAgent:
    async def __call__(self, work: Work) -> None:
        work.emit(Text("hello"))


async def test_an_object_with_an_async_call_is_an_async_function() -> None:
    async with rooms_of(AsyncAgent()) as rooms, rooms.turn("r", None) as turn:
        assert [event.delta async for event in turn] == ["hello"]


async def _agent(work: Work) -> None:
    raise AssertionError


async def _talk(work: Work) -> AsyncGenerator[Text, None]:
    yield Text("hello")


def _count(work: ThreadWork) -> Generator[Text, None, None]:
    yield Text("one")


@pytest.mark.parametrize(
    ("fn", "way_out"),
    [(lambda work: _agent(work), "thread=False"), (_talk, "emit events"), (_count, "emit events")],
)
async def test_what_has_done_nothing_has_not_finished(
    fn: Callable[..., object], way_out: str
) -> None:
    async with rooms_of(fn) as rooms:
        turn = rooms.turn("r", None)

        async def read() -> None:
            async with turn:
                async for _ in turn:
                    pass

        with pytest.raises(TypeError, match=way_out):
            await read()
    assert turn.ending is Ending.FAILED


async def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="a local backend is a function"):
        async with open_local("agent"):  # type: ignore[arg-type]
            pass


async def test_an_async_function_that_ends_late_is_stopped_and_not_killed(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def agent(work: Work) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(6.5)
        await trio.sleep_forever()

    async with rooms_of(agent) as rooms:
        with trio.move_on_after(1):
            async with rooms.turn("r", None) as turn:
                await trio.sleep_forever()
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.settled_at) == (Ending.STOPPED, 6.5)


async def test_a_thread_that_fails_is_gone_and_its_room_keeps_its_session() -> None:
    seen: list[object] = []

    def agent(work: ThreadWork) -> None:
        seen.append(work.session)
        work.session = "kept"
        if work.content == "fail":
            raise LookupError("no such file")

    async with rooms_of(agent) as rooms:
        turn = rooms.turn("r", "fail")

        async def read() -> None:
            async with turn:
                async for _ in turn:
                    pass

        with pytest.raises(LookupError, match="no such file"):
            await read()
        async with rooms.turn("r", "go on") as after:
            assert [event async for event in after] == []
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.clean) == (Ending.FAILED, True)
    assert seen == [None, "kept"]
