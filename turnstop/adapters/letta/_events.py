"""What a Letta agent says, in the words of `turnstop.events`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from ...abc import Emit, Silenced
from ...events import Ask, Event, Other, Text, Thought, ToolCall, Usage

Frame = Mapping[str, Any]
Message: TypeAlias = dict[str, Any]

APPROVE: Final = "approve"
DENY: Final = "deny"


@attrs.define
class Asked:
    """A tool call that a person has to approve.

    Attributes:
        id: of the tool call.
        name: of the tool.
        arguments: as far as they were told: with token streaming, in pieces.
        raw: the frame that told it first.
    """

    id: str
    name: str
    arguments: str
    raw: object

    def to_ask(self) -> Ask:
        """The question."""
        text = f"{self.name} {self.arguments}".strip()
        return Ask(self.id, "approval", text, (APPROVE, DENY), raw=self.raw)

    def to_return(self, reply: object) -> Message:
        """What the server is told: what is no approval denies, and a text is the reason."""
        if reply == APPROVE:
            return {"type": "approval", "tool_call_id": self.id, "approve": True}
        told = _deny(self.id)
        if isinstance(reply, str) and reply != DENY:
            told["reason"] = reply
        return told


async def ask_all(emit: Emit, asked: Sequence[Asked]) -> Message:
    """Ask a person all of it; return the message that answers it.

    **Cancellation:** the questions are withdrawn.
    """
    try:
        replies = [one.to_return(await emit.ask(one.to_ask())) for one in asked]
    except Silenced:
        # The agent's history must not be left with a question that nobody answers.
        return denial(one.id for one in asked)
    return _approval(replies)


def denial(numbers: Iterable[str]) -> Message:
    """The message that approves none of these tool calls."""
    return _approval([_deny(number) for number in numbers])


def _deny(number: str) -> Message:
    return {"type": "approval", "tool_call_id": number, "approve": False}


def _approval(returns: Sequence[Message]) -> Message:
    return {"type": "approval", "approvals": returns}


@attrs.define
class Translator:
    """Turns frames into events; keeps what comes in pieces.

    Attributes:
        asked: the tool calls that wait for an approval, by their ids.
    """

    asked: dict[str, Asked] = attrs.field(factory=dict)
    _names: dict[str, str] = attrs.field(factory=dict)
    _newest: str = ""

    def hear(self, frame: Frame) -> Iterator[Event]:
        """The events that a frame makes."""
        kind = str(frame.get("message_type") or "unknown")
        if kind == "assistant_message":
            if text := _text_of(frame.get("content")):
                yield Text(text, raw=frame)
        elif kind == "reasoning_message":
            if thought := _text_of(frame.get("reasoning")):
                yield Thought(thought, raw=frame)
        elif kind == "tool_call_message":
            yield from self._calls(frame)
        elif kind == "tool_return_message":
            yield from self._returns(frame)
        elif kind == "approval_request_message":
            self._ask(frame)
        elif kind == "usage_statistics":
            yield usage_of(frame)
        else:
            yield Other(kind, raw=frame)

    def _calls(self, frame: Frame) -> Iterator[Event]:
        for call in _calls_in(frame):
            number, name, arguments = self._read(call)
            known = number in self._names
            self._names[number] = self._names.get(number) or name
            if not known:
                yield ToolCall(number, self._names[number], "started", arguments, raw=frame)

    def _returns(self, frame: Frame) -> Iterator[Event]:
        told = frame.get("tool_returns")
        returns = told if isinstance(told, Sequence) and told else [frame]
        for one in returns:
            if not isinstance(one, Mapping):
                continue
            number = str(one.get("tool_call_id") or "")
            name = self._names.pop(number, str(one.get("name") or frame.get("name") or ""))
            detail = _text_of(one.get("tool_return"))
            failed = one.get("status") == "error"
            yield ToolCall(number, name, "failed" if failed else "completed", detail, raw=frame)

    def _ask(self, frame: Frame) -> None:
        for call in _calls_in(frame):
            number, name, arguments = self._read(call)
            asked = self.asked.setdefault(number, Asked(number, "", "", frame))
            asked.name = asked.name or name
            asked.arguments += arguments
            self._names.setdefault(number, asked.name)

    def _read(self, call: Frame) -> tuple[str, str, str]:
        # With token streaming, only a call's first piece is sure to say which one it is of.
        self._newest = str(call.get("tool_call_id") or self._newest)
        return self._newest, str(call.get("name") or ""), str(call.get("arguments") or "")


def usage_of(frame: Frame) -> Usage:
    """The tokens that a frame tells."""
    asked, said = frame.get("prompt_tokens"), frame.get("completion_tokens")
    return Usage(
        asked if isinstance(asked, int) else None,
        said if isinstance(said, int) else None,
        raw=frame,
    )


def _calls_in(frame: Frame) -> list[Frame]:
    found = frame.get("tool_calls") or frame.get("tool_call")
    calls = found if isinstance(found, list) else [found]
    return [call for call in calls if isinstance(call, Mapping)]


def _text_of(content: object) -> str:
    """The text of what is a text, or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content)
    texts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
