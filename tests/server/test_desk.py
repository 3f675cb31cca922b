"""What the server knows of its rooms: one truth with the inbox and the feed, and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trio.testing
from servers import SETTINGS, TOKEN, Served, serving

from turnstop import Control, ControlKind, Message
from turnstop.adapters.local import Work
from turnstop.events import Ask, Text, ToolCall
from turnstop.feeds import MemoryFeed
from turnstop.feeds.sqlite import open_sqlite_feed
from turnstop.server import _desk


class Slow:
    """A feed one of whose methods takes its time: until `go`, where it has not begun or is over."""

    def __init__(self, name: str, *, over: bool = False, feed: Any = None) -> None:
        self.feed = MemoryFeed() if feed is None else feed
        self.go, self.called = trio.Event(), trio.Event()
        self._name, self._over = name, over

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.feed, name)
        if name != self._name:
            return method

        async def slow(*args: Any, **more: Any) -> Any:
            if not self._over:
                await self._wait()
            found = method(*args, **more)
            found = await found if hasattr(found, "__await__") else found
            if self._over:
                await self._wait()
            return found

        slow.__name__ = name
        return slow

    async def _wait(self) -> None:
        self.called.set()
        await self.go.wait()


async def wait(work: Work) -> None:
    """Never ends; `short` does, at once."""
    work.emit(Text(str(work.content)))
    if work.content != "short":
        await trio.sleep_forever()


async def kinds_of(served: Served, room: str, last: str, **wanted: Any) -> list[str]:
    """The types of a room's events, up to one."""
    kinds = []
    async with served.events(f"/rooms/{room}/events") as events:
        async for _, kind, data in events:
            kinds.append(kind)
            if kind == last and wanted.items() <= data.items():
                break
    return kinds


# A control finds its room, and what is shown is what holds.


@pytest.mark.parametrize("path", ["/rooms/kitchen/stop", "/stop"])
async def test_a_stop_while_the_first_message_is_being_written_is_not_lost(path: str) -> None:
    feed = Slow("post")
    async with serving(wait, feed=feed) as served, trio.open_nursery() as nursery:
        nursery.start_soon(served.say, "kitchen", "wait")
        await feed.called.wait()
        assert (await served.post(path)).json()["rooms"] == ["kitchen"]
        feed.go.set()
        await served.until("/events", "message", state="waiting")
        state = await served.state("kitchen")
        assert (state["paused"], state["waiting"], state["turn_id"]) == (True, 1, None)
        await served.press("kitchen", "play")
        await served.until("/events", "text")


async def test_a_stop_during_the_claim_is_shown_as_a_pause() -> None:
    feed = Slow("claim", over=True)
    async with serving(wait, feed=feed) as served:
        await served.say("kitchen", "wait")
        await feed.called.wait()
        await served.press("kitchen", "stop")
        feed.go.set()
        await served.until("/events", "message", state="waiting", attempt=0)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert served.server.inbox.is_paused("kitchen")
        assert (await served.state("kitchen"))["paused"]
        assert (await kinds_of(served, "kitchen", "paused")).count("resumed") == 0


async def test_a_stop_of_the_feed_before_a_play_leaves_the_room_open() -> None:
    feed = Slow("applied")
    async with serving(wait, feed=feed) as served:
        await served.say("kitchen", "wait")
        first = await served.until("/events", "turn")
        feed.feed.control(Control(ControlKind.STOP, "kitchen", source="feed"))
        await feed.called.wait()
        stopping = await served.until("/events", "stopping")
        assert (stopping["turn_id"], stopping["source"]) == (first["turn_id"], "feed")
        await served.press("kitchen", "play")
        feed.go.set()
        await served.until("/events", "resumed")
        async with served.events("/events") as events:
            turns = list[str]()
            async for _, kind, data in events:
                turns += [data["turn_id"]] if kind == "turn" else []
                if len(turns) == 2:
                    break
        assert not (await served.state("kitchen"))["paused"]
        await served.press("kitchen", "interrupt")
        kinds = await kinds_of(served, "kitchen", "settlement", turn_id=turns[1])
        assert (kinds.count("paused"), kinds.count("resumed")) == (1, 1)
        assert kinds.count("stopping") == 2


