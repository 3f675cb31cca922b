"""What a stop gives to whoever asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, final

import attrs
import trio

from ._records import OnlyMadeByUs, Settlement, StopRequest, StopVerdict


class Askable(Protocol):
    """A turn, as a stop sees it."""

    turn_id: str

    def ask(self, request: StopRequest) -> StopVerdict:
        """Do all that a stop does, in this step."""
        ...

    async def wait_settled(self) -> Settlement:
        """Wait for the settlement."""
        ...


@final
@attrs.frozen(eq=False, repr=False)
class StopReceipt(metaclass=OnlyMadeByUs):
    """The answer of a stop, which never waits.

    Attributes:
        verdict: what the stop found.
        turn_ids: the turns that it asked, or that were stopping already.
    """

    verdict: StopVerdict
    _turns: tuple[Askable, ...] = attrs.field()

    def __repr__(self) -> str:
        return f"<StopReceipt {self.verdict.name}: {', '.join(self.turn_ids) or 'no turn'}>"

    @property
    def turn_ids(self) -> tuple[str, ...]:
        return tuple(turn.turn_id for turn in self._turns)

    async def settled(self) -> tuple[Settlement, ...]:
        """Wait until every turn of `turn_ids` is settled; for the settlements, not for the room.

        **Cancellation:** the stop goes on without the waiter.
        """
        await trio.lowlevel.checkpoint()
        return tuple([await turn.wait_settled() for turn in self._turns])


_ASKED, _JOINED = StopVerdict.ASKED, StopVerdict.JOINED


def ask_all(turns: Sequence[Askable], request: StopRequest, otherwise: StopVerdict) -> StopReceipt:
    """Ask each of some turns to stop, and sum up; `otherwise` where there is none to speak of."""
    verdict, found = otherwise, []
    for turn in turns:
        one = turn.ask(request)
        if one is _ASKED or one is _JOINED:
            found.append(turn)
            if verdict is not _ASKED:
                verdict = one
    made: StopReceipt = StopReceipt._create(verdict, tuple(found))
    return made


def join(receipts: Iterable[StopReceipt]) -> StopReceipt:
    """One receipt for several: who waits passes the scheduler once, and not once for each."""
    verdict, turns = StopVerdict.NOTHING, list[Askable]()
    for receipt in receipts:
        turns += receipt._turns
        if receipt._turns and verdict is not _ASKED:
            verdict = receipt.verdict
    made: StopReceipt = StopReceipt._create(verdict, tuple(turns))
    return made
