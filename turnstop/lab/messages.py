"""Anthropic's Messages: `POST …/v1/messages`, streamed, or whole where `stream` is not true."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ._tools import Tool
from ._wire import Asked, History, dicts, server_event, within


class Messages:
    """The wire format."""

    name = "messages"

    def serves(self, method: str, path: str) -> bool:
        """Whether a request is one of this format."""
        return method == "POST" and path.endswith("/messages")

    def read(self, body: Mapping[str, Any]) -> Asked:
        """Understand a request."""
        messages = dicts(body.get("messages"))
        return Asked(
            _history(messages),
            tuple(_faults(messages)),
            tuple(_tools(body)),
            body.get("max_tokens"),
            body.get("stream") is True,
            within(body, "output_config", "format", "schema"),
        )

    def reply(self, body: Mapping[str, Any]) -> MessagesReply:
        """A new response."""
        return MessagesReply(str(body.get("model", "")))


class MessagesReply:
    """One response: content blocks, each with a start, deltas and a stop."""

    def __init__(self, model: str) -> None:
        self._id = f"msg_{uuid.uuid4().hex[:24]}"
        self._model = model
        self._content: list[dict[str, Any]] = []
        self._is_open = False
        self._spent = 0

    def begin(self) -> bytes:
        """The message starts."""
        return _event("message_start", message=self._message(None))

    def piece(self, text: str) -> bytes:
        """A delta; the first one opens the block."""
        opening = b""
        if not self._is_open:
            opening = self._open({"type": "text", "text": ""})
        self._content[-1]["text"] += text
        return opening + self._delta({"type": "text_delta", "text": text})

    def call(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        """A call of any tool, in a block of its own."""
        block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": name}
        frames = self._close() + self._open({**block, "input": {}})
        self._content[-1]["input"] = dict(arguments)
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        return frames + self._delta(delta) + self._close()

    def end(self) -> bytes:
        """The reason, and the end of the message."""
        delta = {"stop_reason": self._reason(), "stop_sequence": None}
        usage = {"output_tokens": self._spent}
        last = _event("message_delta", delta=delta, usage=usage) + _event("message_stop")
        return self._close() + last

    def fail(self) -> bytes:
        """An error event."""
        error = {"type": "api_error", "message": "the lab was asked to fail"}
        return _event("error", error=error)

    def whole(self) -> dict[str, Any]:
        """The message."""
        return self._message(self._reason())

    def _reason(self) -> str:
        called = any(block["type"] == "tool_use" for block in self._content)
        return "tool_use" if called else "end_turn"

    def _message(self, reason: str | None) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": list(self._content),
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": self._spent},
        }

    def _open(self, block: dict[str, Any]) -> bytes:
        self._content.append(dict(block))
        self._is_open = True
        index = len(self._content) - 1
        return _event("content_block_start", index=index, content_block=block)

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        self._spent += 1
        return _event("content_block_delta", index=len(self._content) - 1, delta=delta)

    def _close(self) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        return _event("content_block_stop", index=len(self._content) - 1)


def _event(kind: str, **fields: Any) -> bytes:
    return server_event(kind, {"type": kind, **fields})


def _history(messages: list[Mapping[str, Any]]) -> History:
    history = History()
    for role, blocks in _turns(messages):
        for block in blocks:
            if block.get("type") == "tool_result":
                history.result()
            elif block.get("type") == "tool_use":
                history.call()
            else:
                (history.user if role == "user" else history.model)(block.get("text"))
    return history


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    for tool in dicts(body.get("tools")):
        yield Tool(str(tool.get("name")), tool.get("input_schema"))


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return dicts(content)


def _turns(messages: list[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The messages as the API sees them: those in a row of one role are one.

    What a program tells its model in messages of the role `system` is no part of the dialogue.
    """
    turns: list[tuple[str, list[Mapping[str, Any]]]] = []
    for message in messages:
        role = str(message.get("role"))
        if role == "system":
            continue
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(message))
    return turns


def _faults(messages: list[Mapping[str, Any]]) -> Iterator[str]:
    """The user is first, no text is blank, and calls and results are paired.

    The results of a message's calls are in the next one, one for each, before anything else.
    """
    turns = _turns(messages)
    if turns and turns[0][0] != "user":
        yield "the first message is not the user's"
    waiting: dict[str, str] = {}
    seen: set[str] = set()
    for role, blocks in [*turns, ("", [])]:
        is_late = False
        for block in blocks:
            if block.get("type") != "tool_result":
                is_late = True
                continue
            call = str(block.get("tool_use_id"))
            if waiting.pop(call, None) is None:
                yield f"a result without its call: {call}"
            elif is_late:
                yield f"a result behind something else: {call}"
        yield from (f"a call of {name} without its result: {one}" for one, name in waiting.items())
        waiting = {str(one.get("id")): str(one.get("name")) for one in _of("tool_use", blocks)}
        yield from (f"a call's id is used again: {call}" for call in waiting.keys() & seen)
        seen |= waiting.keys()
        for block in _of("text", blocks):
            if not str(block.get("text", "")).strip():
                yield f"a blank text of the {role}'s"


def _of(kind: str, blocks: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [block for block in blocks if block.get("type") == kind]
