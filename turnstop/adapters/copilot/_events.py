"""A session's events, as Copilot writes them, in everybody's words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, final

from ...events import Event, Other, Text, Thought, ToolCall, Usage

SessionEvent: TypeAlias = Mapping[str, Any]
"""The `event` of a `session.event`; of the SDK's own records, an old SDK leaves fields out."""

_DETAIL = 2000


def kind_of(event: SessionEvent) -> str:
    """Copilot's name of it."""
    return str(event.get("type"))


def field(event: SessionEvent, name: str) -> Any:
    """What its data has under this name; None where there is nothing."""
    data = event.get("data")
    return data.get(name) if isinstance(data, Mapping) else None


def of_sub_agent(event: SessionEvent) -> bool:
    """Whether a sub-agent says it, and not the agent itself."""
    return bool(event.get("agentId") or field(event, "parentToolCallId"))


def has_completed(events: Iterable[SessionEvent], message: str) -> bool:
    """Whether a message was answered to the end, by what is written down of its session."""
    ours = completed = asks_tools = False
    for event in events:
        kind = kind_of(event)
        if kind == "user.message":
            ours = field(event, "messageId") == message
        elif not ours or of_sub_agent(event):
            continue
        elif kind == "assistant.message":
            asks_tools = bool(field(event, "toolRequests"))
        elif kind in ("assistant.turn_start", "abort", "session.error"):
            completed = False
        elif kind == "assistant.turn_end":
            completed = not asks_tools
    return completed


@final
class Translator:
    """Turns one turn's events into ours, and adds up what it cost.

    A message is told in pieces, and then once more as a whole: what has come in pieces is not told
    twice. What sub-agents say is no part of the answer; the tools that they use are.

    Attributes:
        usage: the turn's tokens so far, or None.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self._told: set[str] = set()
        self._started: set[str] = set()
        self._tools: dict[str, str] = {}

    def translate(self, event: SessionEvent) -> Iterator[Event]:
        """What it is to a reader, mostly one event."""
        kind, own = kind_of(event), not of_sub_agent(event)
        if kind == "assistant.message_start" and own:
            self._started.add(str(field(event, "messageId")))
            yield Other(kind, raw=event)
        elif kind == "assistant.message_delta" and own:
            # One of a message that this turn has not seen begin is of an earlier turn.
            if str(field(event, "messageId")) in self._started:
                yield from self._piece(Text, event, "messageId")
        elif kind == "assistant.message" and own:
            yield from self._whole(Text, event, "messageId")
        elif kind == "assistant.reasoning_delta" and own:
            yield from self._piece(Thought, event, "reasoningId")
        elif kind == "assistant.reasoning" and own:
            yield from self._whole(Thought, event, "reasoningId")
        elif kind.startswith("tool.execution_"):
            yield from self._tool(kind, event)
        elif kind == "assistant.usage":
            yield self._spend(event)
        else:
            yield Other(kind, raw=event)

    def _piece(
        self, make: type[Text | Thought], event: SessionEvent, named: str
    ) -> Iterator[Event]:
        self._told.add(str(field(event, named)))
        yield make(str(field(event, "deltaContent") or ""), raw=event)

    def _whole(
        self, make: type[Text | Thought], event: SessionEvent, named: str
    ) -> Iterator[Event]:
        text, number = field(event, "content"), str(field(event, named))
        if text and number not in self._told:
            self._told.add(number)
            yield make(str(text), raw=event)
        else:
            yield Other(kind_of(event), raw=event)

    def _tool(self, kind: str, event: SessionEvent) -> Iterator[Event]:
        number = str(field(event, "toolCallId"))
        if kind == "tool.execution_start":
            self._tools[number] = str(field(event, "toolName"))
            detail = _detail(field(event, "arguments"))
            yield ToolCall(number, self._tools[number], "started", detail, raw=event)
            return
        if number not in self._tools:
            return
        name = self._tools[number]
        if kind == "tool.execution_complete":
            done = bool(field(event, "success"))
            told = field(event, "result" if done else "error")
            said = told if isinstance(told, Mapping) else {}
            text = str(said.get("content") or said.get("message") or "")
            yield ToolCall(
                number, name, "completed" if done else "failed", text[-_DETAIL:], raw=event
            )
        else:
            text = str(field(event, "partialOutput") or field(event, "progressMessage") or "")
            yield ToolCall(number, name, "running", text[-_DETAIL:], raw=event)

    def _spend(self, event: SessionEvent) -> Usage:
        before = self.usage or Usage(0, 0)
        self.usage = Usage(
            (before.input_tokens or 0) + int(field(event, "inputTokens") or 0),
            (before.output_tokens or 0) + int(field(event, "outputTokens") or 0),
            raw=event,
        )
        return self.usage


def _detail(arguments: object) -> str:
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return str(command) if command else json.dumps(arguments, default=str)
