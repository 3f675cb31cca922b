"""Gemini's: `POST …/models/X:streamGenerateContent?alt=sse`, and whole by `:generateContent`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ._tools import Tool
from ._wire import Asked, History, data_event, dicts, within


class Gemini:
    """The wire format. Each of its two methods is a path of its own.

    Args:
        streamed: which one this serves.
    """

    name = "gemini"

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed

    def serves(self, method: str, path: str) -> bool:
        """Whether a request is one of this format."""
        verb = ":streamGenerateContent" if self._streamed else ":generateContent"
        return method == "POST" and path.endswith(verb)

    def read(self, body: Mapping[str, Any]) -> Asked:
        """Understand a request."""
        contents = dicts(body.get("contents"))
        return Asked(
            _history(contents),
            tuple(_faults(contents)),
            tuple(_tools(body)),
            within(body, "generationConfig", "maxOutputTokens"),
            self._streamed,
            within(body, "generationConfig", "responseJsonSchema")
            or within(body, "generationConfig", "responseSchema"),
        )

    def reply(self, body: Mapping[str, Any]) -> GeminiReply:
        """A new response."""
        return GeminiReply()


class GeminiReply:
    """One response: chunks that are responses themselves, the last one with a reason."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._parts: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        """Nothing: the first chunk has text in it."""
        return b""

    def piece(self, text: str) -> bytes:
        """A chunk of text."""
        return self._chunk({"text": text})

    def call(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        """A call of any tool, whole."""
        return self._chunk({"functionCall": {"name": name, "args": dict(arguments)}})

    def end(self) -> bytes:
        """The chunk with the reason."""
        return data_event(self._response([{"text": ""}], "STOP"))

    def fail(self) -> bytes:
        """An error in place of a chunk."""
        error = {"code": 500, "message": "the lab was asked to fail", "status": "INTERNAL"}
        return data_event({"error": error})

    def whole(self) -> dict[str, Any]:
        """The response."""
        return self._response(self._parts, "STOP")

    def _chunk(self, part: dict[str, Any]) -> bytes:
        self._parts.append(part)
        return data_event(self._response([part], None))

    def _response(self, parts: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        spent = len(self._parts)
        usage = {"promptTokenCount": 1, "candidatesTokenCount": spent, "totalTokenCount": 1 + spent}
        return {"candidates": [candidate], "usageMetadata": usage, "responseId": self._id}


def _history(contents: list[Mapping[str, Any]]) -> History:
    history = History()
    for content in contents:
        for part in dicts(content.get("parts")):
            if "functionResponse" in part:
                history.result()
            elif "functionCall" in part:
                history.call()
            elif not part.get("thought"):
                (history.model if content.get("role") == "model" else history.user)(
                    part.get("text")
                )
    return history


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    for group in dicts(body.get("tools")):
        for one in dicts(group.get("functionDeclarations")):
            yield Tool(str(one.get("name")), one.get("parametersJsonSchema", one.get("parameters")))


def _faults(contents: list[Mapping[str, Any]]) -> Iterator[str]:
    """Calls follow the user's turn; the turn after them has as many responses; no other has any."""
    waiting: list[str] = []
    before = "nothing"
    for content in contents:
        role, parts = str(content.get("role", "user")), dicts(content.get("parts"))
        if not parts:
            yield f"a turn of the {role}'s without parts"
        responses = [part for part in parts if "functionResponse" in part]
        if len(responses) != len(waiting):
            yield f"{len(responses)} responses to {len(waiting)} calls {waiting}"
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        waiting = [str(call.get("name")) for call in calls]
        if waiting and before not in ("user", "function"):
            yield f"calls {waiting} after {before}"
        before = role
    if waiting:
        yield f"0 responses to {len(waiting)} calls {waiting}"
