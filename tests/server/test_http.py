"""The HTTP interface: what is refused and how, and what is answered."""

from __future__ import annotations

import json
import logging
from typing import Any, NoReturn

import attrs
import httpx2
import pytest
import trio
from servers import HEADERS, SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work
from turnstop.events import Ask, Text, ToolCall
from turnstop.feeds import MemoryFeed
from turnstop.server._desk import Desk
from turnstop.server._routes import OPERATIONS, Operation


async def talk(work: Work) -> None:
    """Says what it is told, and ends; `wait` never ends."""
    work.emit(Text(str(work.content)))
    if work.content == "ask":
        reply = await work.ask(Ask("a1", "approval", "May I?", ("allow", "deny")))
        work.emit(Text(f"heard {reply}"))
    if work.content == "wait":
        await trio.sleep_forever()


async def read_raw(served: Served, path: str, until: bytes) -> bytes:
    """What comes over the connection, up to something."""
    host, port = served.server.url.removeprefix("http://").split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\n{HEADERS}\r\n".encode())
        raw = b""
        while until not in raw:
            raw += await stream.receive_some()
    return raw


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", "Bearer", "Bearer é"])
async def test_who_does_not_bear_the_token_is_refused_whatever_is_asked(
    one: Operation, header: str | None
) -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "wait")
        await served.until("/events", "text")
        headers = {} if header is None else {"Authorization": header.encode()}
        del served.http.headers["Authorization"]
        path = one.path.format(room="kitchen")
        response = await served.http.request(one.method, path, headers=headers, content=b"{}")
        assert response.status_code == (200 if one.is_open else 401)
        assert served.server.statistics().live == 1
        assert served.server.statistics().stopping == 0


async def test_the_token_is_asked_for_before_anything_is_said_of_rooms() -> None:
    async with serving(talk) as served:
        del served.http.headers["Authorization"]
        for path in ("/rooms/nowhere", "/nothing", "/rooms/a/b/c"):
            response = await served.http.get(path)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"


async def test_the_page_and_the_document_need_no_token_and_run_nothing_from_elsewhere() -> None:
    async with serving(talk) as served:
        del served.http.headers["Authorization"]
        for path in ("/", "/style.css", "/app.js", "/openapi.json", "/health"):
            response = await served.http.get(path)
            assert response.status_code == 200
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert TOKEN not in response.text
            assert response.headers["cache-control"] == "no-store"


async def test_nothing_that_is_answered_is_kept_by_a_cache() -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "x")
        for path in ("/rooms", "/rooms/kitchen", "/rooms/kitchen/settlements", "/nowhere"):
            assert (await served.http.get(path)).headers["cache-control"] == "no-store"


async def test_as_many_messages_as_it_may_are_handled_at_the_same_time() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, at_once=1)) as served:
        await served.say("kitchen", "wait")
        await served.until("/rooms/kitchen/events", "text")
        await served.say("hall", "wait")
        await trio.sleep(0.3)
        assert (await served.state("hall"))["turn_id"] is None
        await served.press("kitchen", "interrupt")
        await served.until("/rooms/hall/events", "text")


async def test_a_room_that_has_nothing_to_do_gives_its_session_back_in_time() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, retire_after=0.1)) as served:
        await served.say("kitchen", "x")
        await served.until("/rooms/kitchen/events", "message", state="handled")
        for _ in range(250):
            await trio.sleep(0.02)
            if not served.server.inbox.statistics().rooms:
                break
        assert served.server.inbox.statistics().rooms == 0
        await served.say("kitchen", "y")
        await served.until("/rooms/kitchen/events", "text", delta="y")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `content`"),
        (b'{"content": 7}', "Expected `str`, got `int` - at `$.content`"),
        (b'{"content": ""}', "length >= 1"),
        (b'{"content": "x", "more": 1}', "unknown field `more`"),
        (b'{"content": "x", "id": ""}', "length >= 1"),
        (b'{"content": "x", "id": "%s"}' % (b"i" * 201), "length <= 200"),
        (b'{"content": "\xff"}', "UTF-8"),
        (b'{"content": "\\ud800"}', "truncated"),
        (b"[" * 100_000, "Expected `object`"),
        (b'{"content": ' + b"[" * 100_000, "Expected `str`"),
    ],
)
async def test_what_is_no_message_is_refused_with_what_was_wrong(body: bytes, says: str) -> None:
    async with serving(talk) as served:
        response = await served.http.post("/rooms/kitchen/messages", content=body)
        assert response.status_code == 400
        assert says.lower() in response.json()["error"].lower()
        assert (await served.http.get("/rooms")).json() == []


async def test_an_answer_may_be_any_json_but_not_without_end() -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "ask")
        await served.until("/events", "ask")
        body = b'{"ask": "a1", "reply": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        response = await served.http.post("/rooms/kitchen/answers", content=body)
        assert response.status_code == 400
        assert "nested" in response.json()["error"] or "recursion" in response.json()["error"]