async def test_a_room_that_the_feed_knows_as_paused_is_shown_as_paused() -> None:
    feed = Slow("claim")
    async with serving(wait, feed=feed) as served:
        await served.say("kitchen", "wait")
        await feed.called.wait()
        # As after a STOP that nobody here was told of.
        await feed.feed.applied(Control(ControlKind.STOP, "kitchen"), ["kitchen"])
        feed.go.set()
        await served.until("/events", "paused")
        state = await served.state("kitchen")
        assert (state["paused"], state["waiting"], state["turn_id"]) == (True, 1, None)
        await served.press("kitchen", "play")
        await served.until("/events", "resumed")
        await served.until("/events", "text")


async def test_a_message_that_the_feed_does_not_take_is_refused_for_now() -> None:
    class Full(Slow):
        async def post(self, *_: object, **__: object) -> None:
            raise OSError("disk-secret")

    async with serving(wait, feed=Full("nothing")) as served:
        response = await served.post("/rooms/kitchen/messages", content="x")
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        assert response.json() == {
            "error": "the message was not kept (OSError): try again later",
        }
        state = await served.state("kitchen")
        assert (state["waiting"], served.server.statistics().live) == (0, 0)


async def test_a_message_that_is_tried_again_is_waiting_until_then() -> None:
    async def fails(work: Work) -> None:
        raise ValueError("no")

    feed = Slow("next", over=True, feed=MemoryFeed(attempts=2))
    feed.go.set()
    async with serving(fails, feed=feed) as served:
        await served.say("kitchen", "x", id="m")
        again = await served.until("/events", "message", state="waiting", attempt=1)
        assert "no" in again["reason"]
        await served.until("/events", "message", state="failed")
        states = []
        async with served.events("/events") as events:
            async for _, kind, data in events:
                if kind == "message":
                    states.append((data["state"], data.get("attempt")))
                if states and states[-1][0] == "failed":
                    break
        assert states == [
            ("waiting", None),
            ("working", 0),
            ("waiting", 1),
            ("working", 1),
            ("failed", 1),
        ]
        assert (await served.state("kitchen"))["waiting"] == 0


async def test_a_message_that_is_written_while_the_server_ends_is_taken() -> None:
    feed, statuses = Slow("post"), list[int]()
    async with trio.open_nursery() as nursery:

        async def post(url: str) -> None:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
                found = await http.post("/rooms/kitchen/messages", json={"content": "x"})
                statuses.append(found.status_code)

        settings = attrs.evolve(SETTINGS, close_within=20)
        async with serving(wait, settings, feed) as served:
            nursery.start_soon(post, served.server.url)
            await feed.called.wait()
            nursery.start_soon(go_later, feed)
    assert statuses == [202]
    assert [one.content for one in feed.feed.unfinished("kitchen")] == ["x"]


async def go_later(feed: Slow) -> None:
    await trio.sleep(0.5)
    feed.go.set()


async def test_a_message_that_waits_for_a_place_is_not_said_to_be_worked_on() -> None:
    async with serving(wait, attrs.evolve(SETTINGS, at_once=1)) as served:
        await served.say("first", "wait")
        await served.until("/events", "turn", room="first")
        await served.say("second", "wait")
        await until(lambda: served.server.inbox.statistics().handling == 2)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await served.press("first", "interrupt")
        seen = []
        async with served.events("/events") as events:
            async for _, kind, data in events:
                seen.append((data["room"], data.get("state", kind)))
                if seen[-1] == ("second", "turn"):
                    break
        assert seen.index(("second", "waiting")) < seen.index(("first", "settlement"))
        assert seen.index(("first", "settlement")) < seen.index(("second", "working"))


# Ids.


