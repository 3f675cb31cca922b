"""The adapter `parlant` against an engine in memory, on the bridge, in virtual time."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import (
    BackendError,
    BackendLost,
    BackendMisbehaved,
    BackendRefused,
    Ending,
    StopBudget,
)
from turnstop.abc import Emit, How
from turnstop.adapters.parlant import ParlantSession, open_parlant
from turnstop.adapters.parlant._account import Account
from turnstop.events import Ask, Event, Other, Text, ToolCall
from turnstop.testing import Work
from turnstop.testing.recording.parlant import RecordingParlant
from turnstop.testing.recording.parlant._events import (
    EventStore,
    Kind,
    NoSuchSession,
    Session,
    Source,
)
from turnstop.testing.recording.parlant._server import APPLICATION, RecordingServer, ToolContext

if os.environ.get("TURNSTOP_REAL") != "require":
    pytest.importorskip("trio_asyncio", reason="pip install 'turnstop[aio]'")

BUDGET = StopBudget(5.0, 2.0)


@attrs.frozen
class Kitchen:
    engine: RecordingParlant
    rooms: turnstop.Rooms[Any]

    def turn(self, room: str = "kitchen", text: str = "bake") -> turnstop.Turn:
        return self.rooms.turn(room, text)

    async def begun(self, text: str = "bake") -> Work:
        """The newest work for this text, once it is under way."""
        await wait_all_tasks_blocked()
        work = [one for one in self.engine.works if one.text == text][-1]
        assert work.began_at is not None
        return work

    def say(self, work: Work, kind: Kind, data: object) -> None:
        self.engine._processings[work.name].add(kind, data)

    @property
    def tasks(self) -> int:
        """How many tasks work for any message."""
        found = self.engine._processings.values()
        return sum(not task.done() for one in found for task in one._tasks)

    def replace(self, **methods: Callable[..., Awaitable[object]]) -> dict[str, Any]:
        """Have the server's sessions answer otherwise; how they did is returned."""
        assert self.engine.server is not None
        container = self.engine.server.container
        sessions = container[APPLICATION].sessions
        known = {name: getattr(sessions, name) for name in dir(sessions) if name[0] != "_"}
        changed = SimpleNamespace(sessions=SimpleNamespace(**{**known, **methods}))
        self.engine.server.container = {**container, APPLICATION: changed}
        return known


@asynccontextmanager
async def open_kitchen(
    *, sweep: bool = True, budget: StopBudget = BUDGET, **options: Any
) -> AsyncGenerator[Kitchen, None]:
    engine = RecordingParlant()
    options = {"prepare": engine.prepare, "library": engine.library, **options}
    try:
        # A test that waits in vain fails: the adapter looks for events, so time goes on.
        with trio.fail_after(600):
            async with open_parlant(**options) as backend:
                async with turnstop.open_rooms(backend, budget=budget, sweep=sweep) as rooms:
                    yield Kitchen(engine, rooms)
                    engine.let_go()
    finally:
        engine.dying = True


async def read(turn: turnstop.Turn, into: list[Event] | None = None) -> list[Event]:
    events = [] if into is None else into
    async with turn:
        async for event in turn:
            events.append(event)
    return events


async def hold(turn: turnstop.Turn) -> None:
    async with turn:
        await trio.sleep_forever()


def texts(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, Text))


@asynccontextmanager
async def held(
    kitchen: Kitchen, room: str = "kitchen", text: str = "bake"
) -> AsyncGenerator[tuple[turnstop.Turn, Work], None]:
    """A turn under way, and its work; it is over when the block is left."""
    turn = kitchen.turn(room, text)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, turn)
        yield turn, await kitchen.begun(text)


# What is said, and what ends it.


