"""Tools that a turn has called, filed under the turn.

Parlant calls the tools of its own server over HTTP, from one task to another of this process. So
the context of the turn is lost on the way, and with it whose the tool is: a tool would work on
when its turn is over, and nobody would know. What arrives is the session's id.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import attrs

from ...abc import current_turn

__all__ = ["LiveTurns", "Tools"]


@final
@attrs.define(eq=False)
class LiveTurns:
    """Whose the sessions are that the engine processes at the moment."""

    _turns: dict[str, str] = attrs.field(factory=dict)

    def begin(self, session_id: str, turn_id: str) -> None:
        """From now on, what is called for the session is this turn's."""
        self._turns[session_id] = turn_id

    def end(self, session_id: str, turn_id: str) -> None:
        """Nothing more is called for this turn."""
        if self._turns.get(session_id) is turn_id:
            del self._turns[session_id]

    def enter(self, session_id: str) -> None:
        """Make this context the context of the session's turn, where there is one."""
        if session_id in self._turns:
            current_turn.set(self._turns[session_id])


@final
class Tools(dict[str, Any]):
    """A tool server's tools by name: each is made to run in its turn's context."""

    def __init__(self, live: LiveTurns) -> None:
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
