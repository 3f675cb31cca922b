"""A journal in memory, with a lever: its disk can stop answering."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from .._house import Orphan
from .._records import Settlement, StopRequest

__all__ = ["Notebook", "Noted"]


@attrs.define(eq=False)
class Noted:
    """What was noted of a turn.

    Attributes:
        addresses: where it is, as often as that was noted.
        waits: how often somebody wanted them to be on the disk.
        asked: who wanted it stopped.
        settlements: its end.
    """

    home: Notebook = attrs.field(repr=False)
    turn_id: str
    addresses: list[str] = attrs.field(factory=list)
    waits: int = 0
    asked: list[StopRequest] = attrs.field(factory=list)
    settlements: list[Settlement] = attrs.field(factory=list)

    @property
    def address(self) -> str | None:
        """The last one; None where it is not known."""
        return self.addresses[-1] if self.addresses else None

    @property
    def revealed(self) -> bool:
        """Whether an address was noted that nobody waited for: an announcement is waited for."""
        return len(self.addresses) > self.waits

    def note_address(self, address: str) -> None:
        """Keep it."""
        self.addresses.append(address)

    def note_asked(self, request: StopRequest) -> None:
        """Keep it."""
        self.asked.append(request)

    def note_settled(self, settlement: Settlement) -> None:
        """Keep it."""
        self.settlements.append(settlement)

    def note_left(self) -> None:
        """Nobody looks next."""

    async def saved(self) -> None:
        """Wait until the disk answers.

        **Cancellation:** changes nothing.
        """
        self.waits += 1
        await self.home.answers.wait()


@attrs.define(eq=False)
class Notebook:
    """The journal.

    Attributes:
        left: what a process has left that is gone: address by room and turn.
        turns: what was noted, by the turns' ids.
        answers: set while the disk does.
    """

    left: Sequence[tuple[str, str, str | None]] = ()
    turns: dict[str, Noted] = attrs.field(factory=dict)
    answers: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.answers.set()

    def hang(self) -> None:
        """From now on the disk does not answer."""
        self.answers = trio.Event()

    def admit(self, backend: str, room: str, turn_id: str) -> Noted:
        """Begin a turn's notes."""
        noted = self.turns[turn_id] = Noted(self, turn_id)
        return noted

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        """What was left; nothing more when it is asked for again.

        **Cancellation:** changes nothing.
        """
        found, self.left = self.left, ()
        return [
            Orphan(room, turn_id, address, self.admit(backend, room, turn_id))
            for room, turn_id, address in found
        ]
