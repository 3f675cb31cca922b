"""How far a turn has come, by what opencode says of its session: a reader that waits for nothing.

opencode's events name the session, and a session outlives its turns. What was said before this
turn's own message is another turn's, however late it is heard, and opencode's own order tells: the
message comes first, then the session is busy, then an answer whose parent is the message, or one
that opencode added to go on with it, such as a compaction. A session that then turns idle has
ended this turn, and no other; and so has an answer that was aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import trio

from ...abc import End, How
from ...events import Event, Other
from ._events import Frame, Translator, as_mapping

_ABORTED = "MessageAbortedError"
_GOES_ON = ("tool-calls", "unknown")


@final
class Progress:
    """One turn's side of its session.

    Attributes:
        begun: set when opencode works on the turn: from then on it can be told to stop.
        told: whether it has been told to stop.
        followed: whether somebody hears what is said; else nothing of it is known.
        idled: whether the session was told to be idle before it was busy with this turn: so does an
            abort that finds nothing to abort.
        idled_since: whether that was said after the turn's message was there.
        doubtful: whether the session was told to be idle, or in error, and nothing shows why: the
            server is to be asked how things stand.
        aborted: whether an answer was aborted, so that no abort can still be on its way.
        translator: makes the events.
    """

    def __init__(self, session: str, message: str) -> None:
        self.begun = trio.Event()
        self.told = False
        self.followed = False
        self.idled = False
        self.idled_since = False
        self.doubtful = False
        self.aborted = False
        self.translator = Translator()
        self._session = session
        self._message = message
        self._asked: set[str] = set()
        self._answers: dict[str, Frame] = {}
        self._idle = False
        self._removed = False
        self._error: Frame | None = None

    def hear(self, kind: str, properties: Frame, raw: object) -> list[Event]:
        """Take in an event; what a reader is to be told."""
        info, part = properties.get("info"), properties.get("part")
        if kind == "message.updated" and isinstance(info, dict):
            return self._hear_message(info, raw)
        if kind == "message.part.updated" and isinstance(part, dict):
            known = str(part.get("messageID")) in self._answers
            return self.translator.part(part, raw) if known else []
        if kind == "message.part.delta":
            if str(properties.get("messageID")) not in self._answers:
                return []
            delta = str(properties.get("delta") or "")
            return self.translator.delta(str(properties.get("partID")), delta, raw)
        if kind == "session.status":
            return self._hear_status(properties.get("status"), raw)
        if kind == "message.removed" and properties.get("messageID") == self._message:
            self._removed = True
        if kind == "session.error":
            self._hear_error(properties.get("error"))
        return [Other(kind, raw=raw)] if self._asked else []

    def _hear_message(self, info: Frame, raw: object) -> list[Event]:
        number = str(info.get("id"))
        if info.get("role") == "user":
            # What opencode adds of its own, to go on after a compaction, belongs to the turn.
            if number == self._message or self._asked:
                self._asked.add(number)
            return []
        if str(info.get("parentID")) not in self._asked:
            return []
        self._answers[number] = info
        self._idle = False
        self.begun.set()
        if _name(info.get("error")) == _ABORTED:
            self.aborted = True
        return self.translator.cost(info, raw)

    def _hear_status(self, status: object, raw: object) -> list[Event]:
        kind = status.get("type") if isinstance(status, dict) else None
        if kind == "idle" and not self.begun.is_set():
            self.idled = True
            self.idled_since = bool(self._asked)
        if not self._asked:
            return []
        if kind != "idle":
            self._idle = False
            self.begun.set()
        elif self.begun.is_set():
            self._idle = True
            # Where no answer is complete, an abort of before may have said it.
            self.doubtful = not self._is_answered()
        return [Other(f"session.status:{kind}", raw=raw)]

    def _hear_error(self, error: object) -> None:
        if isinstance(error, dict) and _name(error) != _ABORTED:
            self._error = error
            self.doubtful = True

    def look(self, messages: Sequence[Frame], *, busy: bool) -> list[Event]:
        """Take in how things stand: the session's messages, newest last, and whether it is busy."""
        self.doubtful = False
        found: list[Event] = []
        numbers = [as_mapping(message.get("info")).get("id") for message in messages]
        if self.told and self._asked and not busy and self._message not in numbers:
            self._removed = True
        place = numbers.index(self._message) if self._message in numbers else len(messages)
        # What stands before this turn's message is other turns'.
        for message in messages[place:]:
            info, parts = as_mapping(message.get("info")), message.get("parts")
            found += self._hear_message(info, message)
            if isinstance(parts, list) and str(info.get("id")) in self._answers:
                for part in parts:
                    found += self.translator.stored(as_mapping(part), part)
        if busy and self._asked:
            self.begun.set()
        # Nothing began where a prompt failed before it was a message. But an error names no prompt,
        # and somebody else's may have failed: of a turn that was told to stop that shows nothing.
        failed = self._error is not None and not self._asked and not self.told
        self._idle = not busy and (self.begun.is_set() or failed)
        return found

    @property
    def answering(self) -> bool:
        """Whether an answer has begun."""
        return bool(self._answers)

    def is_over(self) -> bool:
        """Whether the turn has ended; `end` says how."""
        return self.aborted or self._removed or (self._idle and not self.doubtful)

    def end(self) -> End:
        """The turn's end."""
        last = self._last()
        error = last.get("error") or (None if self._is_answered() else self._error)
        how = How.CANCELLED if self.told else How.FAILED
        detail = ""
        if isinstance(error, dict) and _name(error) != _ABORTED:
            how, detail = How.FAILED, _detail(error)
        elif self.aborted:
            how, detail = How.CANCELLED, "" if self.told else "somebody else has aborted it"
        elif self._is_answered() and not (self.told and last.get("finish") in (None, *_GOES_ON)):
            how = How.COMPLETED
        elif not self.told:
            detail = "opencode has ended the turn without an answer: look at its log"
        return End(how, usage=self.translator.usage, detail=detail)

    def _last(self) -> Frame:
        return next(reversed(self._answers.values()), {})

    def _is_answered(self) -> bool:
        last = self._last()
        time = last.get("time")
        completed = isinstance(time, dict) and time.get("completed") is not None
        return completed or last.get("error") is not None


def _name(error: object) -> str:
    return str(error.get("name")) if isinstance(error, dict) else ""


def _detail(error: Frame) -> str:
    name = str(error.get("name"))
    # Its own errors are told with where in its program they were raised.
    told = str(as_mapping(error.get("data")).get("message") or "").partition("\n    at ")[0]
    while told.startswith(f"{name}: "):
        told = told.removeprefix(f"{name}: ")
    return name if told in ("", name) else f"{name}: {told}"