async def test_a_message_that_was_handled_is_not_run_again_by_its_id() -> None:
    runs = []

    async def pay(work: Work) -> None:
        runs.append(work.content)

    async with serving(pay) as served:
        assert await served.say("kitchen", "pay", id="1") == "1"
        await served.until("/events", "message", state="handled")
        assert await served.say("kitchen", "pay", id="1") == "1"
        await served.say("kitchen", "more", id="2")
        await served.until("/events", "message", state="handled", id="2")
        assert runs == ["pay", "more"]
        assert (await served.state("kitchen"))["waiting"] == 0


async def test_an_id_is_its_rooms_own(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "m.db") as feed, serving(wait, feed=feed) as served:
        for room in ("a", "b"):
            await served.say(room, "short", id="1")
            told = await served.until(f"/rooms/{room}/events", "message", id="1")
            assert told["content"] == "short"
            await served.until(f"/rooms/{room}/events", "message", state="handled")


async def test_an_id_that_waits_with_another_content_is_refused() -> None:
    async with serving(wait) as served:
        await served.say("kitchen", "wait", id="1")
        response = await served.post("/rooms/kitchen/messages", content="other", id="1")
        assert response.status_code == 409
        assert "1" in response.json()["error"]
        assert (await served.state("kitchen"))["waiting"] == 1
        await served.say("kitchen", "wait", id="1")
        assert (await served.state("kitchen"))["waiting"] == 1


async def test_a_finished_id_leaves_nothing_waiting_in_the_next_server(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_sqlite_feed(tmp_path / "m.db") as feed, serving(wait, feed=feed) as served:
            await served.say("kitchen", "short", id="1")
            await served.say("kitchen", "short")
            await served.until("/events", "message", state="handled")
            await nothing_waits(served)


async def test_what_was_announced_late_is_not_told_of_anew() -> None:
    feed = Slow("receive", over=True)
    async with serving(wait, feed=feed) as served:
        await served.say("kitchen", "short")
        await served.until("/events", "message", state="handled")
        feed.go.set()
        await served.say("kitchen", "wait")
        await served.until("/events", "text", delta="wait")
        async with served.events("/rooms/kitchen/events") as events:
            states = [(await events.receive())[2].get("state") for _ in range(8)]
        assert states == ["waiting", "working", None, None, None, "handled", "waiting", "working"]


async def test_what_was_announced_far_too_late_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_desk, "_FINISHED", 3)
    feed = Slow("receive", over=True)
    async with serving(wait, feed=feed) as served:
        for number in range(20):
            await served.say("kitchen", "short", id=f"m{number}")
        await served.until("/events", "message", state="handled", id="m19")
        feed.go.set()
        waiting = 0
        async with served.events("/events") as events:
            async for _, _, data in events:
                waiting += data.get("state") == "waiting"
                if waiting > 20:
                    break
        await nothing_waits(served)


async def nothing_waits(served: Served) -> None:
    with trio.fail_after(10):
        while True:
            if not any(one["waiting"] for one in (await served.http.get("/rooms")).json()):
                return
            await trio.sleep(0.05)


async def test_what_waits_is_known_while_the_feed_does_not_know_of_a_play_yet() -> None:
    feed = Slow("applied")
    async with serving(wait, feed=feed) as served:
        for number in range(5):
            await served.say("kitchen", "wait", id=f"m{number}")
        await served.until("/events", "text")
        await served.press("kitchen", "stop")
        feed.go.set()
        await until(lambda: not served.server.inbox.lane.owes("kitchen"))
        feed.go, feed.called = trio.Event(), trio.Event()
        pressed = await served.press("kitchen", "play")
        await feed.called.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (await served.state("kitchen"))["waiting"] == 5
        feed.go.set()
        await served.until("/events", "text", after=pressed["last_event_id"])
        assert (await served.state("kitchen"))["waiting"] == 5


# Hostile and long.


