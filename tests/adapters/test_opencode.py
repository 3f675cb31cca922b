"""The opencode adapter over a server in memory: what is sent when, and what ends a turn."""

from __future__ import annotations

import json
import math
import os
import sys
import types
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import turnstop
import turnstop.abc
from turnstop import (
    BackendError,
    BackendLost,
    BackendMisbehaved,
    BackendRefused,
    Ending,
    StopBudget,
    Turn,
)
from turnstop.events import Ask, Event, Text, ToolCall
from turnstop.transports.orphans import ProcessAddress
from turnstop.transports.proctable import Marked, TableEntry

try:
    import httpx2

    from turnstop.adapters.opencode import OpenCodeSession, open_opencode
    from turnstop.adapters.opencode._address import to_address
    from turnstop.adapters.opencode._checking import check
    from turnstop.adapters.opencode._left import Processes
    from turnstop.adapters.opencode._plugin import CALL, SESSION
    from turnstop.adapters.opencode._server import Server, Settings, _abort_all
    from turnstop.adapters.opencode._wire import Wire
    from turnstop.testing.recording.opencode import URL, RecordingOpenCode
    from turnstop.testing.recording.opencode._http import Request, answer
    from turnstop.testing.recording.opencode._session import ABORTED, Session
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

BUDGET = StopBudget(cancel_within=2.0, kill_within=1.0)


@attrs.define
class World:
    server: RecordingOpenCode
    rooms: turnstop.Rooms[Any]
    nursery: trio.Nursery
    turns: list[Turn] = attrs.field(factory=list)
    heard: dict[str, list[Event]] = attrs.field(factory=dict)
    errors: dict[str, Exception] = attrs.field(factory=dict)

    def begin(self, text: str, room: str = "kitchen") -> Turn:
        turn = self.rooms.turn(room, text, turn_id=text)
        self.heard[text] = []
        self.nursery.start_soon(self._take, turn, text)
        return turn

    async def _take(self, turn: Turn, text: str) -> None:
        try:
            async with turn:
                async for event in turn:
                    self.heard[text].append(event)
        except BackendError as error:
            self.errors[text] = error

    async def begun(self, text: str, room: str = "kitchen") -> Turn:
        turn = self.begin(text, room)
        await trio.testing.wait_all_tasks_blocked(0.01)
        return turn

    def said(self, text: str) -> str:
        return "".join(one.delta for one in self.heard[text] if isinstance(one, Text))

    def asks(self, text: str) -> list[Ask]:
        return [one for one in self.heard[text] if isinstance(one, Ask)]

    @property
    def session(self) -> Session:
        """The first one."""
        return next(iter(self.server.sessions.values()))

    def sent(self, *ends: str) -> list[str]:
        """The requests whose path ends so, in order."""
        return [call for call in self.server.calls if call.endswith(ends)]


@asynccontextmanager
async def open_world(budget: StopBudget = BUDGET, **options: Any) -> AsyncGenerator[World, None]:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server, **options) as backend:
            async with turnstop.open_rooms(backend, budget=budget) as rooms:
                yield World(server, rooms, nursery)
        nursery.cancel_scope.cancel()


async def quiet(seconds: float = 0.1) -> None:
    await trio.sleep(seconds)


def ending(turn: Turn) -> Ending:
    assert turn.settlement is not None
    return turn.settlement.ending


async def take_and_never_run(session: Session, body: Any) -> httpx2.Response:
    """Stands for the answer to a prompt whose run an abort has ended before it was told of."""
    user = {"id": body["messageID"], "role": "user"}
    session.messages.append({"info": user, "parts": []})
    session.tell("message.updated", info=user)
    return answer(None, 204)


