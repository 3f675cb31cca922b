"""A turn whose owner is gone, where all of it is in memory: as the next process takes it up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, Protocol, TypeVar, final

import trio

from ..._errors import BackendLost
from ...abc import Emit, End
from ...transports.orphans import ProcessAddress, Tell
from .._probe import Work

__all__ = ["LeftTurn", "find_process", "to_address"]

_HOST = "in-memory"
_MARK = "TURNSTOP_ORPHAN"
_LOOK_EVERY = 0.01


class FarProcess(Protocol):
    """A process in memory."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""


T = TypeVar("T", bound=FarProcess)


def to_address(number: int) -> ProcessAddress:
    """Where the process of this number is, counted from 1."""
    return ProcessAddress(_HOST, number, number, (_MARK, f"process-{number}"))


def find_process(address: str, processes: Sequence[T]) -> tuple[ProcessAddress, T]:
    """The process at an address.

    Raises:
        BackendLost: it is of none of these.
    """
    place = ProcessAddress.parse(address)
    if place.host != _HOST or not 0 < place.pid <= len(processes):
        raise BackendLost(f"this is no address of a process in memory: {address}")
    return place, processes[place.pid - 1]


@final
class LeftTurn:
    """It ends with its process, as with a real one.

    Attributes:
        session: what its room goes on with.
    """

    acknowledges: ClassVar[bool] = False

    def __init__(
        self,
        place: ProcessAddress,
        process: FarProcess,
        works: Iterable[Work],
        end: Callable[[], Awaitable[object]],
        tell: Tell,
    ) -> None:
        self.session: object | None = place.session or None
        self._place = place
        self._process = process
        self._works = works
        self._ends = end
        self._tell = tell
        self._end: End | None = None

    async def look(self) -> None:
        """Learn how it ended, where its process is gone already.

        **Cancellation:** changes nothing.
        """
        await trio.lowlevel.checkpoint()
        if self._process.ended:
            self._end, self.session = await self._tell(self._place)

    async def follow(self, emit: Emit) -> End:
        """Wait for the end of the process."""
        while self._end is None:
            await trio.sleep(_LOOK_EVERY)
            await self.look()
        return self._end

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Have the process end."""
        for work in self._works:
            # Another process may work on the room's next turn by now.
            if not self._process.ended and work.runs and work.session == self._place.session:
                work.told_at.append(trio.current_time())
        sent()
        await self._ends()
