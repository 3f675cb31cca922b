"""What was seen of the turns of a Parlant engine, and what is ordered of them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs
import trio
import trio.lowlevel

__all__ = ["Ledger", "LiveTurn", "Order", "Piece", "read_words"]

Order: TypeAlias = Literal["say", "end", "mute", "fail", "leave"]

_PROMPT = re.compile(r"\[turn:([\w.-]+)\]\s+(\w+)(?:\s+(\w+))?")


@attrs.define(eq=False)
class Piece:
    """A piece of a turn's work.

    Attributes:
        token: whose it is.
        what: `process` (the engine's task for the turn), where it waits, or `left`.
        began_at: when it began, on Trio's clock, as the next one.
        ended_at: None while it goes on.
        cut: it was cancelled.
    """

    token: str
    what: str
    began_at: float
    ended_at: float | None = None
    cut: bool = False


class LiveTurn(Protocol):
    """A turn on the engine's side. What is asked of it may be asked from any thread."""

    token: str
    session: str
    told_at: float | None

    def alive(self) -> Sequence[str]:
        """Its tasks that have not ended, by name."""
        ...

    def order(self, order: Order, text: str) -> None:
        """Have what waits do something."""

    def end_left(self) -> None:
        """End what it has left by order."""


class Ledger:
    """What the engine's side says, kept for Trio's. Made in a Trio task.

    Attributes:
        pieces: all work that was ever seen, oldest first.
        late: how many seconds what waits goes on after it was cancelled; None: until it is
            ordered to end.
        shields: whether what waits has shielded its work, which goes on without it.
    """

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.late: float | None = 0.0
        self.shields = False
        self.tracer: Any = None
        self.turns: dict[str, list[LiveTurn]] = {}
        self._changed = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self._offset = trio.current_time() - time.monotonic()

    def now(self) -> float:
        """Trio's time, in any thread."""
        return time.monotonic() + self._offset

    def note_turn(self, turn: LiveTurn) -> None:
        """The engine has begun it."""
        self.turns.setdefault(turn.token, []).append(turn)

    def begin(self, token: str, what: str) -> Piece:
        """A piece of work has begun."""
        self.pieces.append(piece := Piece(token, what, self.now()))
        self.tell()
        return piece

    def end(self, piece: Piece, *, cut: bool = False) -> None:
        """It has ended."""
        piece.ended_at, piece.cut = self.now(), cut
        self.tell()

    def tell(self) -> None:
        """Something was seen."""
        if threading.get_ident() == self._thread:
            self._wake()
        else:
            self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when the condition holds, looking whenever something was seen.

        **Cancellation:** leaves nothing.
        """
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._changed.wait()


def read_words(text: str) -> tuple[str, str, str]:
    """Token, word and moment of a message; of another one, no token and `answer`."""
    found = _PROMPT.search(text)
    if found is None:
        return "", "answer", ""
    return found[1], found[2], found[3] or ""