async def test_a_lone_surrogate_breaks_nothing() -> None:
    evil = "evil \ud800 \U0001f600"

    async def agent(work: Work) -> None:
        work.emit(Text(evil))
        await work.ask(Ask(evil, "question", evil, (evil,)))
        raise ValueError(evil)

    async with serving(agent) as served:
        await served.say("kitchen", "x")
        asked = await served.until("/events", "ask")
        good = "evil \ufffd \U0001f600"
        assert (asked["id"], asked["text"], asked["choices"]) == (good, good, [good])
        assert (await served.until("/events", "text"))["delta"] == good
        (room,) = (await served.http.get("/rooms")).json()
        assert room["asks"] == [
            {"id": good, "kind": "question", "text": good, "choices": [good]},
        ]
        answer = await served.post("/rooms/kitchen/answers", ask=good, reply=good)
        assert answer.status_code == 202
        settlement = await served.until("/events", "settlement")
        assert settlement["ending"] == "failed"
        (kept,) = (await served.http.get("/rooms/kitchen/settlements")).json()
        assert kept == settlement
        assert good in json.dumps(kept, ensure_ascii=False)


async def test_an_event_has_a_bounded_size_and_an_answer_is_whole() -> None:
    many = 1_000_000

    async def agent(work: Work) -> None:
        work.emit(ToolCall("t", "shell", "running", "x" * many))
        work.emit(Text("y" * many))
        await work.ask(Ask("i" * many, "question", "z" * many, ("c" * many,) * 3))
        raise ValueError("e" * many)

    async with serving(agent, attrs.evolve(SETTINGS, room_bytes=10 * many)) as served:
        await served.say("kitchen", "x")
        said = 0
        async with served.events("/rooms/kitchen/events") as events:
            async for _, kind, data in events:
                assert len(json.dumps(data)) < 200_000, kind
                said += len(data.get("delta", "")) * (kind == "text")
                if kind == "tool_call":
                    assert data["detail"].startswith("xxx")
                    assert "more characters" in data["detail"]
                if kind == "ask":
                    body = {"ask": data["id"], "reply": 1}
                    assert len((await served.http.get("/rooms")).content) < 200_000
                    answer = await served.post("/rooms/kitchen/answers", **body)
                    assert answer.status_code == 202
                if kind == "settlement":
                    break
        assert said == many
        assert len((await served.http.get("/rooms/kitchen/settlements")).content) < 200_000


async def test_a_long_text_is_told_piece_by_piece_and_others_go_on_meanwhile() -> None:
    desk = _desk.Desk(SETTINGS, MemoryFeed().post)
    seat, seen = desk.seat("kitchen"), set[int]()

    async def look() -> None:
        while True:
            seen.add(seat.ring.latest)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await desk._tell_event(seat, "turn", Text("y" * 1_000_000))
        nursery.cancel_scope.cancel()
    assert len(seen) > 5


# Questions.


async def test_a_question_that_is_withdrawn_is_not_asked_for_any_more() -> None:
    async def agent(work: Work) -> None:
        with trio.move_on_after(0.1):
            await work.ask(Ask("a", "approval", "May I?", ("allow",)))
        work.emit(Text("never mind"))
        await trio.sleep_forever()

    async with serving(agent) as served:
        await served.say("kitchen", "x")
        await served.until("/events", "ask")
        await served.until("/events", "text")
        assert (await served.state("kitchen"))["asks"] == []
        turn_id = (await served.until("/events", "turn"))["turn_id"]
        await served.until("/events", "withdrawn", turn_id=turn_id, ask="a")
        answer = await served.post("/rooms/kitchen/answers", ask="a", reply="allow")
        assert answer.status_code == 409


async def test_a_question_that_is_withdrawn_without_a_word_is_not_asked_for_either() -> None:
    async def agent(work: Work) -> None:
        with trio.move_on_after(0.2):
            await work.ask(Ask("a", "approval", "May I?", ("allow",)))
        withdrawn.set()
        await trio.sleep_forever()

    withdrawn = trio.Event()
    async with serving(agent) as served:
        await served.say("kitchen", "x")
        await served.until("/events", "ask")
        await withdrawn.wait()
        assert (await served.state("kitchen"))["asks"] == []
        answer = await served.post("/rooms/kitchen/answers", ask="a", reply="allow")
        assert answer.status_code == 409
        await served.until("/events", "withdrawn", ask="a")


