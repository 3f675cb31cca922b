"""codex's notifications in everybody's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, final

from ...events import Event, Other, Text, Thought, ToolCall, Usage
from ...transports.jsonrpc import Incoming

_Item: TypeAlias = Mapping[str, Any]
_State: TypeAlias = Literal["started", "running", "completed", "failed"]

_NAMES: dict[str, Callable[[_Item], str]] = {
    "commandExecution": lambda item: "shell",
    "fileChange": lambda item: "apply_patch",
    "mcpToolCall": lambda item: f"{item.get('server')}.{item.get('tool')}",
    "dynamicToolCall": lambda item: str(item.get("tool")),
    "collabAgentToolCall": lambda item: str(item.get("tool")),
    "webSearch": lambda item: "web_search",
    "imageGeneration": lambda item: "image_generation",
}
_THOUGHTS = ("item/reasoning/textDelta", "item/reasoning/summaryTextDelta")
_PROGRESS = ("item/commandExecution/outputDelta", "item/fileChange/outputDelta")
_FAILED = ("failed", "declined")


@final
class Translator:
    """Turns one turn's notifications into events, and adds up what it cost.

    Attributes:
        usage: the turn's tokens so far, or None.
        stopped: whether the turn has been told to stop.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.stopped = False
        self._names: dict[str, str] = {}
        self._streamed: set[str] = set()
        self._before: tuple[int, int] | None = None

    def translate(self, incoming: Incoming) -> list[Event]:
        """The events of a notification, mostly one."""
        method, params = incoming.method, incoming.params
        raw = incoming.raw
        if method == "item/agentMessage/delta":
            self._streamed.add(str(params.get("itemId")))
            return [Text(str(params.get("delta", "")), raw=raw)]
        if method in _THOUGHTS:
            return [Thought(str(params.get("delta", "")), raw=raw)]
        if method in _PROGRESS:
            number = str(params.get("itemId"))
            name = self._names.get(number, "shell")
            return [ToolCall(number, name, "running", str(params.get("delta", "")), raw=raw)]
        item = params.get("item")
        if method in ("item/started", "item/completed") and isinstance(item, dict):
            return self._item(incoming, item)
        if method == "thread/tokenUsage/updated":
            return self._cost(incoming)
        return [Other(method, raw=raw)]

    def _item(self, incoming: Incoming, item: _Item) -> list[Event]:
        kind, number = str(item.get("type")), str(item.get("id"))
        over = incoming.method == "item/completed"
        name = _NAMES.get(kind)
        if name is not None:
            self._names[number] = name(item)
            detail = str(item.get("aggregatedOutput" if over else "command") or "")
            return [ToolCall(number, name(item), _state(item, over), detail, raw=incoming.raw)]
        if kind == "agentMessage" and over and number not in self._streamed and item.get("text"):
            return [Text(str(item["text"]), raw=incoming.raw)]
        return [Other(f"{incoming.method}:{kind}", raw=incoming.raw)]

    def _cost(self, incoming: Incoming) -> list[Event]:
        """codex tells the thread's sum and the last request's part of it, and repeats both."""
        told = incoming.params.get("tokenUsage")
        total, last = (_tokens(told, name) for name in ("total", "last"))
        if self._before is None and not self.stopped:
            self._before = (total[0] - last[0], total[1] - last[1])
        if self._before is not None:
            spent = (total[0] - self._before[0], total[1] - self._before[1])
            self.usage = Usage(*spent, raw=incoming.raw)
            return [self.usage]
        return [Other(incoming.method, raw=incoming.raw)]


def _state(item: _Item, over: bool) -> _State:
    if not over:
        return "started"
    return "failed" if item.get("status") in _FAILED else "completed"


def _tokens(told: object, name: str) -> tuple[int, int]:
    found = told.get(name) if isinstance(told, dict) else None
    counts = found if isinstance(found, dict) else {}
    return _count(counts.get("inputTokens")), _count(counts.get("outputTokens"))


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) else 0
