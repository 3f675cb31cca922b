"""What a stop gives to whoever asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

import attrs
import trio

from ._records import OnlyMadeByUs, Settlement, StopVerdict


class _Settling(Protocol):
    turn_id: str

    async def wait_settled(self) -> Settlement: ...


@final
@attrs.frozen(eq=False)
class StopReceipt(metaclass=OnlyMadeByUs):
    """The answer of a stop, which never waits.

    Attributes:
        verdict: what the stop found.
        turn_ids: the turns that it asked, or that were stopping already.
    """

    verdict: StopVerdict
    turn_ids: tuple[str, ...]
    _turns: tuple[_Settling, ...] = attrs.field(repr=False)

    async def settled(self) -> tuple[Settlement, ...]:
        """Wait until every turn of `turn_ids` is settled; for the settlements, not for the room.

        **Cancellation:** the stop goes on without the waiter.
        """
        await trio.lowlevel.checkpoint()
        return tuple([await turn.wait_settled() for turn in self._turns])


_ORDER = tuple(StopVerdict)


def receipt(found: Sequence[tuple[_Settling, StopVerdict]], otherwise: StopVerdict) -> StopReceipt:
    """Sum up what a stop found; `otherwise` where it found no turn to speak of."""
    turns = [t for t, verdict in found if verdict in (StopVerdict.ASKED, StopVerdict.JOINED)]
    verdicts = [verdict for _, verdict in found]
    verdict = min(verdicts, key=_ORDER.index, default=otherwise)
    made: StopReceipt = StopReceipt._create(verdict, tuple(t.turn_id for t in turns), tuple(turns))
    return made
