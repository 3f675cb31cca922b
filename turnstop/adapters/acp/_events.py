"""ACP's session updates in everybody's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, final

from ...events import Event, Other, Text, Thought, ToolCall
from ...transports.jsonrpc import Incoming

_State: TypeAlias = Literal["started", "running", "completed", "failed"]
_STATES: Mapping[str, _State] = {
    "pending": "started",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}
_PIECES: Mapping[str, type[Text] | type[Thought]] = {
    "agent_message_chunk": Text,
    "agent_thought_chunk": Thought,
}
_TOOLS = ("tool_call", "tool_call_update")
_OVER = ("completed", "failed")


@final
class Translator:
    """Turns one turn's updates into events.

    An update names its session and no turn. Where it names its message, or its tool call, one that
    an earlier turn of the session has named belongs to that.

    Attributes:
        named: the messages and tool calls that this turn has named.
        has_said: whether there was a piece of an answer, or a tool call.
    """

    def __init__(self, earlier: frozenset[str]) -> None:
        self.named: set[str] = set()
        self.has_said = False
        self._earlier = earlier
        self._tools: dict[str, str] = {}
        self._open: set[str] = set()

    @property
    def has_open_tools(self) -> bool:
        """Whether a tool call has begun and was not told to be over."""
        return bool(self._open)

    def note_asked(self, request: Incoming) -> None:
        """A tool call that a person is asked about has begun, and is not over."""
        call = request.params.get("toolCall")
        if isinstance(call, dict):
            self._open.add(str(call.get("toolCallId")))

    def translate(self, incoming: Incoming) -> Event | None:
        """The event of a notification; None where it is an earlier turn's."""
        update = incoming.params.get("update")
        if incoming.method != "session/update" or not isinstance(update, dict):
            return Other(incoming.method, raw=incoming.raw)
        kind = str(update.get("sessionUpdate"))
        if self._is_earlier(update, kind):
            return None
        if kind in _TOOLS and isinstance(update.get("toolCallId"), str):
            self.has_said = True
            return self._tool(update, kind, incoming.raw)
        content = update.get("content")
        if kind in _PIECES and isinstance(content, dict) and content.get("type") == "text":
            return self._piece(kind, str(content.get("text", "")), incoming.raw)
        return Other(kind, raw=incoming.raw)

    def _piece(self, kind: str, text: str, raw: object) -> Event | None:
        # Some agents begin a message by an empty piece.
        if not text:
            return None
        self.has_said = True
        return _PIECES[kind](text, raw=raw)

    def _is_earlier(self, update: Mapping[str, Any], kind: str) -> bool:
        name = update.get("toolCallId" if kind in _TOOLS else "messageId")
        if not isinstance(name, str):
            return False
        # Some agents number each turn's calls anew: one that begins here is this turn's.
        if name in self._earlier and name not in self.named and kind != "tool_call":
            return True
        self.named.add(name)
        return False

    def _tool(self, update: Mapping[str, Any], kind: str, raw: object) -> ToolCall:
        number = str(update["toolCallId"])
        if title := update.get("title"):
            self._tools[number] = str(title)
        name = self._tools.get(number) or str(update.get("kind") or "tool")
        state: _State = "started" if kind == "tool_call" else "running"
        state = _STATES.get(str(update.get("status")), state)
        (self._open.discard if state in _OVER else self._open.add)(number)
        return ToolCall(number, name, state, _detail(update), raw=raw)


def _detail(update: Mapping[str, Any]) -> str:
    """What was put out, else what was put in."""
    content = update.get("content")
    pieces = [_text(one) for one in content] if isinstance(content, list) else []
    if text := "".join(pieces):
        return text
    given = update.get("rawInput")
    command = given.get("command") if isinstance(given, dict) else None
    if isinstance(command, str):
        return command
    return json.dumps(given) if given else ""


def _text(piece: object) -> str:
    inner = piece.get("content") if isinstance(piece, dict) else None
    return str(inner.get("text", "")) if isinstance(inner, dict) else ""
