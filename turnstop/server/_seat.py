"""A room, as the server sees it: what has happened there, and what waits."""

from __future__ import annotations

from collections import deque

import attrs

from ._ring import Ring
from ._wire import Question

__all__ = ["Seat"]


@attrs.define(eq=False)
class Seat:
    """What is known of a room besides what its inbox knows.

    Attributes:
        shown_paused: what its events say; whether it is paused, the inbox knows.
        turn_id: the turn that is worked on.
        posting: messages for it that are being written.
        waiting: ids of messages that are not finished.
        asks: questions of its turn that were told, by their ids as the agent has them.
    """

    room: str
    ring: Ring
    settlements: deque[dict[str, object]]
    shown_paused: bool = False
    turn_id: str | None = None
    posting: int = 0
    waiting: dict[str, None] = attrs.field(factory=dict)
    asks: dict[str, Question] = attrs.field(factory=dict)

    @property
    def is_idle(self) -> bool:
        """Nobody misses it where it is forgotten, as far as is known here."""
        return not (self.turn_id or self.posting or self.waiting or self.ring.listeners)