@pytest.mark.parametrize("what", ["", "/settlements", "/events"])
async def test_an_unknown_room_is_not_there(what: str) -> None:
    async with serving(talk) as served:
        response = await served.http.get(f"/rooms/nowhere{what}")
        assert response.status_code == 404
        assert "nowhere" in response.json()["error"]
        for kind in ("stop", "interrupt", "play", "answers"):
            body = {"ask": "a", "reply": 1} if kind == "answers" else {}
            assert (await served.post(f"/rooms/nowhere/{kind}", **body)).status_code == 404


async def test_a_wrong_path_and_a_wrong_method_are_said_in_json() -> None:
    async with serving(talk) as served:
        assert (await served.http.get("/nothing")).json() == {"error": "Not Found"}
        response = await served.http.delete("/rooms")
        assert response.status_code == 405
        assert response.json() == {"error": "Method Not Allowed"}
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("times", [1.1, 3, 20])
async def test_a_body_that_is_too_large_is_refused(times: float) -> None:
    async with serving(talk, attrs.evolve(SETTINGS, body=20_000)) as served:
        try:
            response = await served.post(
                "/rooms/kitchen/messages", content="x" * int(20_000 * times)
            )
        except (OSError, httpx2.TransportError):
            assert times == 20
            return
        assert response.status_code == 413
        assert "20000" in response.json()["error"]
        assert (await served.http.get("/rooms")).json() == []


async def test_too_many_requests_are_refused_and_a_stop_is_not_one_of_them() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, rate=0.1, burst=3)) as served:
        await served.say("kitchen", "wait")
        await served.until("/events", "text")
        assert (await served.http.get("/rooms")).status_code == 200
        refused = await served.http.get("/rooms")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert (await served.press("kitchen", "stop"))["turn_ids"]


async def test_there_are_only_so_many_rooms_and_an_idle_one_makes_place() -> None:
    async with serving(talk, attrs.evolve(SETTINGS, rooms=2)) as served:
        await served.say("busy", "wait")
        await served.say("idle", "short")
        await served.until("/rooms/idle/events", "message", state="handled")
        await served.say("third", "wait")
        assert {one["room"] for one in (await served.http.get("/rooms")).json()} == {
            "busy",
            "third",
        }
        response = await served.post("/rooms/fourth/messages", content="x")
        assert response.status_code == 429
        assert (await served.state("third"))["waiting"] == 1


async def test_a_room_may_be_called_anything_that_a_url_can_carry() -> None:
    async with serving(talk) as served:
        for name in ("a/b", "a b?c#d%", "\u202e\N{SNOWMAN}", "<b>x</b>", "x/stop"):
            quoted = "".join(f"%{byte:02X}" for byte in name.encode())
            await served.say(quoted, "wait")
            assert (await served.state(quoted))["room"] == name
            assert (await served.press(quoted, "stop"))["rooms"] == [name]
        assert (await served.http.get("/rooms/%FF")).status_code == 400
        assert (await served.http.get("/rooms/" + "x" * 201)).status_code == 400
        dots = await served.http.post("/rooms/%2E%2E/messages", content=b'{"content": "x"}')
        assert dots.status_code in (400, 404, 405)


async def test_a_message_is_worked_on_and_all_is_told_in_order() -> None:
    async with serving(talk) as served:
        id = await served.say("kitchen", "hello", id="mine")
        assert id == "mine"
        kinds = []
        async with served.events("/rooms/kitchen/events") as events:
            async for _, kind, data in events:
                assert data["room"] == "kitchen"
                kinds.append((kind, data.get("state")))
                if (kind, data.get("state")) == ("message", "handled"):
                    break
        assert kinds == [
            ("message", "waiting"),
            ("message", "working"),
            ("turn", None),
            ("text", None),
            ("settlement", None),
            ("message", "handled"),
        ]
        (settlement,) = (await served.http.get("/rooms/kitchen/settlements")).json()
        assert settlement["ending"] == "finished"
        state = await served.state("kitchen")
        assert state == {
            "room": "kitchen",
            "paused": False,
            "turn_id": None,
            "asks": [],
            "waiting": 0,
            "recovered": [],
        }


async def test_a_stop_keeps_the_message_and_play_has_it_worked_on_anew() -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "wait")
        turn = await served.until("/events", "turn")
        pressed = await served.press("kitchen", "stop", reason="enough")
        assert pressed.pop("last_event_id")
        assert pressed == {"rooms": ["kitchen"], "turn_ids": [turn["turn_id"]], "repeated": False}
        settlement = await served.until("/events", "settlement")
        assert settlement["ending"] == "stopped"
        assert settlement["request"] == {"kind": "stop", "reason": "enough", "source": "http"}
        await served.until("/events", "message", state="waiting", attempt=0)
        state = await served.state("kitchen")
        assert (state["paused"], state["waiting"], state["turn_id"]) == (True, 1, None)
        await served.press("kitchen", "play")
        async with served.events("/events") as events:
            turns = set[str]()
            async for _, kind, data in events:
                if kind == "turn":
                    turns.add(data["turn_id"])
                if len(turns) == 2:
                    break
        assert not (await served.state("kitchen"))["paused"]


