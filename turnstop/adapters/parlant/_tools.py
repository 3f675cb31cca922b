"""Whose a task is: what the engine does for a turn, and the tools that the turn has called.

Parlant calls the tools of its own server over HTTP, from one task to another of this process. So
the context of the turn is lost on the way, and with it whose the tool is: a tool would work on
when its turn is over, and nobody would know. What arrives is the session's id.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final
from weakref import WeakValueDictionary

import attrs

from ...abc import current_turn

__all__ = ["Live", "ParlantSession", "Tools", "owner"]


@contextmanager
def owner(name: str) -> Iterator[None]:
    """Be the turn, or its tools, whoever calls."""
    token = current_turn.set(name)
    try:
        yield
    finally:
        current_turn.reset(token)


@final
@attrs.define(eq=False)
class ParlantSession:
    """What a room's next turn continues.

    Attributes:
        id: Parlant's id of the session.
        tools: what the tools are filed under that are called for it; None while nobody works in it.
    """

    id: str
    tools: str | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"session {self.id}"


@final
class Live:
    """The sessions that rooms have, for as long as the rooms have them."""

    def __init__(self) -> None:
        self._sessions: WeakValueDictionary[str, ParlantSession] = WeakValueDictionary()

    def open(self, session_id: str) -> ParlantSession:
        """A session that a room will have."""
        session = self._sessions[session_id] = ParlantSession(session_id)
        return session

    def enter(self, session_id: str) -> None:
        """Make this context the context of the session's tools.

        Raises:
            RuntimeError: it is asked too late: the turn that has called is over.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return  # no room's, but somebody's who asks the server in another way
        if session.tools is None:
            raise RuntimeError("the turn that called this tool is over")
        current_turn.set(session.tools)


@final
class Tools(dict[str, Any]):
    """A tool server's tools by name: each is made to run in a context of its turn."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    def __setitem__(self, name: str, entry: Any) -> None:
        # The server makes a task of what a tool returns, in the context that it was called in.
        super().__setitem__(name, type(entry)(entry.tool, self._filed(entry.function)))

    def _filed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(context: Any, *args: Any, **kwargs: Any) -> Any:
            self._live.enter(context.session_id)
            return function(context, *args, **kwargs)

        return call