async def test_that_a_question_is_withdrawn_is_told_though_nothing_more_is_said() -> None:
    async def agent(work: Work) -> None:
        for id in "ab":
            with trio.move_on_after(0.1):
                await work.ask(Ask(id, "approval", "May I?", ("allow",)))
            await trio.sleep(work.content == "slow")
        await trio.sleep_forever()

    async with serving(agent) as served:
        for content in ("slow", "fast"):
            await served.say(content, content)
            with trio.fail_after(5):
                for id in "ab":
                    await served.until(f"/rooms/{content}/events", "withdrawn", ask=id)


async def test_an_answer_may_name_its_turn() -> None:
    async def agent(work: Work) -> None:
        await work.ask(Ask("a", "approval", f"May I {work.content}?", ("allow",)))

    async with serving(agent) as served:
        await served.say("kitchen", "look")
        first = (await served.until("/events", "ask"))["turn_id"]
        await served.press("kitchen", "interrupt")
        await served.say("kitchen", "delete")
        second = (await served.until("/events", "ask", text="May I delete?"))["turn_id"]
        body = {"ask": "a", "reply": "allow"}
        late = await served.post("/rooms/kitchen/answers", turn_id=first, **body)
        assert late.status_code == 409
        assert len((await served.state("kitchen"))["asks"]) == 1
        answer = await served.post("/rooms/kitchen/answers", turn_id=second, **body)
        assert answer.status_code == 202


@pytest.mark.parametrize("id", ["", "x" * 300, "a/b \N{SNOWMAN}"])
async def test_a_question_can_be_answered_whatever_its_id_is(id: str) -> None:
    async def agent(work: Work) -> None:
        work.emit(Text(f"heard {await work.ask(Ask(id, 'question', 'Why?'))}"))

    async with serving(agent) as served:
        await served.say("kitchen", "x")
        await served.until("/events", "ask", id=id)
        assert (await served.post("/rooms/kitchen/answers", ask=id, reply="so")).status_code == 202
        await served.until("/events", "text", delta="heard so")


# So many rooms, and no more.


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while True:
            if condition():
                return
            await trio.sleep(0.005)


async def idle(served: Served, room: str) -> None:
    await until(lambda: served.server.inbox.is_idle(room))


async def test_a_room_that_is_forgotten_is_not_served_any_more() -> None:
    async with serving(wait, attrs.evolve(SETTINGS, rooms=5)) as served:
        async with served.events("/events") as events:
            for number in range(20):
                await served.say(f"r{number}", "short")
                async for _, kind, data in events:
                    if kind == "message" and data["state"] == "handled":
                        break
                await idle(served, f"r{number}")
        assert len((await served.http.get("/rooms")).json()) == 5
        await until(lambda: served.server.inbox.statistics().rooms == 5)
        told = await served.until("/events", "forgotten")
        assert told == {"room": "r0"}
        # What was forgotten is there again with its next message.
        await served.say("r0", "wait")
        await served.until("/rooms/r0/events", "text")


async def test_a_stop_of_all_rooms_leaves_place_for_new_ones() -> None:
    async with serving(wait, attrs.evolve(SETTINGS, rooms=3)) as served:
        for number in range(3):
            await served.say(f"r{number}", "short")
            await served.until(f"/rooms/r{number}/events", "message", state="handled")
            await idle(served, f"r{number}")
        assert len((await served.post("/stop")).json()["rooms"]) == 3
        for number in range(3):
            await idle(served, f"r{number}")
        assert all(one["paused"] for one in (await served.http.get("/rooms")).json())
        await served.say("new", "wait")
        await served.until("/rooms/new/events", "text")
        # It is forgotten, and paused all the same.
        await served.say("r0", "wait")
        await served.until("/rooms/r0/events", "paused")
        state = await served.state("r0")
        assert (state["paused"], state["waiting"]) == (True, 1)
        await served.press("r0", "play")
        await served.until("/rooms/r0/events", "text")