async def test_events_are_told_in_the_common_words(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        turn = kitchen.turn()
        nursery.start_soon(read, turn, events)
        work = await kitchen.begun()
        kitchen.say(work, Kind.MESSAGE, {"message": "one moment ", "tags": ["__preamble__"]})
        call = {"tool_id": "local:bake", "arguments": {}, "result": {"data": {"loaves": 2}}}
        said = {"tool_id": "local:say", "arguments": {}, "result": {"data": "done"}}
        kitchen.say(work, Kind.TOOL, {"tool_calls": [call, said]})
        kitchen.say(work, Kind.CUSTOM, {"picture": 1})
        await trio.sleep(1)
        for piece in ("it ", "is ", "baked"):
            kitchen.engine.order(work, "say", piece)
            await trio.sleep(0.3)
        kitchen.engine.order(work, "finish")
    assert texts(events) == "one moment it is baked"
    assert [event for event in events if not isinstance(event, Text)] == [
        Other("acknowledged"),
        Other("typing"),
        ToolCall("event-6-0", "local:bake", "completed", '{"loaves": 2}'),
        ToolCall("event-6-1", "local:say", "completed", "done"),
        Other("custom"),
        Other("ready"),
    ]
    assert turn.settlement.ending is Ending.FINISHED
    assert not work.told_at


@pytest.mark.parametrize(
    "data", ["lorem", None, 3, {}, {"status": {}}, {"message": 3}, {"tool_calls": 1}]
)
@pytest.mark.parametrize("kind", Kind)
async def test_what_makes_no_sense_in_an_event_ends_no_turn(
    kind: Kind, data: object, autojump_clock: MockClock
) -> None:
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        turn = kitchen.turn()
        nursery.start_soon(read, turn)
        work = await kitchen.begun()
        kitchen.say(work, kind, data)
        kitchen.say(work, Kind.TOOL, {"tool_calls": [None, {}]})
        await trio.sleep(1)
        assert turn.settlement is None
        kitchen.engine.order(work, "finish")
    assert turn.settlement.ending is Ending.FINISHED


async def test_what_is_told_twice_is_heard_once(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        find = kitchen.engine.store.find

        async def find_events(*, session_id: str, trace_id: str, **_: object) -> list[Any]:
            return [*find(session_id, 0, trace_id)[1:] * 2]

        kitchen.replace(find_events=find_events)
        nursery.start_soon(read, kitchen.turn(), events)
        work = await kitchen.begun()
        kitchen.engine.order(work, "say", "once ")
        await trio.sleep(0.5)
        kitchen.say(work, Kind.MESSAGE, {"message": "and whole"})
        await trio.sleep(0.5)
        kitchen.engine.order(work, "finish")
    assert texts(events) == "once and whole"
    assert sum(event == Other("acknowledged") for event in events) == 1


@pytest.mark.parametrize(
    ("said", "stopped", "cancelled", "how"),
    [
        # Told before it has acknowledged the message, the real engine ends without a word.
        ((), True, False, How.CANCELLED),
        # Told before its first step, the task never ran.
        ((), True, True, How.CANCELLED),
        ((), False, True, How.CANCELLED),
        # A hook has declined to answer.
        ((), False, False, How.COMPLETED),
        (("ready",), True, False, How.COMPLETED),
        (("cancelled", "ready"), True, False, How.CANCELLED),
        (("cancelled", "ready"), False, False, How.CANCELLED),
        (("ready", "error"), True, False, How.FAILED),
    ],
)
def test_the_end_is_what_was_said_and_how_the_task_ended(
    said: tuple[str, ...], stopped: bool, cancelled: bool, how: How
) -> None:
    account = Account(1)
    store = EventStore()
    session = store.open().id
    store.add(session, Source.CUSTOMER, Kind.MESSAGE, "t", {"message": "bake"})
    for status in said:
        data = {"status": status, "data": {"stage": "completed"}}
        account.hear(store.add(session, Source.AI_AGENT, Kind.STATUS, "t", data), _Unheard())
    assert account.end(stopped, cancelled, None).how is how


def test_what_was_heard_is_not_read_again_unless_it_grows() -> None:
    account, store = Account(0), EventStore()
    session = store.open().id
    add = partial(store.add, session, Source.AI_AGENT)
    account.hear(add(Kind.STATUS, "t", {"status": "typing"}), _Unheard())
    assert account.offset == 1
    growing = add(Kind.MESSAGE, "t", {"message": "it is", "chunks": ["it ", "is"]})
    for event in (growing, add(Kind.STATUS, "t", {"status": "ready"})):
        account.hear(event, _Unheard())
    assert account.offset == 1
    growing.data = {"message": "it is", "chunks": ["it ", "is", None]}
    account.hear(growing, _Unheard())
    assert account.offset == 2


class _Unheard(Emit):
    def __call__(self, event: Event, /) -> None:
        pass

    async def ask(self, ask: Ask, /) -> object:
        raise NotImplementedError


async def test_ready_is_no_end(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        turn = kitchen.turn()
        nursery.start_soon(read, turn)
        work = await kitchen.begun()
        for stage in ({}, {"stage": "completed"}):
            kitchen.say(work, Kind.STATUS, {"status": "ready", "data": stage})
        await trio.sleep(1)
        assert turn.settlement is None
        kitchen.engine.order(work, "finish")


async def test_a_failure_says_what_failed_and_leaves_no_preamble(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        with pytest.raises(BackendError, match=r"^RuntimeError: no flour left$"):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()
                kitchen.engine.order(work, "fail", "no flour left")
                async for _ in turn:
                    pass
        assert turn.settlement.ending is Ending.FAILED
        assert turn.settlement.clean
        assert not kitchen.tasks


async def test_of_a_chain_of_errors_the_cause_is_told(autojump_clock: MockClock) -> None:
    chain = (
        "ValueError: the oven is cold\n",
        "\nThe above exception was the direct cause of the following exception:\n\n",
        "Exception: Task failed\n",
    )
    async with open_kitchen() as kitchen:
        with pytest.raises(BackendError, match=r"^ValueError: the oven is cold$"):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()
                data = {"status": "error", "data": {"exception": repr([*chain])}}
                kitchen.say(work, Kind.STATUS, data)
                kitchen.engine.order(work, "finish")
                async for _ in turn:
                    pass


async def test_a_preamble_that_outlives_a_failure_and_refuses_to_end_is_named(
    autojump_clock: MockClock,
) -> None:
    async with open_kitchen() as kitchen:
        kitchen.engine.preamble_swallows = True
        with pytest.raises(BackendMisbehaved, match=r"refuses to end.*_be_preamble"):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()
                work.told_at.append(0.0)
                kitchen.engine.order(work, "fail")
                async for _ in turn:
                    pass
        assert not turn.settlement.gone
        assert any("_be_preamble" in name for name in turn.settlement.survivors)


# Stops.


async def test_f22_the_parent_then_the_child_and_no_neighbours_child(
    autojump_clock: MockClock,
) -> None:
    async with open_kitchen() as kitchen, held(kitchen) as (turn, work):
        async with held(kitchen, "garden", "dig") as (other, its):
            kitchen.engine.ends_after = 1.0
            turn.stop()
            await trio.sleep(0.5)
            # The parent cleans up, and its child is left alone for as long.
            assert kitchen.tasks == 6
            await trio.sleep(0.6)
            assert turn.settlement is not None
            assert turn.settlement.ending is Ending.STOPPED
            assert turn.settlement.clean
            assert kitchen.tasks == 3
            assert its.runs
            assert not its.told_at
            kitchen.engine.ends_after = 0.0
            other.stop()
    assert len(work.told_at) == len(its.told_at) == 1


async def test_f23_a_timeout_is_a_stop_and_turns_leave_no_tasks(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        for number in range(50):
            with trio.move_on_after(3):
                async with kitchen.turn(text=f"bake {number}") as turn:
                    await trio.sleep_forever()
            assert turn.settlement.ending is Ending.STOPPED
            assert turn.settlement.request.kind == "cancelled"
            assert not kitchen.tasks
        assert [len(work.told_at) for work in kitchen.engine.works] == [1] * 50
        sessions = {work.session for work in kitchen.engine.works}
        assert len(sessions) == 1


async def test_a_message_that_is_being_emitted_is_emitted_and_the_turn_finished(
    autojump_clock: MockClock,
) -> None:
    async with open_kitchen() as kitchen, held(kitchen) as (turn, work):
        kitchen.engine.order(work, "emit", "the answer", 0.8)
        await trio.sleep(0.1)
        turn.stop()
        await trio.sleep(0.5)
        assert turn.settlement is None
        await trio.sleep(0.3)
        assert turn.settlement.ending is Ending.FINISHED
        assert turn.settlement.clean
        assert turn.settlement.settled_at == pytest.approx(work.ended_at)
        assert len(work.told_at) == 1
        said = [one.data for one in kitchen.engine.store.all_of(str(work.session))]
        assert {"message": "the answer"} in said
        assert not any(one.get("status") == "cancelled" for one in said)


async def test_an_emission_that_takes_too_long_is_ended_by_force(autojump_clock: MockClock) -> None:
    async with open_kitchen(budget=StopBudget(1.0, 1.0)) as kitchen:
        async with held(kitchen) as (turn, work):
            kitchen.engine.order(work, "emit", "the answer", 3600)
            await trio.sleep(0.1)
            turn.stop()
        assert turn.settlement.ending is Ending.KILLED
        assert turn.settlement.clean
        assert not kitchen.tasks


async def test_a_stop_before_the_engine_has_said_a_word(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        async with kitchen.turn() as turn:
            turn.stop()
        assert turn.settlement.ending in (Ending.STOPPED, Ending.UNSTARTED)
        assert turn.settlement.clean
        assert not kitchen.tasks


async def test_a_task_that_ends_without_a_word_for_being_told_is_stopped(
    autojump_clock: MockClock,
) -> None:
    """As the real one, when it is told before it has acknowledged the message."""
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        kitchen.engine.held.clear()
        turn = kitchen.turn()
        nursery.start_soon(hold, turn)
        await kitchen.begun()
        turn.stop()
        await wait_all_tasks_blocked()
        kitchen.engine.held.set()
    assert turn.settlement.ending is Ending.STOPPED
    assert kitchen.engine.works[0].ended_at is not None


async def test_a_stubborn_task_is_named_and_stops_nobody_else(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        async with held(kitchen) as (turn, work):
            kitchen.engine.swallows = True
            turn.stop()
        assert turn.settlement.ending is Ending.UNCONFIRMED
        assert f"process-session({work.session})" in "".join(turn.settlement.survivors)
        # The room goes on elsewhere, and nobody waits for the lock that its old session has.
        kitchen.engine.swallows = False
        for room in ("kitchen", "garden"):
            async with held(kitchen, room, f"dig {room}") as (later, its):
                assert its.session != work.session
                later.stop()
            assert later.settlement.ending is Ending.STOPPED
        assert work.runs


async def test_a_tool_in_flight_is_swept(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen, held(kitchen, "garden", "dig") as (other, its):
        kitchen.engine.call_tool(its)
        async with held(kitchen) as (turn, work):
            kitchen.engine.call_tool(work)
            await wait_all_tasks_blocked()
            assert len(kitchen.engine.tools) == 2
            turn.stop()
        assert turn.settlement.ending is Ending.STOPPED
        assert turn.settlement.clean
        assert [its.name in name for name in kitchen.engine.tools] == [True]
        other.stop()


async def test_a_tool_that_may_not_be_swept_goes_on_and_is_named(autojump_clock: MockClock) -> None:
    async with open_kitchen(sweep=False) as kitchen, held(kitchen) as (turn, work):
        kitchen.engine.call_tool(work)
        await wait_all_tasks_blocked()
        turn.stop()
        await wait_all_tasks_blocked()
        assert turn.settlement.ending is Ending.STOPPED
        assert ["_bake" in name for name in turn.settlement.survivors] == [True]
        assert len(kitchen.engine.tools) == 1


async def test_a_tool_that_is_called_after_its_turn_is_refused(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        async with held(kitchen) as (turn, work):
            turn.stop()
        server = kitchen.engine.server
        assert server is not None
        call = server._plugin_server.tools["bake"].function
        with pytest.raises(RuntimeError, match="the turn that called this tool is over"):
            call(ToolContext(str(work.session), "late"))
        # One of a session that is no room's is not ours to refuse.
        call(ToolContext("another", "call")).close()


async def test_a_refused_message_calls_no_tools(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        async with held(kitchen) as (turn, work):
            turn.stop()
        kitchen.engine.refuse_starts()
        with pytest.raises(BackendRefused):
            await read(kitchen.turn())
        assert kitchen.engine.server is not None
        call = kitchen.engine.server._plugin_server.tools["bake"].function
        with pytest.raises(RuntimeError, match="the turn that called this tool is over"):
            call(ToolContext(str(work.session), "late"))


# Sessions.


async def test_a_message_from_elsewhere_takes_the_turns_place(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        server = kitchen.engine.server
        assert server is not None
        with pytest.raises(BackendLost, match="not from here: another message came into session"):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()
                sessions = server.container[APPLICATION].sessions
                post = partial(
                    sessions.create_customer_message,
                    session_id=work.session,
                    message="no, a cake",
                    source=Source.CUSTOMER,
                )
                asyncio_task(server, post())
                async for _ in turn:
                    pass
        assert turn.settlement.ending is Ending.FAILED
        assert turn.settlement.gone
        later = kitchen.engine.works[-1]
        assert later.runs
        kitchen.engine.order(later, "finish")
        await wait_all_tasks_blocked()


def asyncio_task(server: RecordingServer, coroutine: Any) -> None:
    """Run something on the engine's loop that is none of ours."""
    server._requests.append(server._context.copy().run(server._loop.create_task, coroutine))


async def test_sessions_are_opened_as_the_application_says(autojump_clock: MockClock) -> None:
    asked: list[object] = []

    async def open_session(server: Any, room: str) -> Session:
        asked.append(room)
        opened: Session = await server.container[APPLICATION].sessions.create(
            customer_id="me", agent_id="agent-1"
        )
        return opened

    async with open_kitchen(open_session=open_session) as kitchen:
        for _ in range(2):
            async with held(kitchen) as (turn, _):
                turn.stop()
        assert asked == ["kitchen"]


async def test_sessions_are_of_the_customer_and_the_agent(autojump_clock: MockClock) -> None:
    made: list[object] = []
    async with open_kitchen(customer_id="me", moderation="auto", port=8801) as kitchen:
        server = kitchen.engine.server
        assert server is not None
        assert server.options == {"host": "127.0.0.1", "port": 8801}
        sessions = server.container[APPLICATION].sessions

        async def create(**options: object) -> Session:
            made.append(options)
            found: Session = await sessions.create(customer_id="", agent_id="")
            return found

        async def create_customer_message(**options: Any) -> object:
            made.append(options["moderation"])
            return await sessions.create_customer_message(**options)

        kitchen.replace(create=create, create_customer_message=create_customer_message)
        async with held(kitchen) as (turn, _):
            turn.stop()
    assert made == [{"customer_id": "me", "agent_id": "agent-1"}, "auto"]


async def test_what_works_for_a_turn_may_ask_for_its_server(autojump_clock: MockClock) -> None:
    """As `parlant.sdk.Server.current` does, in hooks and tools."""
    async with open_kitchen() as kitchen:
        server = kitchen.engine.server
        assert server is not None
        found = []

        async def create_customer_message(**options: Any) -> object:
            found.append(server._current_server_var.get())
            return await honest(**options)

        honest = kitchen.replace(create_customer_message=create_customer_message)[
            "create_customer_message"
        ]
        async with held(kitchen) as (turn, _):
            turn.stop()
        assert found == [server]


def test_a_session_says_which_it_is() -> None:
    assert str(ParlantSession("s-1")) == "session s-1"


# Bad input.


async def no_session(**_: object) -> object:
    return None


async def nameless_session(**_: object) -> object:
    return SimpleNamespace(id=None)


async def cancelled(**_: object) -> object:
    raise asyncio.CancelledError


async def broken(**_: object) -> object:
    raise NoSuchSession("session-0")


async def silent(**_: object) -> object:
    return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("method", "answer", "error", "says"),
    [
        ("create", no_session, BackendMisbehaved, "the session of room 'kitchen' has no id"),
        ("create", nameless_session, BackendMisbehaved, "has no id"),
        ("create", cancelled, BackendMisbehaved, "cancelled"),
        ("create", broken, BackendRefused, "Parlant opened no session: NoSuchSession"),
        ("create_customer_message", no_session, BackendMisbehaved, "of type NoneType"),
        ("create_customer_message", cancelled, BackendMisbehaved, "cancelled"),
        ("create_customer_message", broken, BackendRefused, "took no message in session"),
    ],
)
async def test_a_bad_answer_to_a_start_is_told_in_the_block_that_asked(
    method: str,
    answer: Callable[..., Awaitable[object]],
    error: type[BackendError],
    says: str,
    autojump_clock: MockClock,
) -> None:
    async with open_kitchen() as kitchen, held(kitchen, "garden", "dig") as (other, its):
        kitchen.replace(**{method: answer})
        with pytest.raises(error, match=says):
            await read(kitchen.turn())
        assert its.runs
        assert other.settlement is None
        other.stop()
    assert other.settlement.ending is Ending.STOPPED


async def test_what_began_in_spite_of_a_bad_answer_is_ended(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        assert kitchen.engine.server is not None
        sessions = kitchen.engine.server.container[APPLICATION].sessions

        async def take_and_forget(**options: Any) -> object:
            await sessions.create_customer_message(**options)
            return None

        async def take_and_raise(**options: Any) -> object:
            await sessions.create_customer_message(**options)
            raise OSError("the disk is full")

        for method, error in ((take_and_forget, BackendMisbehaved), (take_and_raise, OSError)):
            kitchen.replace(create_customer_message=method)
            with pytest.raises(error):
                await read(kitchen.turn())
            assert not kitchen.tasks


async def test_what_began_in_spite_of_a_bad_answer_and_refuses_to_end_keeps_nobody(
    autojump_clock: MockClock,
) -> None:
    async with open_kitchen() as kitchen:
        assert kitchen.engine.server is not None
        sessions = kitchen.engine.server.container[APPLICATION].sessions

        async def take_and_forget(**options: Any) -> object:
            await sessions.create_customer_message(**options)
            return SimpleNamespace(message="bake")

        kitchen.engine.swallows = True
        kitchen.replace(create_customer_message=take_and_forget)
        with pytest.raises(BackendMisbehaved, match=r"of type Simple.* refuses to end") as caught:
            await read(kitchen.turn())
        assert "bake" not in str(caught.value)
        assert trio.current_time() < BUDGET.cancel_within


@pytest.mark.parametrize("method", ["create", "create_customer_message"])
async def test_a_start_that_is_never_answered_is_given_up_at_the_bound(
    method: str, autojump_clock: MockClock
) -> None:
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        kitchen.replace(**{method: silent})
        turn = kitchen.turn()
        nursery.start_soon(hold, turn)
        await wait_all_tasks_blocked()
        turn.stop()
    assert turn.settlement.ending is Ending.UNCONFIRMED
    assert turn.settlement.settled_at - turn.settlement.asked_at == pytest.approx(7.0)


async def test_what_a_late_start_has_called_is_ended_with_it(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        kitchen.engine.held.clear()
        async with held(kitchen) as (turn, work):
            await trio.sleep(1)
            kitchen.engine.call_tool(work)
            await wait_all_tasks_blocked()
            assert len(kitchen.engine.tools) == 1
            turn.stop()
        assert turn.settlement.ending is Ending.UNCONFIRMED
        await wait_all_tasks_blocked()
        assert not kitchen.tasks
        assert not kitchen.engine.tools


async def test_nobody_reads_on_when_a_turn_is_over(autojump_clock: MockClock) -> None:
    reads: list[str] = []
    async with open_kitchen() as kitchen:

        async def find_events(**options: Any) -> object:
            reads.append(options["trace_id"])
            return await honest(**options)

        honest = kitchen.replace(find_events=find_events)["find_events"]
        async with held(kitchen) as (turn, _):
            await trio.sleep(1)
            turn.stop()
        before = len(reads)
        assert 10 <= before <= 13
        await trio.sleep(10)
        assert len(reads) == before


@pytest.mark.parametrize("answer", [cancelled, broken, no_session])
async def test_events_that_cannot_be_read_fail_the_turn_and_end_its_work(
    answer: Callable[..., Awaitable[object]], autojump_clock: MockClock
) -> None:
    async with open_kitchen() as kitchen, held(kitchen, "garden", "dig") as (other, its):
        with pytest.raises(BackendError):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()

                async def find_events(*, trace_id: str, **options: Any) -> object:
                    read = answer if trace_id == work.name else honest
                    return await read(trace_id=trace_id, **options)

                honest = kitchen.replace(find_events=find_events)["find_events"]
                async for _ in turn:
                    pass
        assert turn.settlement.ending is Ending.FAILED
        assert work.ended_at is not None
        assert its.runs
        other.stop()


@pytest.mark.parametrize("works_on", [False, True])
async def test_a_last_look_that_fails_is_gone_where_nothing_works_on(
    works_on: bool, autojump_clock: MockClock
) -> None:
    async with open_kitchen() as kitchen:
        kitchen.engine.preamble_swallows = works_on
        with pytest.raises(BackendLost, match="cannot be read"):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()
                await trio.sleep(0.05)
                if works_on:
                    work.told_at.append(0.0)
                kitchen.replace(find_events=broken)
                kitchen.engine.order(work, "fail" if works_on else "finish")
                async for _ in turn:
                    pass
        assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FAILED, not works_on)
        # What is gone needs no cancel.
        assert (turn.settlement.sent_at is None) is not works_on


async def test_an_error_in_a_callback_hurts_no_room(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_kitchen() as kitchen, held(kitchen) as (turn, work):
        assert kitchen.engine.server is not None
        kitchen.engine.server._loop.call_soon(lambda: 1 / 0)
        await trio.sleep(1)
        assert turn.settlement is None
        assert work.runs
        turn.stop()
    assert turn.settlement.ending is Ending.STOPPED
    assert "ZeroDivisionError" in caplog.text


async def test_an_engine_that_blocks_the_loop_holds_everybody_up_and_nobody_for_good() -> None:
    async with open_kitchen() as kitchen:
        async with held(kitchen) as (turn, _), held(kitchen, "garden", "dig") as (other, _):
            assert kitchen.engine.server is not None
            kitchen.engine.server._loop.call_soon(time.sleep, 0.2)
            turn.stop()
            other.stop()
        for one in (turn, other):
            assert one.settlement.ending is Ending.STOPPED
            assert one.settlement.settled_at - one.settlement.asked_at < 3.0


PARLANT = {
    "__init__": "",
    "core/__init__": "",
    "core/app_modules/__init__": "",
    "core/app_modules/sessions": "Moderation = str",
    "core/application": "class Application: ...",
    "core/background_tasks": "class BackgroundTaskService: ...",
    "core/customers": "class CustomerStore:\n    GUEST_ID = 'guest'",
    "core/sessions": "class EventSource:\n    CUSTOMER = 'customer'",
    "core/tracer": "class Tracer: ...",
    "sdk": "import threading\nBY = threading.current_thread()\ndef Server(**_):\n    exit()",
}


async def test_parlant_is_imported_while_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in PARLANT.items():
        file = tmp_path / "parlant" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for name in [one for one in sys.modules if one.split(".")[0] == "parlant"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.3.2")
    before = {*sys.modules}
    try:
        with pytest.raises(BackendRefused, match="gave up"):
            async with open_parlant(RecordingParlant().prepare):
                raise AssertionError("it was opened")
        assert sys.modules["parlant.sdk"].BY is not threading.main_thread()
    finally:
        for name in {*sys.modules} - before:
            if name.split(".")[0] == "parlant":
                del sys.modules[name]


async def test_content_that_is_no_text_is_refused(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        with pytest.raises(BackendRefused, match="is asked by a text") as caught:
            await read(kitchen.rooms.turn("kitchen", b"bake"))
        assert "bake" not in str(caught.value)
        assert not kitchen.engine.works


async def test_a_processing_task_that_raises_fails_the_turn(autojump_clock: MockClock) -> None:
    async with open_kitchen() as kitchen:
        with pytest.raises(BackendError, match="the engine raised TypeError"):
            async with kitchen.turn() as turn:
                work = await kitchen.begun()
                kitchen.engine.order(work, "say", None)  # type: ignore[arg-type]
                async for _ in turn:
                    pass
        assert turn.settlement.clean
        assert not kitchen.tasks


# The server.


async def test_a_server_that_ends_fails_its_turns_and_takes_no_more(
    autojump_clock: MockClock,
) -> None:
    async with open_kitchen() as kitchen:
        with pytest.raises(BackendLost):
            async with kitchen.turn() as turn:
                await kitchen.begun()
                kitchen.engine.die()
                async for _ in turn:
                    pass
        assert turn.settlement.gone
        await trio.sleep(1)
        with pytest.raises(BackendLost, match="the Parlant server has ended: open it again"):
            await read(kitchen.turn())


async def open_badly(**options: Any) -> None:
    async with open_kitchen(**options):
        raise AssertionError("it opened")


async def test_an_error_of_prepare_leaves_as_it_is(autojump_clock: MockClock) -> None:
    bang = ZeroDivisionError("mine")

    async def prepare(server: object) -> str:
        raise bang

    with pytest.raises(ZeroDivisionError) as caught:
        await open_badly(prepare=prepare)
    assert caught.value is bang


async def test_a_prepare_that_makes_no_agent_is_told_so(autojump_clock: MockClock) -> None:
    async def prepare(server: object) -> None:
        pass

    with pytest.raises(BackendMisbehaved, match="the agent that `prepare` returns has no id"):
        await open_badly(prepare=prepare)


@pytest.mark.parametrize("poll_every", [0.0, -1.0, float("nan")])
async def test_a_wrong_argument_is_told_at_once(poll_every: float) -> None:
    with pytest.raises(ValueError, match="poll_every is a number of seconds above 0"):
        await open_badly(poll_every=poll_every)


async def exit_program(*_: object) -> None:
    raise SystemExit(3)


async def exit_in_a_task(server: Any, *_: object) -> None:
    task = asyncio.create_task(exit_program())
    server._requests.append(task)
    await asyncio.get_running_loop().create_future()


async def cancel_itself(*_: object) -> None:
    raise asyncio.CancelledError


async def end(*_: object) -> None:
    pass


@pytest.mark.parametrize("leave", [exit_program, exit_in_a_task, cancel_itself, end])
async def test_a_server_that_does_not_come_up_is_refused_and_ends_no_program(
    leave: Callable[..., Awaitable[None]], autojump_clock: MockClock
) -> None:
    engine = RecordingParlant()
    kind = type("GivesUp", (RecordingServer,), {"__aexit__": leave})
    library = attrs.evolve(engine.library, server=partial(kind, engine))
    with pytest.raises(BackendRefused, match=r"gave up.*a port that is taken"):
        await open_badly(prepare=engine.prepare, library=library)


async def test_a_program_that_ends_itself_is_not_held_up(autojump_clock: MockClock) -> None:
    with pytest.raises(SystemExit):
        async with open_kitchen():
            raise SystemExit(4)


async def test_a_server_does_not_keep_the_signals(autojump_clock: MockClock) -> None:
    class TakesSignals(RecordingServer):
        async def __aexit__(self, *error: object) -> None:
            kept = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                await super().__aexit__(*error)  # type: ignore[arg-type]
            finally:
                signal.signal(signal.SIGINT, kept)

    engine = RecordingParlant()
    library = attrs.evolve(engine.library, server=partial(TakesSignals, engine))
    before = signal.getsignal(signal.SIGINT)
    async with open_kitchen(prepare=engine.prepare, library=library):
        assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGINT) is before


async def test_h3_rooms_whose_loop_would_close_first_are_not_opened(
    autojump_clock: MockClock,
) -> None:
    engine = RecordingParlant()
    async with trio.open_nursery() as nursery:
        opened: list[Any] = []

        async def open_inside(
            task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        ) -> None:
            async with open_parlant(engine.prepare, library=engine.library) as backend:
                opened.append(backend)
                task_status.started()
                await trio.sleep_forever()

        await nursery.start(open_inside)
        with pytest.raises(RuntimeError, match="would close before these rooms"):
            async with turnstop.open_rooms(opened[0]):
                raise AssertionError("they opened")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("found", ["3.3.1", "3.3.3", "4.0"])
async def test_another_version_is_refused_by_name(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    with pytest.raises(ImportError, match=rf"parlant {found} is here.*3\.3\.2") as caught:
        await open_badly(library=None)
    assert "python -m pip install 'turnstop[parlant]'" in str(caught.value)
