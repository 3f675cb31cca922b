"""What the engine has said of one turn, and the events and the end that it makes."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

import attrs

from ...abc import Emit, End, How
from ...events import Other, Text, ToolCall

__all__ = ["Account"]


@attrs.define(eq=False)
class Account:
    """The turn's side of the story.

    Attributes:
        offset: from where the session's events are to be read on.
    """

    offset: int
    _said: dict[int, int] = attrs.field(factory=dict)
    _completed: bool = False
    _cancelled: bool = False
    _error: str | None = None

    def hear(self, event: Any, emit: Emit) -> None:
        """Take in an event, or one that was read before and has grown since."""
        kind = getattr(event.kind, "value", event.kind)
        data = event.data if isinstance(event.data, Mapping) else {}
        known = self._said.get(event.offset)
        if kind == "message" and isinstance(data.get("message"), str):
            self._hear_message(event, data["message"], known or 0, emit)
        elif known is None:
            self._said[event.offset] = 0
            if kind == "status":
                self._hear_status(event, data, emit)
            elif kind == "tool" and isinstance(data.get("tool_calls"), list):
                _hear_tools(event, data["tool_calls"], emit)
            else:
                emit(Other(str(kind), raw=event))
        self._move_on(event, data)

    def end(self, stopped: bool, cancelled: bool, error: BaseException | None) -> End:
        """The end, once the processing task is over.

        Args:
            stopped: whether it was asked for.
            cancelled: whether the task ended as cancelled.
            error: what the task raised.
        """
        if error is not None:
            return End(How.FAILED, detail=f"the engine raised {error!r}")
        if self._error is not None:
            return End(How.FAILED, detail=self._error)
        # One that is told before it has said anything ends without a word.
        if self._cancelled or cancelled or (stopped and not self._completed):
            return End(How.CANCELLED)
        return End(How.COMPLETED)

    def _hear_message(self, event: Any, text: str, known: int, emit: Emit) -> None:
        self._said[event.offset] = max(known, len(text))
        if len(text) > known:
            emit(Text(text[known:], raw=event))

    def _hear_status(self, event: Any, data: Mapping[str, Any], emit: Emit) -> None:
        status, detail = data.get("status"), data.get("data")
        detail = detail if isinstance(detail, Mapping) else {}
        if status == "cancelled":
            self._cancelled = True
        elif status == "error":
            self._error = _last_line(detail.get("exception"))
        elif status == "ready" and detail.get("stage") == "completed":
            self._completed = True
        emit(Other(str(status), raw=event))

    def _move_on(self, event: Any, data: Mapping[str, Any]) -> None:
        # A message that is streamed grows in its place until its chunks end in None.
        chunks = data.get("chunks")
        grows = isinstance(chunks, list) and None not in chunks
        if event.offset == self.offset and not grows:
            self.offset += 1


def _hear_tools(event: Any, calls: list[Any], emit: Emit) -> None:
    """Tools are told of when they have run."""
    for number, call in enumerate(calls):
        if not isinstance(call, Mapping):
            continue
        result = call.get("result")
        said = result.get("data") if isinstance(result, Mapping) else result
        detail = said if isinstance(said, str) else json.dumps(said, default=str)
        name = str(call.get("tool_id"))
        emit(ToolCall(f"{event.id}-{number}", name, "completed", detail, raw=event))


def _last_line(trace: object) -> str:
    """Of a traceback that was formatted to a list and that to a text, what it is about."""
    text = str(trace)
    try:
        lines = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        lines = text
    whole = "".join(map(str, lines)) if isinstance(lines, list | tuple) else str(lines)
    # Behind the latch, the engine raises "Task failed" from what has failed.
    cause = whole.partition("\nThe above exception was the direct cause")[0]
    return cause.strip().rpartition("\n")[2] or "the engine failed"
