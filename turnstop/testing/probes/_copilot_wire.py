"""What the real Copilot is told and says, as it goes by: which message is whose turn."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from .._probe import Work

__all__ = ["SendLog"]

_DECIDE = "session.permissions.handlePendingPermissionRequest"


@attrs.define(eq=False)
class SendLog:
    """The messages that Copilot was sent, as its wire shows them.

    Attributes:
        works: a message each; the wire tells of all but when its work began and ended.
        over: the messages after which Copilot has said to be idle, and when.
    """

    works: list[Work] = attrs.field(factory=list)
    over: dict[str, float] = attrs.field(factory=dict)
    _sending: dict[object, Work] = attrs.field(factory=dict)
    _asked: dict[object, Work] = attrs.field(factory=dict)

    def note(self, direction: str, message: dict[str, Any]) -> None:
        """Learn from a message that goes by."""
        method, params = message.get("method"), message.get("params") or {}
        if direction == "->" and method == "session.send":
            session, now = str(params["sessionId"]), trio.current_time()
            work = Work("", str(params["prompt"]), session, now)
            self.works.append(work)
            self._sending[message["id"]] = work
        elif direction == "->" and method == "session.abort":
            if (told := self._current(params["sessionId"])) is not None:
                told.told_at.append(trio.current_time())
        elif direction == "->" and method == _DECIDE:
            if params["requestId"] in self._asked:
                self._asked.pop(params["requestId"]).replies.append(params["result"])
        elif direction == "<-" and method == "session.event":
            self._note_event(params["sessionId"], params["event"])
        elif direction == "<-" and message.get("id") in self._sending:
            sent = self._sending.pop(message["id"])
            sent.name = str((message.get("result") or {}).get("messageId", "refused"))

    def _note_event(self, session: str, event: dict[str, Any]) -> None:
        work = self._current(session)
        if work is not None and event["type"] == "session.idle":
            self.over[work.text] = trio.current_time()
        elif work is not None and event["type"] == "permission.requested":
            self._asked[event["data"]["requestId"]] = work

    def _current(self, session: object) -> Work | None:
        """What the session works on: its last message, unless that is over."""
        found = [work for work in self.works if work.session == session]
        return found[-1] if found and found[-1].text not in self.over else None