async def test_an_interrupt_drops_the_message() -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "wait")
        await served.until("/events", "text")
        await served.press("kitchen", "interrupt")
        await served.until("/events", "message", state="handled")
        state = await served.state("kitchen")
        assert (state["paused"], state["waiting"]) == (False, 0)


class Late:
    """A feed that never gets round to saying what was posted."""

    def __init__(self) -> None:
        self._feed = MemoryFeed()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def receive(self) -> NoReturn:
        await trio.sleep_forever()


async def test_a_stop_right_behind_the_message_is_not_lost() -> None:
    async with serving(talk, feed=Late()) as served:
        await served.say("kitchen", "wait")
        assert (await served.press("kitchen", "stop"))["rooms"] == ["kitchen"]
        await served.until("/events", "message", state="waiting")
        state = await served.state("kitchen")
        assert (state["paused"], state["waiting"], state["turn_id"]) == (True, 1, None)


async def test_a_control_is_applied_once_by_its_id_and_only_to_its_turn() -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "wait")
        turn = (await served.until("/events", "turn"))["turn_id"]
        assert (await served.press("kitchen", "stop", turn_id="another"))["rooms"] == []
        assert served.server.statistics().stopping == 0
        assert (await served.press("kitchen", "stop", turn_id=turn, id="c1"))["turn_ids"] == [turn]
        await served.press("kitchen", "play")
        again = await served.press("kitchen", "stop", turn_id=turn, id="c1")
        assert again.pop("last_event_id")
        assert again == {"rooms": [], "turn_ids": [], "repeated": True}


async def test_a_stop_of_all_rooms_reaches_them_all() -> None:
    async with serving(talk) as served:
        for number in range(10):
            await served.say(f"r{number}", "wait")
        async with served.events("/events") as events:
            begun = 0
            async for _, kind, _ in events:
                begun += kind == "turn"
                if begun == 10:
                    break
        response = await served.post("/stop")
        assert len(response.json()["turn_ids"]) == 10
        assert all(one["paused"] for one in (await served.http.get("/rooms")).json())


async def test_a_question_is_answered_once() -> None:
    async with serving(talk) as served:
        await served.say("kitchen", "ask")
        asked = await served.until("/events", "ask")
        assert asked["choices"] == ["allow", "deny"]
        (waiting,) = (await served.state("kitchen"))["asks"]
        assert waiting["text"] == "May I?"
        body = {"ask": "a1", "reply": "allow"}
        assert (await served.post("/rooms/kitchen/answers", **body)).status_code == 202
        await served.until("/events", "text", delta="heard allow")
        late = await served.post("/rooms/kitchen/answers", **body)
        assert late.status_code == 409
        assert (await served.state("kitchen"))["asks"] == []


async def test_no_log_has_the_token_nor_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(work: Work) -> None:
        work.emit(ToolCall("t", "shell", "started", "tool-secret"))
        raise ValueError(f"agent-secret {work.content}")

    caplog.set_level(logging.INFO)
    async with serving(fails) as served:
        await served.say("kitchen", "prompt-secret")
        await served.until("/events", "message", state="failed")
        await served.post("/rooms/kitchen/messages", content=7)
        await served.press("kitchen", "stop", reason="reason-secret")
        served.http.headers["Authorization"] = "Bearer other-secret"
        await served.http.get("/rooms")
    told = "\n".join(
        record.getMessage() + str(record.exc_text or "")
        for record in caplog.records
        if not record.name.startswith(("httpx2", "httpcore"))
    )
    assert TOKEN not in told
    assert "-secret" not in told


async def test_a_fault_of_the_server_is_a_500_that_shows_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("prompt-secret")

    monkeypatch.setattr(Desk, "press", fails)
    async with serving(talk) as served:
        await served.say("kitchen", "wait")
        response = await served.post("/rooms/kitchen/stop")
        assert response.status_code == 500
        assert response.json() == {"error": "the server is at fault: ValueError"}
    (record,) = [one for one in caplog.records if one.name == "turnstop.server"]
    assert "ValueError in fails" in record.getMessage()
    assert "secret" not in f"{record.getMessage()}{record.exc_info}"


async def test_hostile_text_is_one_event_and_stays_what_it_is() -> None:
    hostile = 'a\n\ndata: {"x"}\r\nid: 1\r\n\r\nevent: gap\u2028\u0085\0<script>alert(1)</script>'
    async with serving(talk) as served:
        await served.say("kitchen", hostile)
        await served.until("/events", "settlement")
        raw = await read_raw(served, "/rooms/kitchen/events", b"settlement")
        assert raw.count(b"event: text\n") == 1
        assert b"event: gap" not in raw.replace(b"\\nevent: gap", b"")
        (line,) = [
            one for one in raw.split(b"\n") if one.startswith(b"data: ") and b'"delta"' in one
        ]
        assert json.loads(line[6:])["delta"] == hostile