async def test_rooms_that_are_paused_in_the_file_leave_place_for_new_ones(tmp_path: Path) -> None:
    path, few = tmp_path / "m.db", attrs.evolve(SETTINGS, rooms=5)
    async with open_sqlite_feed(path) as feed, serving(wait, few, feed) as served:
        for number in range(5):
            await served.say(f"r{number}", "wait" if number == 3 else "short")
            await served.until(f"/rooms/r{number}/events", "text")
        await served.post("/stop")
        await served.until("/rooms/r3/events", "message", state="waiting", attempt=0)
    async with open_sqlite_feed(path) as feed:
        # More than there is place for.
        await feed.applied(Control(ControlKind.STOP), [f"old{number}" for number in range(20)])
        async with serving(wait, few, feed) as served:
            found = (await served.http.get("/rooms")).json()
            assert [one["paused"] for one in found] == [True] * 5
            assert {one["room"]: one["waiting"] for one in found if one["waiting"]} == {"r3": 1}
            assert served.server.inbox.statistics().rooms == 1
            await served.say("new", "wait")
            await served.until("/rooms/new/events", "text")


async def test_a_message_for_a_room_that_only_the_feed_knows_to_be_paused_is_shown() -> None:
    feed = MemoryFeed()
    async with serving(wait, feed=feed) as served:
        await feed.applied(Control(ControlKind.STOP), ["kitchen"])
        await served.say("kitchen", "wait")
        await served.until("/events", "paused")
        state = await served.state("kitchen")
        assert (state["paused"], state["waiting"]) == (True, 1)
        await served.press("kitchen", "play")
        await served.until("/events", "text")


async def test_a_room_whose_message_is_being_written_is_not_forgotten() -> None:
    feed = Slow("post")
    async with (
        serving(wait, attrs.evolve(SETTINGS, rooms=1), feed) as served,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(served.say, "kitchen", "short")
        await feed.called.wait()
        await idle(served, "kitchen")
        assert (await served.post("/rooms/other/messages", content="x")).status_code == 429
        feed.go.set()


async def test_a_room_that_only_its_inbox_has_something_to_do_in_is_not_forgotten() -> None:
    feed = Slow("applied")
    async with serving(wait, attrs.evolve(SETTINGS, rooms=1), feed) as served:
        await served.say("kitchen", "short")
        await served.until("/events", "message", state="handled")
        await idle(served, "kitchen")
        await served.press("kitchen", "stop")
        # The feed does not know of the stop.
        assert (await served.post("/rooms/other/messages", content="x")).status_code == 429
        feed.go.set()
        await idle(served, "kitchen")
        await served.say("other", "short")


async def test_what_is_known_of_finished_messages_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_desk, "_FINISHED", 3)
    desk = _desk.Desk(SETTINGS, MemoryFeed().post)
    for number in range(10):
        desk.note_fate(Message("kitchen", str(number), "x"), "handled")
    assert [id for _, id in desk._finished] == ["7", "8", "9"]


async def test_a_room_that_is_listened_to_is_not_forgotten() -> None:
    async with serving(wait, attrs.evolve(SETTINGS, rooms=2)) as served:
        for room in ("heard", "unheard"):
            await served.say(room, "short")
            await served.until(f"/rooms/{room}/events", "message", state="handled")
            await idle(served, room)
        async with served.events("/rooms/heard/events") as events:
            await events.receive()
            await served.say("new", "wait")
            rooms = {one["room"] for one in (await served.http.get("/rooms")).json()}
            assert rooms == {"heard", "new"}
            assert (await served.post("/rooms/newer/messages", content="x")).status_code == 429
            await served.say("heard", "wait")
            async for _, kind, _ in events:
                if kind == "turn":
                    break
        assert (await served.post("/rooms/newer/messages", content="x")).status_code == 429


async def test_what_a_control_has_done_stands_behind_the_id_that_it_is_answered_with() -> None:
    async with serving(wait) as served:
        await served.say("kitchen", "wait")
        await served.until("/events", "text")
        pressed = await served.press("kitchen", "stop")
        async with served.events("/events", after=pressed["last_event_id"]) as events:
            assert [(await events.receive())[1] for _ in range(3)] == [
                "stopping",
                "paused",
                "settlement",
            ]
