"""What the real Claude is told and says, as it goes by: which turn is which, and who was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import attrs
import trio

from ...adapters.claude._wire import StreamJson
from ...transports.dialect import Frame, Reply, Said
from .._probe import Work

__all__ = ["MessageLog", "Tapped"]


@attrs.define(eq=False)
class MessageLog:
    """The messages that Claude was sent, as its wire shows them.

    Attributes:
        look: called after each frame.
        works: a message each; the wire tells of all but when its work began and ended.
        over: the messages whose turns have ended, and when.
    """

    look: Callable[[], object]
    works: list[Work] = attrs.field(factory=list)
    over: dict[str, float] = attrs.field(factory=dict)
    _asking: dict[object, Work] = attrs.field(factory=dict)

    def note(self, session: str, direction: str, frame: Any) -> None:
        """Learn from a frame that has just gone by, to or from the process of a session."""
        self._note(session, direction, frame)
        self.look()

    def _note(self, session: str, direction: str, frame: Any) -> None:
        kind = frame.get("type")
        if kind == "user" and direction == "->":
            content = str(frame["message"]["content"])
            self.works.append(Work(str(frame["uuid"]), content, session, trio.current_time()))
        elif kind == "control_request":
            self._note_request(session, direction, frame)
        elif kind == "control_response" and direction == "->":
            response = frame["response"]
            work = self._asking.pop(response["request_id"], None)
            if work is not None:
                work.replies.append(response.get("response", response.get("error")))
        elif kind == "result" and "user_message_uuid" in frame:
            self.over.setdefault(str(frame["user_message_uuid"]), trio.current_time())
        elif kind == "command_lifecycle" and frame.get("state") == "cancelled":
            self.over.setdefault(str(frame["command_uuid"]), trio.current_time())

    def _note_request(self, session: str, direction: str, frame: Any) -> None:
        works = [work for work in self.works if work.session == session]
        open_works = [work for work in works if work.name not in self.over]
        if direction == "->" and frame["request"].get("cancel_queued"):
            for work in open_works:
                work.told_at.append(trio.current_time())
        elif direction == "<-" and open_works:
            self._asking[frame["request_id"]] = open_works[-1]


@final
@attrs.frozen
class Tapped:
    """Claude's dialect, which tells a log what goes by."""

    log: MessageLog
    session: str
    plain: StreamJson = attrs.field(factory=StreamJson)

    def _told(self, frame: Frame) -> Frame:
        self.log.note(self.session, "->", frame)
        return frame

    def call(self, number: int, method: str, params: Frame) -> Frame:
        """A call of ours."""
        return self._told(self.plain.call(number, method, params))

    def notification(self, method: str, params: Frame | None) -> Frame:
        """A notification of ours."""
        return self._told(self.plain.notification(method, params))

    def result(self, number: object, result: object) -> Frame:
        """Our answer to a request."""
        return self._told(self.plain.result(number, result))

    def refusal(self, number: object, message: str, code: int) -> Frame:
        """Our answer that it cannot be."""
        return self._told(self.plain.refusal(number, message, code))

    def read(self, frame: Frame) -> Said | Reply:
        """Understand a frame of Claude's."""
        self.log.note(self.session, "<-", frame)
        return self.plain.read(frame)