async def test_f13_a_parked_ask_is_refused_before_the_one_abort(autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.ask(world.server.works[0])
        await quiet()
        turn.stop()
        await quiet()
        assert ending(turn) is Ending.STOPPED
        replies = [call for call in world.server.calls if "/permission/" in call]
        aborts = world.sent("/abort")
        assert (len(replies), len(aborts)) == (1, 1)
        assert world.server.calls.index(replies[0]) < world.server.calls.index(aborts[0])
        assert world.server.works[0].replies == ["reject"]
        assert not world.server.asked


async def test_f13_without_an_ask_there_is_one_abort_and_no_reply(autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        turn.stop()
        await quiet()
        assert ending(turn) is Ending.STOPPED
        assert len(world.sent("/abort")) == 1
        assert world.sent("/reply") == []


async def test_f14_a_stop_during_a_timeouts_abort_sends_none_of_its_own(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        world.server.cancels = "held"
        with trio.move_on_after(0.5):
            async with world.rooms.turn("kitchen", "first") as turn:
                world.nursery.start_soon(stop_later, turn, 1.0)
                await trio.sleep_forever()
        assert ending(turn) is Ending.UNCONFIRMED
        assert turn.settlement is not None
        assert turn.settlement.request is not None
        assert turn.settlement.request.kind == "cancelled"
        assert len(world.sent("/abort")) == 1


async def stop_later(turn: Turn, seconds: float) -> None:
    await trio.sleep(seconds)
    turn.stop()


async def test_f15_a_late_idle_neither_speaks_nor_ends_the_next_turn(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        first = await world.begun("first")
        first.stop()
        await quiet()
        second = await world.begun("second")
        for _ in range(3):
            world.session.go_idle()
            world.session.tell("session.error", error=ABORTED)
        world.server.say_end_again(world.server.works[0])
        await quiet()
        assert second.settlement is None
        world.server.say(world.server.works[1], "still here")
        world.server.finish(world.server.works[1])
        await quiet()
        assert (ending(first), ending(second)) == (Ending.STOPPED, Ending.FINISHED)
        assert world.said("second") == "still here"


async def test_c16_sub_agents_are_aborted_before_their_parent_each_once(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        children = [world.server.set_to_work(world.server.works[0]) for _ in range(3)]
        for child in children:
            child.deaf = 0
        await quiet()
        turn.stop()
        await quiet()
        told = [call.split("/")[2] for call in world.sent("/abort")]
        assert told == [*sorted(child.id for child in children), world.session.id]
        assert all(one.run is None for one in world.server.sessions.values())
        assert turn.settlement is not None
        assert turn.settlement.clean


async def test_c17_where_sub_agents_cannot_be_enumerated_the_parent_is_aborted_and_it_is_said(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.set_to_work(world.server.works[0])
        await quiet()
        fail(world, monkeypatch, lambda asked: asked.path[-1] == "children")
        turn.stop()
        await quiet(3.0)
        assert world.sent("/abort")[-1].split("/")[2] == world.session.id
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.STOPPED
        assert ["children unknown" in str(one) for one in turn.settlement.survivors] == [True]


def fail(world: World, monkeypatch: pytest.MonkeyPatch, which: Callable[[Request], bool]) -> None:
    honest = world.server.answer

    async def answered(asked: Request) -> httpx2.Response:
        if which(asked):
            return answer({"name": "UnknownError"}, 500)
        return await honest(asked)

    monkeypatch.setattr(world.server, "answer", answered)


async def test_c34_after_an_abort_that_may_still_come_the_next_turn_is_where_it_cannot_reach(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        first = await world.begun("first")
        world.server.cancels = "held"
        first.stop()
        first.stop()
        await quiet()
        # It completes by itself, and the abort is still on its way.
        world.server.finish(world.server.works[0])
        await quiet()
        assert ending(first) is Ending.FINISHED
        second = await world.begun("second")
        await quiet(0.3)
        prompts = [call.split("/")[2] for call in world.sent("/prompt_async")]
        assert len(set(prompts)) == 2
        assert len(world.sent("/fork")) == 1
        # The same conversation, by another name.
        assert world.server.works[1].session == world.server.works[0].session
        assert len(world.sent("/abort")) == 1
        assert second.settlement is None
        world.server.cancels = "obeyed"


async def test_c34_the_next_turn_waits_a_little_for_an_aborts_answer(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        honest = world.server.answer

        async def slow(asked: Request) -> httpx2.Response:
            if asked.path[-1] == "abort":
                await trio.sleep(0.15)
                return answer(True)
            return await honest(asked)

        first = await world.begun("first")
        monkeypatch.setattr(world.server, "answer", slow)
        stopped = trio.current_time()
        first.stop()
        world.server.finish(world.server.works[0])
        second = world.begin("second")
        await quiet(0.3)
        assert ending(first) is Ending.FINISHED
        assert second.settlement is None
        assert world.server.works[1].asked_at == pytest.approx(stopped + 0.15)
        assert world.sent("/fork") == []
        monkeypatch.undo()


async def test_the_end_that_an_abort_brings_is_waited_for_and_not_asked_for(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it asks it reads nothing; opencode is idle, answers the abort, and then tells the end.

    As where a tool takes a quarter of a second to die.
    """
    async with open_world() as world:
        honest = world.server.answer

        async def answered(asked: Request) -> httpx2.Response:
            if asked.path[-1] != "abort":
                return await honest(asked)
            world.session.go_idle()
            await trio.sleep(0.2)
            world.nursery.start_soon(end_later)
            return answer(True)

        async def end_later() -> None:
            await trio.sleep(0.1)
            world.server._end(world.session, ABORTED)

        turn = await world.begun("first")
        monkeypatch.setattr(world.server, "answer", answered)
        asked = trio.current_time()
        turn.stop()
        await quiet(0.6)
        assert ending(turn) is Ending.STOPPED
        assert turn.settlement is not None
        assert turn.settlement.ended_at == pytest.approx(asked + 0.3)
        assert world.sent("/message", "/status") == []


async def test_an_abort_that_comes_before_the_run_is_sent_again(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a server that has just been begun: it answers true, says idle, and the turn runs on."""
    async with open_world() as world:
        honest = world.server._prompt

        async def slow(session: Session, body: Any) -> httpx2.Response:
            world.nursery.start_soon(begin_later, session, body)
            return answer(None, 204)

        async def begin_later(session: Session, body: Any) -> None:
            await trio.sleep(1.0)
            await honest(session, body)

        monkeypatch.setattr(world.server, "_prompt", slow)
        turn = await world.begun("first")
        turn.stop()
        await quiet(0.5)
        assert turn.settlement is None
        await quiet(1.0)
        assert ending(turn) is Ending.STOPPED
        assert len(world.sent("/abort")) == 2
        assert len(world.server.works[0].told_at) == 1


async def test_a_run_that_an_abort_has_ended_before_it_was_told_of_is_taken_back(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of it any more: that it will not run is certain once its message is gone."""
    async with open_world(StopBudget(5.0, 1.0)) as world:
        monkeypatch.setattr(world.server, "_prompt", take_and_never_run)
        turn = await world.begun("first")
        asked = trio.current_time()
        turn.stop()
        await quiet(4.0)
        assert ending(turn) is Ending.STOPPED
        assert turn.settlement is not None
        assert turn.settlement.ended_at == pytest.approx(asked + 0.5)
        assert world.session.messages == []
        monkeypatch.undo()
        second = await world.begun("second")
        world.server.finish(world.server.works[0])
        await quiet()
        assert ending(second) is Ending.FINISHED


async def test_an_abort_before_the_first_answer_ends_the_turn_without_one(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the real one does between busy and its first message: there never is an answer."""

    def end(session: Session, *_: object) -> None:
        assert session.run is not None
        session.messages.pop()
        session.run = None
        session.go_idle()
        session.go_idle()

    async with open_world() as world:

        def take(session: Session, body: Any, work: Any) -> Any:
            honest(session, body, work)
            session.run.answer["parentID"] = "nobody's"  # type: ignore[union-attr]
            return session.run

        honest = Session.take
        monkeypatch.setattr(Session, "take", take)
        monkeypatch.setattr(world.server, "_end", end)
        turn = await world.begun("first")
        turn.stop()
        await quiet(0.5)
        assert ending(turn) is Ending.STOPPED
        assert turn.settlement is not None
        assert turn.settlement.gone


async def test_a_turn_goes_on_through_a_compaction(autojump_clock: object) -> None:
    """opencode adds messages of its own, and what answers them answers the turn."""
    async with open_world() as world:
        turn = await world.begun("first")
        session = world.session
        assert session.run is not None
        done = {**session.run.answer, "finish": "tool-calls", "time": {"completed": 3}}
        session.tell("message.updated", info=done)
        session.tell("message.updated", info={"id": "msg_compaction", "role": "user"})
        summary = {"id": "msg_summary", "parentID": "msg_compaction", "role": "assistant"}
        session.tell("message.updated", info=summary)
        part = {"id": "prt_s", "type": "text", "text": "in short", "messageID": "msg_summary"}
        session.tell("message.part.updated", part=part)
        await quiet()
        assert turn.settlement is None
        assert world.said("first") == "in short"
        ended = {**summary, "finish": "stop", "time": {"completed": 4}}
        session.tell("message.updated", info=ended)
        session.run = None
        session.go_idle()
        await quiet()
        assert ending(turn) is Ending.FINISHED


async def test_a_rejected_permission_lets_the_turn_end_by_itself(autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.ask(world.server.works[0])
        await quiet()
        turn.answer(world.asks("first")[0], "whatever")
        await quiet()
        assert world.server.works[0].replies == ["reject"]
        world.server._end(world.session, finish="tool-calls")
        await quiet()
        assert ending(turn) is Ending.FINISHED


async def test_a_permission_that_comes_after_the_stop_is_refused_and_shown_to_nobody(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.cancels = "held"
        turn.stop()
        await quiet()
        world.server.ask(world.server.works[0])
        await quiet()
        assert world.server.works[0].replies == ["reject"]
        assert world.asks("first") == []


async def test_a_question_is_answered_by_its_options(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        question = {"question": "which one?", "options": [{"label": "red"}, {"label": "blue"}]}
        properties = {"id": "que_1", "sessionID": world.session.id, "questions": [question]}
        world.server.asked["que_1"] = (world.server.works[0], properties)
        world.session.say("question.asked", properties)
        await quiet()
        (ask,) = world.asks("first")
        assert (ask.kind, ask.text, ask.choices) == ("question", "which one?", ("red", "blue"))
        turn.answer(ask, "blue")
        await quiet()
        assert world.sent("/question/que_1/reply")
        assert world.server.works[0].replies == [{"answers": [["blue"]]}]
        turn.stop()


async def test_what_fell_into_a_gap_is_heard_after_it_and_nothing_twice(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        work = world.server.works[0]
        world.server.say(work, "one ")
        await quiet()
        world.server.cut()
        world.server.say(work, "two ")
        world.server.ask(work)
        await quiet(0.5)
        world.server.say(work, "three")
        await quiet()
        # "three" does not follow "one", and the server keeps no text that is not whole.
        assert world.said("first") == "one "
        assert len(world.asks("first")) == 1
        world.server.finish(work)
        await quiet()
        assert world.said("first") == "one two three"
        assert ending(turn) is Ending.FINISHED


@pytest.mark.parametrize("stored", ["", "one two "])
async def test_a_part_that_began_in_a_gap_is_heard_whole_and_once(
    stored: str, autojump_clock: object
) -> None:
    """Whatever the server has stored of it, pieces that are heard later may be in that or not."""
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.cut()
        world.server.say(world.server.works[0], "one ")
        world.session.messages[-1]["parts"][0]["text"] = stored
        await quiet(0.01)
        assert world.sent("/message") == []
        world.server.say(world.server.works[0], "two ")
        await quiet(0.5)
        world.server.say(world.server.works[0], "three")
        await quiet()
        assert world.said("first") == stored
        world.server.finish(world.server.works[0])
        await quiet()
        assert world.said("first") == "one two three"
        assert ending(turn) is Ending.FINISHED


NO_EVENTS = {
    "no properties": {"type": "x", "properties": None},
    "a list of properties": {"type": "x", "properties": []},
    "no type": {"properties": {}},
    "a list": [],
    "deeper than can be read": "[" * 200_000,
}


@pytest.mark.parametrize("name", NO_EVENTS)
async def test_what_is_no_event_breaks_the_stream_and_no_room(
    name: str, autojump_clock: object
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        told = NO_EVENTS[name]
        for stream in world.server._streams:
            stream.say_raw(f"data: {told if isinstance(told, str) else json.dumps(told)}\n\n")
        await quiet(0.5)
        assert turn.settlement is None
        assert len(world.sent("/event")) == 2
        world.server.finish(world.server.works[0])
        await quiet()
        assert ending(turn) is Ending.FINISHED


ODD_EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("session.created", {}),
    ("session.created", {"info": []}),
    ("session.created", {"info": {"id": 7, "parentID": "{session}"}}),
    ("message.updated", {"info": {"role": "assistant", "parentID": ["{message}"]}}),
    ("message.updated", {"info": {"role": "assistant", "id": [], "tokens": []}}),
    ("message.part.updated", {}),
    ("message.part.updated", {"part": {"messageID": [], "type": "text"}}),
    ("message.part.delta", {"messageID": {}, "delta": 1}),
    ("session.status", {"status": []}),
    ("session.error", {"error": []}),
    ("permission.asked", {"id": []}),
    ("permission.asked", {"id": "per_1", "patterns": {}, "questions": 1}),
    ("question.asked", {"id": "que_1", "questions": ["which?"]}),
    ("question.replied", {}),
]


@pytest.mark.parametrize(("kind", "properties"), ODD_EVENTS)
async def test_an_event_of_another_shape_ends_no_turn(
    kind: str, properties: dict[str, Any], autojump_clock: object
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        work = world.server.works[0]
        text = json.dumps({"sessionID": world.session.id, **properties})
        told = text.replace("{session}", world.session.id).replace("{message}", work.name)
        world.server._say(kind, json.loads(told))
        await quiet()
        assert (turn.settlement, world.errors) == (None, {})
        world.server.finish(work)
        await quiet()
        assert ending(turn) is Ending.FINISHED


@pytest.mark.parametrize("stops", [True, False])
async def test_a_404_of_a_proxy_does_not_show_that_the_work_is_gone(
    stops: bool, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router that knows no server for a moment: what the server works on goes on."""
    away = True

    async def answered(asked: Request) -> httpx2.Response:
        if away and asked.path != ("event",):
            return httpx2.Response(404, text="no backend for this route")
        return await honest(asked)

    async with open_world() as world:
        turn = await world.begun("first")
        honest = world.server.answer
        monkeypatch.setattr(world.server, "answer", answered)
        world.server.cut()
        if stops:
            turn.stop()
        await quiet(0.5)
        assert turn.settlement is None
        away = False
        await quiet(3.0)
        if stops:
            assert ending(turn) is Ending.STOPPED
        else:
            assert (turn.settlement, world.errors) == (None, {})
            world.server.finish(world.server.works[0])
            await quiet()
            assert ending(turn) is Ending.FINISHED


async def test_a_404_to_all_is_an_error_that_everybody_knows(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")

        async def nothing(asked: Request) -> httpx2.Response:
            return httpx2.Response(404, json={"name": 7, "_tag": None})

        monkeypatch.setattr(world.server, "answer", nothing)
        turn.stop()
        await quiet(5.0)
        assert ending(turn) is Ending.UNCONFIRMED
        assert turn.settlement is not None
        assert not turn.settlement.gone
        assert {type(one).__mro__[1] for one in turn.settlement.errors} == {BackendMisbehaved}


async def test_a_turn_whose_session_was_deleted_is_lost_and_told_to_stop(
    autojump_clock: object,
) -> None:
    """As in the real one: its work goes on, only its events tell of it, and an abort ends it."""
    async with open_world() as world:
        turn = await world.begun("first")
        world.session.deleted = True
        world.server.cut()
        await quiet(5.0)
        assert isinstance(world.errors["first"], BackendLost)
        assert "was deleted" in str(world.errors["first"])
        assert turn.settlement is not None
        assert not turn.settlement.gone
        assert len(world.server.works[0].told_at) == 1
        assert not world.server.works[0].runs


async def test_a_deleted_session_has_ended_once_its_abort_is_answered(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.session.deleted = True
        world.server.cancels = "held"
        turn.stop()
        await quiet()
        for stream in world.server._streams:
            stream.break_off()
        await quiet(0.5)
        assert turn.settlement is None
    async with open_world() as world:
        turn = await world.begun("first")
        world.session.deleted = True
        world.session.run.answer["parentID"] = "nobody's"  # type: ignore[union-attr]
        turn.stop()
        await quiet(0.5)
        assert ending(turn) is Ending.STOPPED


async def test_what_stands_before_a_turns_message_is_no_end_of_it(autojump_clock: object) -> None:
    async with open_world() as world:
        first = await world.begun("first")
        first.stop()
        await quiet()
        second = await world.begun("second")
        world.server.cut()
        await quiet(0.5)
        assert (ending(first), second.settlement) == (Ending.STOPPED, None)
        world.server.finish(world.server.works[1])
        await quiet()
        assert ending(second) is Ending.FINISHED


async def test_a_text_that_is_told_as_a_whole_is_heard_once(autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        session = world.session
        assert session.run is not None
        part = {"id": "prt_1", "type": "text", "messageID": session.run.answer["id"]}
        for text in ("one ", "one ", "one two"):
            session.tell("message.part.updated", part={**part, "text": text})
        await quiet()
        assert world.said("first") == "one two"
        turn.stop()


async def test_a_message_that_was_taken_back_in_a_gap_is_over(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world(StopBudget(5.0, 1.0)) as world:

        def remove(session: Session, message: str) -> httpx2.Response:
            world.server.cut()
            return honest(session, message)

        honest = world.server._remove
        monkeypatch.setattr(world.server, "_prompt", take_and_never_run)
        monkeypatch.setattr(world.server, "_remove", remove)
        turn = await world.begun("first")
        turn.stop()
        await quiet(4.0)
        assert ending(turn) is Ending.STOPPED


@pytest.mark.parametrize("how", ["finish", "fail", "abort"])
async def test_an_end_that_fell_into_a_gap_is_found(how: str, autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        work = world.server.works[0]
        world.server.cut()
        if how == "finish":
            world.server.finish(work)
        elif how == "fail":
            world.server.fail(work)
        else:
            turn.stop()
        await quiet(0.5)
        ends = {"finish": Ending.FINISHED, "fail": Ending.FAILED, "abort": Ending.STOPPED}
        assert ending(turn) is ends[how]
        if how == "fail":
            assert "no flour left" in str(world.errors["first"])


async def test_a_server_that_stays_away_is_lost_and_found_by_the_next_turn(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        raise httpx2.ConnectError("refused")

    async with open_world() as world:
        turn = await world.begun("first")
        monkeypatch.setattr(world.server, "handle_async_request", away)
        world.server.die()
        await quiet(20.0)
        assert ending(turn) is Ending.FAILED
        assert isinstance(world.errors["first"], BackendLost)
        assert "the next turn tries again" in str(world.errors["first"])
        monkeypatch.undo()
        second = await world.begun("second")
        world.server.finish(world.server.works[1])
        await quiet()
        assert ending(second) is Ending.FINISHED
        # Nothing has shown that the first one's work was over.
        assert world.server.works[1].session != world.server.works[0].session


async def test_a_session_that_was_deleted_is_refused_with_what_to_do(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        first = await world.begun("first")
        world.server.finish(world.server.works[0])
        await quiet()
        world.server.sessions.clear()
        second = await world.begun("second")
        assert ending(first) is Ending.FINISHED
        assert ending(second) is Ending.FAILED
        assert isinstance(world.errors["second"], BackendRefused)
        assert "retire the room" in str(world.errors["second"])


async def test_a_session_that_works_on_something_else_is_refused(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server) as backend:
            await backend.start(turnstop.abc.Request("kitchen", "1", "first"))
            busy = next(iter(server.sessions))
            with pytest.raises(BackendRefused, match="busy with something else"):
                await backend.start(turnstop.abc.Request("kitchen", "2", "second", session=busy))


async def test_a_prompt_that_fails_before_it_is_a_message_fails_the_turn(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one for an agent that there is not: the server accepts it, and says an error."""
    async with open_world() as world:

        async def fails(session: Session, body: Any) -> httpx2.Response:
            error = {"name": "UnknownError", "data": {"message": "Agent not found"}}
            session.tell("session.error", error=error)
            return answer(None, 204)

        monkeypatch.setattr(world.server, "_prompt", fails)
        turn = await world.begun("first")
        await quiet()
        assert ending(turn) is Ending.FAILED
        assert "Agent not found" in str(world.errors["first"])


async def test_what_every_prompt_asks_for_is_sent_and_sessions_have_titles(
    autojump_clock: object,
) -> None:
    seen: list[Any] = []

    class Seeing(RecordingOpenCode):
        async def answer(self, asked: Request) -> httpx2.Response:
            seen.append((asked.path, asked.body))
            return await super().answer(asked)

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            assert request.url.params["directory"] == "/far/away"
            return await super().handle_async_request(request)

    async with trio.open_nursery() as nursery:
        server = Seeing(nursery)
        options = {"directory": "/far/away", "model": "lab/fake/one", "agent": "plan"}
        async with open_opencode(URL, transport=server, **options) as backend:
            await backend.start(turnstop.abc.Request("kitchen", "1", [{"type": "text"}]))
    bodies = {path[-1]: body for path, body in seen if body}
    assert bodies["session"] == {"title": "kitchen"}
    prompt = bodies["prompt_async"]
    assert prompt.pop("messageID").startswith("msg_")
    assert prompt == {
        "agent": "plan",
        "model": {"providerID": "lab", "modelID": "fake/one"},
        "parts": [{"type": "text"}],
    }


class Odd(httpx2.AsyncBaseTransport):
    def __init__(self, response: httpx2.Response | Exception) -> None:
        self.response = response

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


@pytest.mark.parametrize(
    ("response", "kind", "text"),
    [
        (httpx2.ConnectError("refused"), BackendRefused, "start `opencode serve` there"),
        (httpx2.ReadTimeout("slow"), BackendLost, "has not answered"),
        (httpx2.ReadError("broken"), BackendLost, "broke"),
        (httpx2.Response(401), BackendRefused, "OPENCODE_SERVER_PASSWORD"),
        (httpx2.Response(404), BackendRefused, "correct the url"),
        (httpx2.Response(200, text="<html>"), BackendMisbehaved, "no JSON"),
        (httpx2.Response(200, json={"healthy": True}), BackendMisbehaved, "told no version"),
        (httpx2.Response(200, json={"version": "1.2.3"}), BackendRefused, "1.18 is the oldest"),
        (httpx2.Response(500, text="boom"), BackendMisbehaved, "boom"),
    ],
)
async def test_what_is_no_opencode_that_will_do_is_told_with_what_to_do(
    response: httpx2.Response | Exception,
    kind: type[Exception],
    text: str,
    autojump_clock: object,
) -> None:
    with pytest.raises(kind, match=text):
        async with open_opencode(URL, transport=Odd(response)):
            raise AssertionError("unreachable")


@pytest.mark.parametrize("taken", [True, False])
async def test_a_reply_whose_answer_is_lost_is_told_again(
    taken: bool, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.ask(world.server.works[0])
        await quiet()
        honest, lost = world.server.answer, 1

        async def answered(asked: Request) -> httpx2.Response:
            nonlocal lost
            if asked.path[-1] == "reply" and lost:
                lost -= 1
                if taken:
                    world.server.asked.pop(asked.path[1])
                    world.server.works[0].replies.append("once")
                raise httpx2.ReadError("reset")
            return await honest(asked)

        monkeypatch.setattr(world.server, "answer", answered)
        turn.answer(world.asks("first")[0], "once")
        await quiet(2.0)
        assert (turn.settlement, world.errors) == (None, {})
        assert world.server.works[0].replies == ["once"]
        world.server.finish(world.server.works[0])
        await quiet()
        assert ending(turn) is Ending.FINISHED


async def test_a_reply_that_is_refused_fails_the_turn_and_says_why(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        world.server.ask(world.server.works[0])
        await quiet()
        fail(world, monkeypatch, lambda asked: asked.path[-1] == "reply")
        turn.answer(world.asks("first")[0], {"reply": "whenever"})
        await quiet(4.0)
        assert turn.settlement is not None
        assert "/reply" in str(world.errors["first"])


@pytest.mark.parametrize("told", ["posted", "unreachable"])
async def test_where_the_stream_of_events_is_given_up_the_work_is_aborted(
    told: str, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that lets requests by and no stream: nobody could tell the turn to stop later."""
    honest = RecordingOpenCode.handle_async_request
    away = False

    async def streamless(server: RecordingOpenCode, request: httpx2.Request) -> httpx2.Response:
        if away and (told == "unreachable" or request.url.path == "/event"):
            raise httpx2.ConnectError("refused")
        return await honest(server, request)

    monkeypatch.setattr(RecordingOpenCode, "handle_async_request", streamless)
    async with open_world() as world:
        turn = await world.begun("first")
        away = True
        for stream in world.server._streams:
            stream.break_off()
        await quiet(20.0)
        assert turn.settlement is not None
        assert not turn.settlement.gone
        assert {type(one) for one in turn.settlement.errors} <= {BackendLost, BackendRefused}
        assert isinstance(world.errors["first"], BackendLost)
        assert world.server.works[0].runs == (told == "unreachable")


async def test_an_abort_that_the_loss_has_cut_off_was_not_acknowledged(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world(StopBudget(30.0, 1.0)) as world:
        turn = await world.begun("first")
        honest = world.server.answer

        async def answered(asked: Request) -> httpx2.Response:
            if asked.path[-1] == "abort":
                await trio.sleep_forever()
            if asked.path == ("event",):
                raise httpx2.ConnectError("refused")
            return await honest(asked)

        monkeypatch.setattr(world.server, "answer", answered)
        turn.stop()
        await quiet()
        for stream in world.server._streams:
            stream.break_off()
        await quiet(25.0)
        assert ending(turn) is Ending.UNCONFIRMED
        assert turn.settlement is not None
        assert turn.settlement.acked_at is None


def test_the_processes_of_a_turn_are_those_of_its_sessions_and_of_no_earlier_call() -> None:
    def marked(pid: int, session: str, call: str, started: int) -> Marked:
        entry = TableEntry(pid, started, parent=1, session=pid)
        return Marked(entry, {"M": "1", SESSION: session, CALL: call})

    async def look(marks: object) -> list[Marked]:
        await trio.lowlevel.checkpoint()
        assert marks == {"M": "1"}
        return [
            marked(1, "ses_1", "call_new", 100),
            marked(2, "ses_1", "call_old", 100),
            marked(3, "ses_1", "call_unknown", 99),
            marked(4, "ses_2", "call_new", 100),
            marked(5, "ses_child", "call_new", 101),
        ]

    async def main() -> list[int]:
        processes = Processes(("M", "1"), 100, {"call_old"}, look)
        return [one.pid for one in await processes.find({"ses_1", "ses_child"})]

    assert trio.run(main) == [1, 5]


async def test_a_sub_agent_that_began_in_a_gap_is_aborted_too(autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        for stream in world.server._streams:
            stream.break_off()
        streams, world.server._streams = world.server._streams, []
        child = world.server.set_to_work(world.server.works[0])
        child.deaf = 0
        await quiet(0.5)
        assert world.server._streams
        assert world.server._streams != streams
        turn.stop()
        await quiet(0.5)
        assert ending(turn) is Ending.STOPPED
        told = [call.split("/")[2] for call in world.sent("/abort")]
        assert told == [child.id, world.session.id]


async def test_a_sub_agents_calls_are_no_later_turns(autojump_clock: object) -> None:
    async with open_world() as world:
        turn = await world.begun("first")
        child = world.server.set_to_work(world.server.works[0])
        part = {"type": "tool", "tool": "bash", "callID": "call_1", "state": {"status": "running"}}
        child.tell("message.part.updated", part=part)
        child.deaf = 0
        await quiet()
        assert not [one for one in world.heard["first"] if isinstance(one, ToolCall)]
        world.server._end(child, finish="stop")
        world.server.finish(world.server.works[0])
        await quiet()
        session = turn._life._remote.session  # type: ignore[union-attr]
        assert isinstance(session, OpenCodeSession)
        assert (session.calls, session.children) == ({"call_1"}, {child.id})


async def test_a_refused_prompt_leaves_nobody_listening(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server) as backend:
            server.refuses = True
            with pytest.raises(BackendRefused):
                await backend.start(turnstop.abc.Request("kitchen", "1", "first"))
            assert backend._servers.current.events.keys == []  # type: ignore[attr-defined]


async def test_what_cannot_be_sent_is_refused_before_anything_began(
    autojump_clock: object,
) -> None:
    async with open_world() as world:
        await world.begun("first")
        world.server.finish(world.server.works[0])
        await quiet()
        calls = len(world.server.calls)
        for content in (17, [{"type": "file", "data": b"bytes"}], {"type": "text"}):
            with pytest.raises(BackendRefused, match="content"):
                async with world.rooms.turn("kitchen", content):
                    await trio.sleep_forever()
            with pytest.raises(BackendRefused, match="content"):
                async with world.rooms.turn("garden", content):
                    await trio.sleep_forever()
        assert len(world.server.calls) == calls
        await world.begun("second")
        # The conversation is still the same.
        assert world.server.works[1].session == world.server.works[0].session


async def test_a_server_is_told_farewell_where_its_sessions_work(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server) as backend:
            await backend.start(turnstop.abc.Request("kitchen", "1", "first"))
        async with httpx2.AsyncClient(transport=server) as http:
            await _abort_all(Wire(http, None, URL))
        assert not server.works[0].runs


async def test_a_start_that_is_undone_listens_to_nothing_any_more(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server) as backend:
            server.hold_starts()
            with trio.move_on_after(1.0):
                await backend.start(turnstop.abc.Request("kitchen", "1", "first"))
            server.release_starts()
            await quiet(5.0)
            assert not server.works[0].runs
            assert backend._servers.current.events.keys == []  # type: ignore[attr-defined]


WRONG = {
    "no scheme": {"url": "127.0.0.1:4096"},
    "another scheme": {"url": "ftp://127.0.0.1"},
    "a token": {"url": "http://127.0.0.1:4096/?token=hunter2"},
    "a model without its provider": {"model": "gpt-5"},
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_argument_is_told_at_once(name: str) -> None:
    with pytest.raises(ValueError, match="as ") as caught:
        async with open_opencode(**WRONG[name]):  # type: ignore[arg-type]
            raise AssertionError("unreachable")
    assert "hunter2" not in str(caught.value)


async def test_a_password_in_the_url_is_used_and_never_told(autojump_clock: object) -> None:
    seen: list[httpx2.Request] = []

    class Seeing(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            await trio.lowlevel.checkpoint()
            seen.append(request)
            return httpx2.Response(500)

    with pytest.raises(BackendMisbehaved) as caught:
        url = "http://user:hunter%32@opencode.test:81/below/"
        async with open_opencode(url, transport=Seeing()):
            raise AssertionError("unreachable")
    assert "hunter" not in str(caught.value)
    assert str(seen[0].url) == "http://opencode.test:81/below/global/health"
    assert seen[0].headers["authorization"] == httpx2.BasicAuth("user", "hunter2")._auth_header


def test_settings_keep_the_password_to_themselves() -> None:
    assert "hunter2" not in repr(Settings("/", password="hunter2"))


async def test_a_version_of_any_length_is_read(autojump_clock: object) -> None:
    odd = Odd(httpx2.Response(200, json={"version": "9" * 5000}))
    async with httpx2.AsyncClient(transport=odd) as http:
        await check(Wire(http, None, URL))


async def test_what_the_farewell_is_answered_is_no_error_of_the_body(
    autojump_clock: object,
) -> None:
    odd = Odd(httpx2.Response(200, json=None))
    async with httpx2.AsyncClient(transport=odd) as http:
        await _abort_all(Wire(http, None, URL))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"name": "UnknownError", "data": {"message": "UnknownError: UnknownError"}}, "Error"),
        ({"name": "UnknownError", "data": {"message": "no model\n    at f (x.js:1)"}}, "model"),
        ({"name": "UnknownError", "data": []}, "Error"),
    ],
)
async def test_opencodes_own_error_is_told_once_and_without_its_stack(
    error: dict[str, Any], text: str, autojump_clock: object
) -> None:
    async with open_world() as world:
        await world.begun("first")
        world.server._end(world.session, error)
        await quiet()
        told = str(world.errors["first"])
        assert told.endswith(text)
        assert told.count("UnknownError") == 1


async def test_a_url_takes_no_command() -> None:
    with pytest.raises(ValueError, match="leave out command and env"):
        async with open_opencode(URL, command="opencode"):
            raise AssertionError("unreachable")


PROGRAMS = {
    "exits at start": ("import sys; sys.exit('log in first')", "log in first"),
    "prints a banner and a megabyte, and exits": (
        "print('Welcome!'); print('x' * 2**20); import sys; sys.exit(3)",
        "exited with status 3",
    ),
    "floods stderr": (
        "import sys; [sys.stderr.write('noise ' * 1000) for _ in range(2000)]; sys.exit(1)",
        "noise",
    ),
    "closes stdout but lives": (
        "import os, time; os.close(1); time.sleep(300)",
        "closed its stdout and did not say where it listens",
    ),
    "listens nowhere": (
        "print('opencode server listening on http://127.0.0.1:9', flush=True);"
        "import time; time.sleep(300)",
        "nothing answers",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_that_is_no_server_is_told_in_time(name: str) -> None:
    source, text = PROGRAMS[name]
    with trio.fail_after(30.0):
        with pytest.raises(BackendError, match=text):
            async with open_opencode(command=[sys.executable, "-c", source]):
                raise AssertionError("unreachable")


async def test_a_missing_program_is_told_with_the_line_that_installs_it() -> None:
    with pytest.raises(BackendRefused, match="npm install --global opencode-ai"):
        async with open_opencode(env={"PATH": "/nowhere"}):
            raise AssertionError("unreachable")
    with pytest.raises(BackendRefused, match="npm install --global opencode-ai"):
        async with open_opencode(command="/nowhere/opencode"):
            raise AssertionError("unreachable")


async def test_a_message_that_is_on_its_way_is_not_said_to_be_nowhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        session = server._make()
        body = {"messageID": "msg_late", "parts": [{"type": "text", "text": "bake"}]}

        async def come_late() -> None:
            await trio.sleep(0.5)
            await server._prompt(session, body)

        nursery.start_soon(come_late)
        async with open_opencode(URL, transport=server) as backend:
            turn = await backend.attach(json.dumps([session.id, "msg_late"]))  # type: ignore[attr-defined]
            with trio.fail_after(2):
                await turn.cancel(lambda: None)
                end = await turn.follow(lambda event: None)
            assert end.how is turnstop.abc.How.CANCELLED
            assert session.run is None
            # A plugin may hold up the next one too, and the room's conversation is kept.
            with pytest.raises(BackendLost, match="one may come late"):
                await backend.attach(json.dumps([session.id, "msg_never"]))  # type: ignore[attr-defined]
            assert not session.deleted
        nursery.cancel_scope.cancel()


async def test_a_message_that_never_came_to_a_session_of_its_own_is_shut_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        session = server._make()
        async with open_opencode(URL, transport=server) as backend:
            with pytest.raises(BackendRefused, match="nothing was begun"):
                await backend.attach(json.dumps([session.id, "msg_never"]))  # type: ignore[attr-defined]
            assert session.deleted
            events = backend._servers.current.events  # type: ignore[attr-defined]
            assert not events._listeners
        nursery.cancel_scope.cancel()


async def test_a_message_that_comes_while_it_is_shut_out_is_aborted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Late(RecordingOpenCode):
        async def _of_session(self, asked: Any, number: str, rest: list[str]) -> httpx2.Response:
            if asked.method == "DELETE":
                await self._prompt(session, {"messageID": "msg_late", "parts": [{"text": "bake"}]})
            return await super()._of_session(asked, number, rest)

    async with trio.open_nursery() as nursery:
        server = Late(nursery)
        session = server._make()
        async with open_opencode(URL, transport=server) as backend:
            with pytest.raises(BackendRefused, match="nothing was begun"):
                await backend.attach(json.dumps([session.id, "msg_late"]))  # type: ignore[attr-defined]
            assert session.last is not None
            assert session.run is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("method", "status"), [("GET", 403), ("DELETE", 403), ("GET", 0)])
async def test_a_server_that_tells_nothing_has_not_said_that_nothing_was_begun(
    autojump_clock: trio.testing.MockClock, method: str, status: int
) -> None:
    class Shut(RecordingOpenCode):
        async def _of_session(self, asked: Any, number: str, rest: list[str]) -> httpx2.Response:
            if asked.method != method:
                return await super()._of_session(asked, number, rest)
            if not status:
                raise httpx2.ConnectError("no route")
            return httpx2.Response(status)

    async with trio.open_nursery() as nursery:
        server = Shut(nursery)
        session = server._make()
        async with open_opencode(URL, transport=server) as backend:
            with pytest.raises(BackendLost, match=r"403|nothing answers"):
                await backend.attach(json.dumps([session.id, "msg_1"]))  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


async def test_a_server_of_ones_own_is_known_by_what_it_was_begun_as() -> None:
    begun = ProcessAddress("here", 7, 42, ("MARK", "1"))
    process = types.SimpleNamespace(address=begun, pid=os.getpid())  # another's by now
    program: Any = types.SimpleNamespace(process=process, mark=("OTHER", "2"))
    told = ProcessAddress.parse(to_address(Server(*[None] * 3, program), "ses_1", "msg_1"))  # type: ignore[arg-type]
    assert told == attrs.evolve(begun, session="ses_1")


async def test_a_turn_that_is_stopped_while_it_is_announced_leaves_no_session(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def refuse(address: str) -> None:
        raise BackendRefused("the turn was stopped before it was sent")

    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server) as backend:
            with pytest.raises(BackendRefused):
                await backend.start(turnstop.abc.Request("kitchen", "1", "bake", announce=refuse))
            await quiet()
            assert [one.deleted for one in server.sessions.values()] == [True]
            kept = server._make()
            request = turnstop.abc.Request("kitchen", "2", "x", kept.id, announce=refuse)
            with pytest.raises(BackendRefused):
                await backend.start(request)
            await quiet()
            assert not kept.deleted
            assert server.works == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("held_for", "ending"), [(3.0, Ending.STOPPED), (30.0, Ending.UNCONFIRMED)]
)
async def test_a_message_that_a_plugin_holds_up_is_not_said_to_be_taken_back(
    autojump_clock: trio.testing.MockClock, held_for: float, ending: Ending
) -> None:
    class Held(RecordingOpenCode):
        """It answers at once, and has the message later, as opencode 1.18.33 does then."""

        async def _prompt(self, session: Any, body: Any) -> httpx2.Response:
            async def take() -> None:
                await trio.sleep(held_for)
                await super(Held, self)._prompt(session, body)

            nursery.start_soon(take)
            return httpx2.Response(204)

    async with trio.open_nursery() as nursery:
        server = Held(nursery)
        async with (
            open_opencode(URL, transport=server) as backend,
            turnstop.open_rooms(backend) as rooms,
        ):
            with trio.move_on_after(0.5):
                async with rooms.turn("kitchen", "bake") as turn:
                    await trio.sleep_forever()
            (session,) = server.sessions.values()
            assert turn.ending is ending
            assert session.run is None
            # Where it could not be stopped in the budget, nobody says that it was.
            assert (session.last is not None) is (ending is Ending.STOPPED)
        nursery.cancel_scope.cancel()


class Delayed(RecordingOpenCode):
    """It answers a prompt, and has the message later, as where a plugin holds it up."""

    answers_after = 0.0
    held_for = 30.0

    async def _prompt(self, session: Session, body: Any) -> httpx2.Response:
        await trio.sleep(self.answers_after)
        self._nursery.start_soon(self._take_later, session, body)
        return answer(None, 204)

    async def _take_later(self, session: Session, body: Any) -> None:
        await trio.sleep(self.held_for)
        if not session.deleted:
            await super()._prompt(session, body)


@pytest.mark.parametrize("what", ["an error", "a run"])
async def test_what_is_somebody_elses_does_not_end_a_turn_whose_message_is_held_up(
    what: str, autojump_clock: object
) -> None:
    """The message may still come: nobody knows whether it does."""
    async with trio.open_nursery() as nursery:
        server = Delayed(nursery)
        async with (
            open_opencode(URL, transport=server) as backend,
            turnstop.open_rooms(backend, budget=BUDGET) as rooms,
        ):
            turn = rooms.turn("kitchen", "bake")

            async def disturb() -> None:
                await trio.sleep(0.5)
                (session,) = server.sessions.values()
                if what == "an error":
                    error = {"name": "UnknownError", "data": {"message": "no such agent"}}
                    session.tell("session.error", error=error)
                    return
                body = {"messageID": "msg_other", "parts": [{"type": "text", "text": "other"}]}
                await RecordingOpenCode._prompt(server, session, body)
                await quiet(0.6)
                server.finish(server.works[0])
                server.cut()

            nursery.start_soon(disturb)
            with trio.move_on_after(0.2):
                async with turn:
                    await trio.sleep_forever()
            assert ending(turn) is Ending.UNCONFIRMED
            assert turn.settlement is not None
            assert not turn.settlement.gone
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("held_for", [0.05, math.inf])
async def test_a_start_that_nobody_waits_for_is_undone_in_a_finite_time(
    held_for: float, autojump_clock: object
) -> None:
    async with trio.open_nursery() as nursery:
        server = Delayed(nursery)
        server.answers_after, server.held_for = 2.0, held_for
        async with open_opencode(URL, transport=server) as backend:
            with trio.move_on_after(1.0):
                await backend.start(turnstop.abc.Request("kitchen", "1", "bake"))
            await quiet(30.0)
            (session,) = server.sessions.values()
            assert (session.run, session.deleted) == (None, True)
            asked = [one for one in server.calls if one != "GET /event"]
            await quiet(60.0)
            assert [one for one in server.calls if one != "GET /event"] == asked
            assert backend._servers.current.events.keys == []  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


async def test_a_start_whose_answer_is_lost_and_that_nobody_waits_for_is_aborted(
    autojump_clock: object,
) -> None:
    """Deleting its session alone would leave it at work, where no status tells of it."""

    class Cut(RecordingOpenCode):
        async def _prompt(self, session: Session, body: Any) -> httpx2.Response:
            await trio.sleep(2.0)
            await super()._prompt(session, body)
            raise httpx2.ReadError("reset by peer")

    async with trio.open_nursery() as nursery:
        server = Cut(nursery)
        async with open_opencode(URL, transport=server) as backend:
            with trio.move_on_after(1.0):
                await backend.start(turnstop.abc.Request("kitchen", "1", "bake"))
            await quiet(5.0)
            (session,) = server.sessions.values()
            assert session.last is not None
            assert (session.run, session.deleted) == (None, True)
        nursery.cancel_scope.cancel()


async def test_the_sub_agents_of_a_start_that_is_undone_are_aborted(autojump_clock: object) -> None:
    """Nobody has heard of them."""
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        async with open_opencode(URL, transport=server) as backend:
            server.hold_starts()
            with trio.move_on_after(1.0):
                await backend.start(turnstop.abc.Request("kitchen", "1", "bake"))
            child = server.set_to_work(server.works[0])
            server.release_starts()
            await quiet(5.0)
            assert f"POST /session/{child.id}/abort" in server.calls
        nursery.cancel_scope.cancel()


async def test_an_early_abort_that_nobody_follows_is_sent_again(autojump_clock: object) -> None:
    """As where the start was answered in the moment in which the stop's budget was over."""
    async with trio.open_nursery() as nursery:
        server = Delayed(nursery)
        server.held_for = 0.05
        async with open_opencode(URL, transport=server) as backend:
            turn = await backend.start(turnstop.abc.Request("kitchen", "1", "bake"))
            with trio.fail_after(2.0):
                await turn.cancel(lambda: None)
            (session,) = server.sessions.values()
            assert session.last is not None
            assert session.run is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fault", ["502", "404", "a reset"])
@pytest.mark.parametrize("what", ["message", "status", "taking back"])
async def test_a_look_that_fails_once_does_not_end_a_stop(
    what: str, fault: str, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked: whether the message is there, whether the session works, to take it back."""
    faults: list[tuple[str, ...]] = []

    async def answered(asked: Request) -> httpx2.Response:
        hit = {
            "message": asked.method == "GET" and asked.path[-2:-1] == ("message",),
            "status": asked.path == ("session", "status"),
            "taking back": asked.method == "DELETE",
        }
        if faults or not hit[what]:
            return await honest(asked)
        faults.append(asked.path)
        if fault == "a reset":
            raise httpx2.ReadError("reset by peer")
        return httpx2.Response(int(fault), text="a proxy's")

    async with open_world(StopBudget(5.0, 1.0)) as world:
        honest = world.server.answer
        monkeypatch.setattr(world.server, "answer", answered)
        monkeypatch.setattr(world.server, "_prompt", take_and_never_run)
        turn = await world.begun("first")
        turn.stop()
        await quiet(4.0)
        assert len(faults) == 1
        assert ending(turn) is Ending.STOPPED
        assert world.session.messages == []


async def test_where_nobody_tells_whether_the_run_goes_on_it_is_aborted_again(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered(asked: Request) -> httpx2.Response:
        if asked.path == ("session", "status"):
            return httpx2.Response(502, text="bad gateway")
        return await honest(asked)

    async def begin_later(session: Session, body: Any) -> None:
        await trio.sleep(0.5)
        await take(session, body)

    async def slow(session: Session, body: Any) -> httpx2.Response:
        world.nursery.start_soon(begin_later, session, body)
        return answer(None, 204)

    async with open_world() as world:
        honest, take = world.server.answer, world.server._prompt
        monkeypatch.setattr(world.server, "answer", answered)
        monkeypatch.setattr(world.server, "_prompt", slow)
        turn = await world.begun("first")
        turn.stop()
        await quiet(2.0)
        assert ending(turn) is Ending.STOPPED
        assert len(world.sent("/abort")) == 2
