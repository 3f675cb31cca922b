"""Claude's lines in everybody's words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, final

from ...events import Event, Other, Text, Thought, ToolCall, Usage
from ...transports.jsonrpc import Incoming

_Block: TypeAlias = Mapping[str, Any]
_DETAIL = 2000


@final
class Translator:
    """Turns one turn's lines into events, and adds up what it cost.

    Claude streams a message in pieces, and says each block of it whole as well: what was streamed
    is not told twice. What sub-agents say is no part of the answer; the tools that they use are.

    Attributes:
        usage: the turn's tokens so far, or None.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self._streamed: set[str] = set()
        self._names: dict[str, str] = {}
        self._spent = (0, 0)
        self._now = (0, 0)

    def translate(self, incoming: Incoming) -> Iterator[Event]:
        """The events of a line, mostly one."""
        params = incoming.params
        is_own = params.get("parent_tool_use_id") is None
        if incoming.method == "stream_event" and is_own:
            yield from self._piece(incoming, _dict(params.get("event")))
        elif params.get("is_api_error_message"):
            # Claude says so in the place of the model; it is what the turn's end tells.
            yield Other("assistant/error", raw=incoming.raw)
        elif incoming.method in ("assistant", "user"):
            message = _dict(params.get("message"))
            for block in _dicts(message.get("content")):
                yield from self._block(incoming, message, block, is_own)
        else:
            yield Other(incoming.method, raw=incoming.raw)

    def _piece(self, incoming: Incoming, event: _Block) -> Iterator[Event]:
        kind, delta = str(event.get("type")), _dict(event.get("delta"))
        if kind == "message_start":
            message = _dict(event.get("message"))
            self._streamed.add(str(message.get("id")))
            yield self._cost(incoming, _dict(message.get("usage")), begins=True)
        elif kind == "message_delta":
            yield self._cost(incoming, _dict(event.get("usage")), begins=False)
        elif delta.get("type") == "text_delta":
            yield Text(str(delta.get("text", "")), raw=incoming.raw)
        elif delta.get("type") == "thinking_delta":
            yield Thought(str(delta.get("thinking", "")), raw=incoming.raw)
        else:
            yield Other(f"stream_event/{kind}", raw=incoming.raw)

    def _block(
        self, incoming: Incoming, message: _Block, block: _Block, is_own: bool
    ) -> Iterator[Event]:
        kind, raw = str(block.get("type")), incoming.raw
        number = str(block.get("id") or block.get("tool_use_id"))
        is_new = is_own and str(message.get("id")) not in self._streamed
        if kind == "tool_use":
            name = self._names[number] = str(block.get("name"))
            yield ToolCall(number, name, "started", _detail(block.get("input")), raw=raw)
        elif kind == "tool_result":
            name = self._names.get(number, "")
            output, failed = _output(block.get("content")), block.get("is_error")
            yield ToolCall(number, name, "failed" if failed else "completed", output, raw=raw)
        elif kind == "text" and incoming.method == "assistant" and is_new:
            yield Text(str(block.get("text", "")), raw=raw)
        elif kind == "thinking" and is_new:
            yield Thought(str(block.get("thinking", "")), raw=raw)
        else:
            yield Other(f"{incoming.method}/{kind}", raw=raw)

    def _cost(self, incoming: Incoming, usage: _Block, *, begins: bool) -> Event:
        """Each message tells its own cost: first what goes in, last what came out."""
        if begins:
            self._spent = _add(self._spent, self._now)
            self._now = (_count(usage, "input_tokens"), 0)
        self._now = (self._now[0], max(self._now[1], _count(usage, "output_tokens")))
        self.usage = Usage(*_add(self._spent, self._now), raw=incoming.raw)
        return self.usage

    def total(self, result: Incoming) -> Usage | None:
        """What the turn cost, as its result has it: of every model, sub-agents included."""
        models = result.params.get("model_usage_since_last_result")
        if isinstance(models, dict):
            costs = [_dict(one) for one in models.values()]
            spent = (
                sum(_count(one, "inputTokens") for one in costs),
                sum(_count(one, "outputTokens") for one in costs),
            )
        else:
            usage = _dict(result.params.get("usage"))
            spent = (_count(usage, "input_tokens"), _count(usage, "output_tokens"))
        # The result of an interrupted turn may leave out what the pieces told.
        return Usage(*spent, raw=result.raw) if any(spent) else self.usage


def _detail(given: object) -> str:
    command = given.get("command") if isinstance(given, dict) else None
    return str(command) if command else json.dumps(given)


def _output(content: object) -> str:
    if isinstance(content, str):
        return content[-_DETAIL:]
    return "\n".join(str(block.get("text", "")) for block in _dicts(content))[-_DETAIL:]


def _add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _count(usage: _Block, name: str) -> int:
    found = usage.get(name)
    return found if isinstance(found, int) else 0


def _dict(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _dicts(found: object) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
