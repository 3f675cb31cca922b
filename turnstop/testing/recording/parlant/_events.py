"""Sessions, and the events in them, as Parlant's store keeps them."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from typing import Any

import attrs

__all__ = ["Event", "EventStore", "Kind", "NoSuchAgent", "NoSuchSession", "Session", "Source"]


class Kind(enum.Enum):
    """What an event is about."""

    MESSAGE = "message"
    TOOL = "tool"
    STATUS = "status"
    CUSTOM = "custom"


class Source(enum.Enum):
    """Whom an event is from."""

    CUSTOMER = "customer"
    AI_AGENT = "ai_agent"


class NoSuchSession(Exception):
    """There is no session with this id."""


class NoSuchAgent(Exception):
    """There is no agent with this id."""


@attrs.frozen
class Session:
    """A conversation."""

    id: str
    agent_id: str = "agent-1"


@attrs.define(eq=False)
class Event:
    """Something that was said in a session; a message that is streamed grows."""

    id: str
    source: Source
    kind: Kind
    offset: int
    trace_id: str
    data: Any


@attrs.define(eq=False)
class EventStore:
    """All sessions.

    Attributes:
        garbled: the traces whose events are given out as what makes no sense.
        broken: whether nothing can be read.
    """

    garbled: set[str | None] = attrs.field(factory=set)
    broken: bool = False
    _sessions: dict[str, list[Event]] = attrs.field(factory=dict)
    _names: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def open(self) -> Session:
        """Begin a session."""
        session = Session(f"session-{next(self._names)}")
        self._sessions[session.id] = []
        return session

    def add(self, session_id: str, source: Source, kind: Kind, trace_id: str, data: Any) -> Event:
        """Say something."""
        said = self.all_of(session_id)
        event = Event(f"event-{next(self._names)}", source, kind, len(said), trace_id, data)
        said.append(event)
        return event

    def all_of(self, session_id: str) -> list[Event]:
        """All that was said in a session."""
        if session_id not in self._sessions:
            raise NoSuchSession(session_id)
        return self._sessions[session_id]

    def find(self, session_id: str, min_offset: int, trace_id: str | None) -> Sequence[Any]:
        """What was said from an offset on, with this trace."""
        if self.broken:
            raise OSError("the store is closed")
        if trace_id in self.garbled:
            return ["lorem ipsum"]
        return [
            event
            for event in self.all_of(session_id)
            if event.offset >= min_offset and trace_id in (None, event.trace_id)
        ]
