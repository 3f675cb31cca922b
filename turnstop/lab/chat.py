"""Chat Completions: `POST …/chat/completions`, streamed, or whole where `stream` is not true."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ._tools import Tool
from ._wire import Asked, History, data_event, dicts, texts, within


class Chat:
    """The wire format."""

    name = "chat"

    def serves(self, method: str, path: str) -> bool:
        """Whether a request is one of this format."""
        return method == "POST" and path.endswith("/chat/completions")

    def read(self, body: Mapping[str, Any]) -> Asked:
        """Understand a request."""
        messages = dicts(body.get("messages"))
        return Asked(
            _history(messages),
            tuple(_faults(messages)),
            tuple(_tools(body)),
            body.get("max_completion_tokens", body.get("max_tokens")),
            body.get("stream") is True,
            within(body, "response_format", "json_schema", "schema"),
        )

    def reply(self, body: Mapping[str, Any]) -> ChatReply:
        """A new response."""
        usage = within(body, "stream_options", "include_usage") is True
        return ChatReply(str(body.get("model", "")), usage=usage)


class ChatReply:
    """One response: chunks of a delta each, and `[DONE]`."""

    def __init__(self, model: str, *, usage: bool) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._model = model
        self._tells_usage = usage
        self._text: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        """A delta."""
        self._text.append(text)
        return self._chunk({"content": text})

    def call(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        """A call of any tool, in one delta."""
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
        self._calls.append(call)
        return self._chunk({"tool_calls": [{"index": len(self._calls) - 1, **call}]})

    def end(self) -> bytes:
        """The reason, the usage where it was asked for, and the end of the stream."""
        last = self._chunk({}, self._reason())
        if self._tells_usage:
            last += data_event({**self._head("chat.completion.chunk"), **self._usage()})
        return last + b"data: [DONE]\n\n"

    def fail(self) -> bytes:
        """An error in place of a chunk."""
        message = "the lab was asked to fail"
        error = {"message": message, "type": "server_error", "param": None, "code": None}
        return data_event({"error": error})

    def whole(self) -> dict[str, Any]:
        """The completion."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "finish_reason": self._reason()}
        return {**self._head("chat.completion"), **self._usage(), "choices": [choice]}

    def _reason(self) -> str:
        return "tool_calls" if self._calls else "stop"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": 0, "model": self._model, "choices": []}

    def _usage(self) -> dict[str, Any]:
        spent = len(self._text) + len(self._calls)
        usage = {"prompt_tokens": 1, "completion_tokens": spent, "total_tokens": 1 + spent}
        return {"usage": usage}

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return data_event({**self._head("chat.completion.chunk"), "choices": [choice]})


def _history(messages: list[Mapping[str, Any]]) -> History:
    history = History()
    for message in messages:
        role = message.get("role")
        if role in ("user", "assistant"):
            for text in texts(message.get("content")):
                (history.user if role == "user" else history.model)(text)
        if role == "tool":
            history.result()
        elif message.get("tool_calls"):
            history.call()
    return history


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    for tool in dicts(body.get("tools")):
        yield Tool(str(within(tool, "function", "name")), within(tool, "function", "parameters"))


def _faults(messages: list[Mapping[str, Any]]) -> Iterator[str]:
    """The results of an assistant's calls are the messages right after it, one for each."""
    waiting: dict[str, str] = {}
    for message in messages:
        role, call = message.get("role"), str(message.get("tool_call_id"))
        if role == "tool":
            if waiting.pop(call, None) is None:
                yield f"a result without its call: {call}"
            continue
        yield from (f"a call of {name} without its result: {one}" for one, name in waiting.items())
        waiting = {}
        if role == "assistant":
            for made in dicts(message.get("tool_calls")):
                waiting[str(made.get("id"))] = str(within(made, "function", "name"))
            if message.get("content") is None and not waiting:
                yield "an assistant's message with neither content nor calls"
    yield from (f"a call of {name} without its result: {one}" for one, name in waiting.items())
