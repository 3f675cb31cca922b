"""What a server has said of one run, and the end that it makes."""

from __future__ import annotations

from typing import Final

import attrs

from ..._errors import BackendLost
from ...abc import End, How, Proof
from ...events import Event, Usage
from ._events import Asked, Frame, Translator

_COMPLETED: Final = ("end_turn", "max_steps", "tool_rule")
APPROVAL: Final = "requires_approval"
CANCELLED: Final = "cancelled"


@attrs.define(eq=False)
class Account:
    """The run's side of the story; a turn with approvals has one run after another.

    Attributes:
        run_id: the run, once it is known.
        usage: the tokens of the runs, as told last.
    """

    run_id: str | None = None
    usage: Usage | None = None
    _reason: str | None = None
    _detail: str = ""
    _translator: Translator = attrs.field(factory=Translator)

    def hear(self, kind: str, frame: Frame) -> list[Event]:
        """Take in an event of the stream; return what it says."""
        run_id = frame.get("run_id")
        if self.run_id is None and isinstance(run_id, str):
            self.run_id = run_id
        said = frame.get("message_type")
        if kind == "cancelled":
            self._reason = self._reason or CANCELLED
        elif kind == "error" or said == "error_message":
            self._reason = self._reason or "error"
            self._detail = _detail_of(frame)
        elif said == "stop_reason":
            self._reason = str(frame.get("stop_reason"))
        elif said != "ping":
            return self._translate(frame)
        return []

    def _translate(self, frame: Frame) -> list[Event]:
        events = list(self._translator.hear(frame))
        self.usage = next((one for one in events if isinstance(one, Usage)), self.usage)
        return events

    def take_asked(self) -> list[Asked]:
        """What a person has to approve for it to go on; after that, another run is awaited."""
        asked = list(self._translator.asked.values()) if self._reason == APPROVAL else []
        if asked:
            self._translator.asked.clear()
            self.run_id = self._reason = None
        return asked

    @property
    def cancelled(self) -> bool:
        """Whether the run ended for being cancelled: its model call may outlive it."""
        return self._reason == CANCELLED

    def end(self, proof: Proof) -> End:
        """The end that the stop reason stands for, once the stream is over.

        Raises:
            BackendLost: there was none.
        """
        reason = self._reason
        if reason is None:
            raise BackendLost("Letta closed the stream before the run's end: look at its log")
        how = judge(reason)
        detail = self._detail or reason if how is How.FAILED else ""
        return End(how, proof, usage=self.usage, detail=detail)


def judge(reason: str | None) -> How:
    """How a run has ended that has stopped for this reason."""
    if reason == CANCELLED:
        return How.CANCELLED
    return How.COMPLETED if reason in (*_COMPLETED, APPROVAL) else How.FAILED


def _detail_of(frame: Frame) -> str:
    parts = (frame.get(key) for key in ("error_type", "message", "detail", "error"))
    return ": ".join(str(part) for part in parts if part)
