"""One process of Claude Code, at the far end of a stream in memory: its protocol, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import trio

from ..._wire import WireFrame
from .._lines import LineEnd

Frame: TypeAlias = dict[str, Any]

CAPABILITIES = ("interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1")
"""What the program says that it can, as far as a stop goes."""


@attrs.define(eq=False, slots=False)
class Cli(LineEnd):
    """A process. It keeps what it is told; who made it says what it does.

    Attributes:
        session: its conversation.
        wire: all that it was told and has said, in the order in which it went by.
        hear: given each frame that it is told.
        later: for what it does later; ends with its connection.
        ended: whether the process has ended.
        clings: whether it cannot be ended.
        hastened: whether it was told to end at once.
        old: whether it knows of no message what becomes of it, and names none in its results.
    """

    session: str
    wire: list[WireFrame]
    hear: Callable[[Cli, Frame], object]
    later: trio.Nursery
    ended: bool = False
    clings: bool = False
    hastened: bool = False
    old: bool = False
    near: trio.StapledStream[Any, Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.near = self.connect()

    def _heard(self, nursery: trio.Nursery, frame: Frame) -> None:
        if self.is_connected:
            self.hear(self, frame)

    # What it says.

    def write(self, kind: str, **members: Any) -> None:
        """Say something."""
        line = json.dumps({"type": kind, **members, "session_id": self.session})
        # What it is made of may change after it was said.
        self._keep("<-", json.loads(line))
        self.write_line(line.encode())

    def answer(self, request: Frame, response: object) -> None:
        """Answer a control request."""
        body = {"subtype": "success", "request_id": request["request_id"], "response": response}
        self.write("control_response", response=body)

    def refuse(self, request: Frame, why: str) -> None:
        """Answer it by an error."""
        body = {"subtype": "error", "request_id": request["request_id"], "error": why}
        self.write("control_response", response=body)

    def lifecycle(self, message: str, state: str) -> None:
        """Tell what becomes of a message."""
        if not self.old:
            self.write("command_lifecycle", command_uuid=message, state=state, uuid="l")

    def init(self, message: str | None) -> None:
        """Begin a turn; without a message, one that nobody has asked for."""
        can = [] if self.old else list(CAPABILITIES)
        self.write("system", subtype="init", capabilities=can, **self._named(message))

    def piece(self, event: Frame, answers: str, number: str | None) -> None:
        """Tell a piece of a message of the model's; its first one names the message it answers."""
        named = self._named(answers) if event["type"] == "message_start" else {}
        known = {} if self.old else {"api_message_id": number}
        self.write("stream_event", event=event, parent_tool_use_id=None, **known, **named)

    def block(self, kind: str, block: Frame, **message: Any) -> None:
        """Tell a block of a message as a whole."""
        body = {"role": kind, "content": [block], **message}
        told = {"parent_tool_use_id": None, "uuid": "b", "timestamp": "2026-01-01T00:00:00Z"}
        self.write(kind, message=body, **told)

    def task(self, subtype: str, number: str, **more: Any) -> None:
        """Tell of a background task."""
        self.write("system", subtype=subtype, task_id=number, **more)

    def result(self, message: str | None, reason: str, **more: Any) -> None:
        """End a turn."""
        usage = {"model": {"inputTokens": 1, "outputTokens": 1}}
        aborted = reason.startswith("aborted")
        more = {"errors": [reason]} if aborted else {"result": "the answer", **more}
        self.write(
            "result",
            subtype="error_during_execution" if aborted else "success",
            terminal_reason=reason,
            is_error=reason != "completed",
            model_usage_since_last_result=usage,
            **self._named(message),
            **more,
        )

    def _named(self, message: str | None) -> Frame:
        if message is None or self.old:
            return {}
        return {"user_message_uuid": message, "user_message_uuids": [message]}
