"""What updates show beside what they tell: that the agent works, what it has counted, its mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import trio

from ...transports.jsonrpc import Incoming

__all__ = ["Signs", "mode_in"]

# Told of the session, whether it has a turn or not.
_OF_THE_SESSION = (
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
)


@final
class Signs:
    """What one turn's updates have shown.

    Attributes:
        working: set once the agent has shown that it works on the prompt.
        counts: whether the agent has counted its session's tokens, in this turn or before.
        cost: whether it has told what the turn has cost, since it was to be stopped.
        mode: the session's mode; None where it is not known.
    """

    def __init__(self, *, counts: bool, mode: str | None) -> None:
        self.working = trio.Event()
        self.counts = counts
        self.cost = False
        self.mode = mode

    def note(self, incoming: Incoming, *, stopping: bool) -> None:
        """Learn from a frame of the session."""
        update = incoming.params.get("update")
        told = update if isinstance(update, dict) else {}
        kind = told.get("sessionUpdate")
        if incoming.wants_reply or (kind is not None and kind not in _OF_THE_SESSION):
            self.working.set()
        if kind == "usage_update":
            self.counts = True
            self.cost = self.cost or (stopping and told.get("cost") is not None)
        if kind == "current_mode_update":
            self.mode = _text(told, "currentModeId") or self.mode


def mode_in(answer: object) -> str | None:
    """The mode that the answer to a session's beginning tells."""
    modes = answer.get("modes") if isinstance(answer, dict) else None
    return _text(modes, "currentModeId") if isinstance(modes, dict) else None


def _text(told: Mapping[str, Any], name: str) -> str | None:
    found = told.get(name)
    return found if isinstance(found, str) else None
