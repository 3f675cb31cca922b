"""What a control has found, and what an inbox says of itself."""

from __future__ import annotations

import attrs
import trio

from .._receipt import StopReceipt
from .._records import Settlement

__all__ = ["Applied", "InboxStatistics"]


@attrs.frozen
class Applied:
    """What a control has found.

    Attributes:
        rooms: those which it was applied to. None: an unknown room, or a turn that is not live.
        repeated: a control with this id was applied before, and this one was not.
    """

    rooms: tuple[str, ...]
    repeated: bool = False
    _receipt: StopReceipt | None = attrs.field(default=None, repr=False)

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """The turns that it asked to stop, or that were stopping already."""
        return () if self._receipt is None else self._receipt.turn_ids

    async def settled(self) -> tuple[Settlement, ...]:
        """Wait until every turn of `turn_ids` is settled.

        **Cancellation:** the stop goes on without the waiter.
        """
        if self._receipt is None:
            await trio.lowlevel.checkpoint()
            return ()
        return await self._receipt.settled()


@attrs.frozen
class InboxStatistics:
    """A snapshot of an inbox.

    Attributes:
        rooms: rooms that are served.
        paused: of these, those which a STOP has paused.
        handling: messages that are being handled.
        troubles: calls of the feed that failed and are tried again, since the beginning.
    """

    rooms: int
    paused: int
    handling: int
    troubles: int
