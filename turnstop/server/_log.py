"""What happens in rooms, for a log: ids and how it went, and nothing of what is said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ._wire import is_recovered

__all__ = ["log_event"]

logger = logging.getLogger("turnstop.server")

_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "message": lambda told: f"message {told['id']!r} is {told['state']}",
    "turn": lambda told: f"turn {told['turn_id']} works on message {told['message']!r}",
    "stopping": lambda told: f"{told['control']}: turn {told['turn_id']} is asked to stop",
    "settlement": lambda told: (
        f"turn {told['turn_id']}{' of a process that is gone' * is_recovered(told)}"
        f" has settled: {told['ending']}"
    ),
    "paused": lambda told: "paused",
    "resumed": lambda told: "goes on",
    "forgotten": lambda told: "forgotten",
}


def log_event(kind: str, told: Mapping[str, Any]) -> None:
    """Log an event as it is told, where it changes how a room stands."""
    if kind in _WORDS and logger.isEnabledFor(logging.INFO):
        # Names and ids are anybody's: in quotes, they begin no line.
        logger.info("%r: %s", told["room"], _WORDS[kind](told))
