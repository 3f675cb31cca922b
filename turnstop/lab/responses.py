"""The Responses API, as codex speaks it: `POST …/responses`, answered with server-sent events."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ._tools import Tool
from ._wire import Asked, History, dicts, server_event, texts, within

_CALL = "_call"
_OUTPUT = "_call_output"


class Responses:
    """The wire format."""

    name = "responses"

    def serves(self, method: str, path: str) -> bool:
        """Whether a request is one of this format."""
        return method == "POST" and path.endswith("/responses")

    def read(self, body: Mapping[str, Any]) -> Asked:
        """Understand a request."""
        return Asked(
            _history(body),
            tuple(_faults(body)),
            tuple(_tools(body)),
            body.get("max_output_tokens"),
            body.get("stream") is True,
            within(body, "text", "format", "schema"),
        )

    def reply(self, body: Mapping[str, Any]) -> ResponsesReply:
        """A new response."""
        return ResponsesReply(str(body.get("model", "")))


class ResponsesReply:
    """One response. Its frames carry ids of their own and count their sequence."""

    def __init__(self, model: str) -> None:
        self._id = f"resp_{uuid.uuid4().hex}"
        self._message = f"msg_{uuid.uuid4().hex}"
        self._model = model
        self._sequence = 0
        self._text: list[str] = []
        self._output: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        """The response is created."""
        return self._event("response.created", response=self._response("in_progress"))

    def piece(self, text: str) -> bytes:
        """A delta; the first one opens the message."""
        opening = b""
        if not self._text:
            item = {**self._item(), "status": "in_progress", "content": []}
            opening = self._event("response.output_item.added", output_index=0, item=item)
        self._text.append(text)
        return opening + self._event(
            "response.output_text.delta",
            item_id=self._message,
            output_index=0,
            content_index=0,
            delta=text,
        )

    def call(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        """A call of any tool."""
        call = {
            "type": "function_call",
            "id": f"fc_{uuid.uuid4().hex}",
            "call_id": f"call_{uuid.uuid4().hex}",
            "name": name,
            "arguments": json.dumps(arguments),
        }
        self._output.append(call)
        return self._event("response.output_item.done", output_index=0, item=call)

    def end(self) -> bytes:
        """The message, if there is one, and the response are complete."""
        closing = b""
        if self._text:
            self._output.append(self._item())
            closing = self._event(
                "response.output_item.done", output_index=0, item=self._output[-1]
            )
        return closing + self._event("response.completed", response=self._response("completed"))

    def fail(self) -> bytes:
        """The response has failed."""
        response = self._response("failed")
        response["error"] = {"code": "server_error", "message": "the lab was asked to fail"}
        return self._event("response.failed", response=response)

    def whole(self) -> dict[str, Any]:
        """The response."""
        return self._response("completed")

    def _item(self) -> dict[str, Any]:
        content = [{"type": "output_text", "text": "".join(self._text), "annotations": []}]
        message = {"type": "message", "id": self._message, "role": "assistant"}
        return {**message, "status": "completed", "content": content}

    def _response(self, status: str) -> dict[str, Any]:
        usage = None
        if status == "completed":
            spent = len(self._text)
            usage = {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": spent,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 1 + spent,
            }
        return {
            "id": self._id,
            "object": "response",
            "status": status,
            "model": self._model,
            "output": list(self._output),
            "usage": usage,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return server_event(kind, {"type": kind, "sequence_number": self._sequence, **fields})


def _items(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    given = body.get("input")
    if isinstance(given, str):
        yield {"type": "message", "role": "user", "content": given}
    yield from dicts(given)


def _history(body: Mapping[str, Any]) -> History:
    history = History()
    for item in _items(body):
        role, kind = item.get("role"), str(item.get("type"))
        if role in ("user", "assistant"):
            for text in texts(item.get("content")):
                (history.user if role == "user" else history.model)(text)
        elif kind.endswith(_OUTPUT):
            history.result()
        elif kind.endswith(_CALL):
            history.call()
    return history


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    """Those of the request; for some models codex has them in an item, and in groups."""
    found = dicts(body.get("tools"))
    for item in _items(body):
        if item.get("type") == "additional_tools":
            for group in dicts(item.get("tools")):
                found += dicts(group.get("tools"))
    for tool in found:
        yield Tool(str(tool.get("name", tool.get("type"))), tool.get("parameters"))


def _faults(body: Mapping[str, Any]) -> Iterator[str]:
    """A call needs its one result, and a result a call before it."""
    waiting: dict[str, str] = {}
    for item in _items(body):
        kind, call = str(item.get("type")), str(item.get("call_id"))
        if kind.endswith(_OUTPUT):
            if waiting.pop(call, None) is None:
                yield f"a result without its call: {call}"
        elif kind.endswith(_CALL) and "call_id" in item:
            waiting[call] = str(item.get("name", kind))
    for call, name in waiting.items():
        yield f"a call of {name} without its result: {call}"
