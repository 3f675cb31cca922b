"""Frames: how JSON-RPC writes and reads them, and that a request is answered once."""

from __future__ import annotations

import pytest

from turnstop import BackendMisbehaved, BackendRefused
from turnstop.transports.dialect import (
    Frame,
    Incoming,
    JsonRpc,
    Reply,
    Said,
    decode,
    shorten,
    to_blocks,
    to_error,
)


@pytest.mark.parametrize(
    ("frame", "read"),
    [
        ({"id": 1, "method": "ask", "params": {"a": 1}}, Said("ask", {"a": 1}, 1)),
        ({"id": "q", "method": "ask"}, Said("ask", {}, "q")),
        ({"id": 1.5, "method": "ask", "params": [1]}, Said("ask", {}, 1.5)),
        ({"method": "say", "params": None}, Said("say", {})),
        ({"id": 3, "result": [1]}, Reply(3, [1])),
        ({"id": 3, "error": None, "result": 0}, Reply(3, 0)),
        ({"id": "3"}, Reply("3")),
    ],
)
def test_frames_are_understood(frame: Frame, read: object) -> None:
    assert JsonRpc().read(frame) == read


def test_an_error_is_the_reply_whatever_else_there_is() -> None:
    heard = JsonRpc().read({"id": 3, "result": 1, "error": {"code": 5, "message": "no"}})
    assert isinstance(heard, Reply)
    assert (heard.number, heard.result, str(heard.error)) == (3, None, "no (5)")


@pytest.mark.parametrize(
    "frame",
    [{}, {"id": None, "result": 1}, {"id": [1], "method": "ask"}, {"id": {}, "result": 1}],
)
def test_what_is_no_frame_of_it_is_told(frame: Frame) -> None:
    with pytest.raises(BackendMisbehaved, match="no JSON-RPC"):
        JsonRpc().read(frame)


def test_frames_are_written_with_the_version_or_without() -> None:
    rpc = JsonRpc()
    assert rpc.call(1, "go", {}) == {"jsonrpc": "2.0", "id": 1, "method": "go", "params": {}}
    bare = JsonRpc(version=False)
    assert bare.notification("say", None) == {"method": "say"}
    assert bare.notification("say", {"a": 1}) == {"method": "say", "params": {"a": 1}}
    assert bare.result("q", None) == {"id": "q", "result": None}
    assert bare.refusal("q", "no", 7) == {"id": "q", "error": {"code": 7, "message": "no"}}


def test_a_request_is_answered_once() -> None:
    told: list[Frame] = []
    asked = Incoming("ask", {}, {}, told.append, JsonRpc(version=False), "q")
    assert asked.wants_reply
    asked.refuse("not me")
    assert not asked.wants_reply
    asked.refuse("nor me")
    asked.reply(1)
    assert told == [{"id": "q", "error": {"code": -32601, "message": "not me"}}]


def test_a_notification_is_not_answered() -> None:
    told: list[Frame] = []
    said = Incoming("say", {}, {}, told.append)
    said.reply(1)
    said.refuse("no")
    assert not said.wants_reply
    assert told == []


@pytest.mark.parametrize("line", [b"", b"nothing", b"[" * 100_000, b"\xff", b'"text"', b"[1]"])
def test_a_line_that_is_no_object_is_told(line: bytes) -> None:
    with pytest.raises(BackendMisbehaved, match="what is no JSON"):
        decode(line)


def test_what_is_long_is_shortened() -> None:
    assert shorten(b"\xff" + b"x" * 500) == "\ufffd" + "x" * 199 + "..."
    assert shorten({"a": 1}) == "{'a': 1}"


def test_an_endless_message_of_an_error_is_cut() -> None:
    error = to_error({"code": 5, "message": "x" * 2**20})
    assert error.message == "x" * 4096
    assert to_error({"code": 5, "message": "no flour"}).message == "no flour"


def test_content_is_a_text_or_a_list_of_blocks() -> None:
    assert to_blocks("hi") == "hi"
    assert to_blocks(({"type": "text"}, 1.5)) == [{"type": "text"}, 1.5]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"hi", "no bytes"),
        ({"type": "text"}, "no dict"),
        (7, "no int"),
        ([b"image"], "cannot be sent: .*bytes is not JSON"),
        ([float("nan")], "cannot be sent"),
    ],
)
def test_content_that_cannot_be_written_is_refused(content: object, text: str) -> None:
    with pytest.raises(BackendRefused, match=text):
        to_blocks(content)
