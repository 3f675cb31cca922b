"""opencode's messages and their parts in everybody's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, final

from ...events import Event, Other, Text, Thought, ToolCall, Usage

Frame: TypeAlias = Mapping[str, Any]
_State: TypeAlias = Literal["started", "running", "completed", "failed"]

_TASK = "task"


@final
class Translator:
    """Turns what a turn's messages hold into events, each piece once, however often it is told.

    Attributes:
        usage: the turn's tokens so far, or None.
        calls: the turn's tool calls that are known.
        children: the sessions of the sub-agents that its calls began.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.calls: set[str] = set()
        self.children: set[str] = set()
        self._said: dict[str, int] = {}
        self._torn: set[str] = set()
        self._thoughts: set[str] = set()
        self._tools: dict[str, tuple[str, int]] = {}
        self._tokens: dict[str, tuple[int, int]] = {}

    def stored(self, part: Frame, raw: object) -> list[Event]:
        """The events of a part, as the server has it.

        Pieces of it that are heard later may be in it or not, and others may be missing.
        """
        found = self.part(part, raw)
        self._torn.add(str(part.get("id")))
        return found

    def part(self, part: Frame, raw: object) -> list[Event]:
        """The events of a part, as it is told in the order of its pieces."""
        kind, number = part.get("type"), str(part.get("id"))
        if kind == "tool":
            return self._tool(part, raw)
        if kind not in ("text", "reasoning"):
            return [Other(f"message.part:{kind}", raw=raw)]
        if kind == "reasoning":
            self._thoughts.add(number)
        text = str(part.get("text") or "")
        fresh = text[self._said.get(number, 0) :]
        self._said[number] = max(len(text), self._said.get(number, 0))
        self._torn.discard(number)
        return self._say(number, fresh, raw)

    def delta(self, number: str, delta: str, raw: object) -> list[Event]:
        """The events of a piece that was added to a part."""
        if number in self._torn:
            return []
        self._said[number] = self._said.get(number, 0) + len(delta)
        return self._say(number, delta, raw)

    def _say(self, number: str, text: str, raw: object) -> list[Event]:
        if not text:
            return []
        return [Thought(text, raw=raw) if number in self._thoughts else Text(text, raw=raw)]

    def _tool(self, part: Frame, raw: object) -> list[Event]:
        number, name = str(part.get("callID")), str(part.get("tool"))
        state = as_mapping(part.get("state"))
        self.calls.add(number)
        metadata = as_mapping(state.get("metadata"))
        if name == _TASK and isinstance(child := metadata.get("sessionId"), str):
            self.children.add(child)
        before, shown = self._tools.get(number, ("", 0))
        status = str(state.get("status"))
        output = str(metadata.get("output") or "")
        self._tools[number] = (status, max(shown, len(output)))
        if status == "running" and before in ("", "pending"):
            return [ToolCall(number, name, "started", _input(state), raw=raw)]
        if status == "running" and len(output) > shown:
            return [ToolCall(number, name, "running", output[shown:], raw=raw)]
        if status in ("completed", "error") and before != status:
            over: _State = "completed" if status == "completed" else "failed"
            detail = str(state.get("output") or state.get("error") or "")
            return [ToolCall(number, name, over, detail, raw=raw)]
        return []

    def cost(self, info: Frame, raw: object) -> list[Event]:
        """The events of what a message has cost until now."""
        tokens = as_mapping(info.get("tokens"))
        cache = as_mapping(tokens.get("cache"))
        spent = (
            _count(tokens.get("input")) + _count(cache.get("read")) + _count(cache.get("write")),
            _count(tokens.get("output")) + _count(tokens.get("reasoning")),
        )
        number = str(info.get("id"))
        if spent == self._tokens.get(number, (0, 0)):
            return []
        self._tokens[number] = spent
        counts = self._tokens.values()
        self.usage = Usage(sum(one for one, _ in counts), sum(two for _, two in counts), raw=raw)
        return [self.usage]


def _input(state: Frame) -> str:
    given = as_mapping(state.get("input"))
    told = given.get("command") or given.get("description") or given.get("filePath")
    return str(told or state.get("title") or "")


def as_mapping(value: object) -> Frame:
    """It, where it is a mapping; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) else 0
