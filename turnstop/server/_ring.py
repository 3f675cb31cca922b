"""What has happened lately, kept for whoever listens: bounded, and nobody waits for a listener.

A listener is only a place in a ring. One that falls behind by more than the ring holds is told of
a gap when it reads on; whoever writes never knows that there are listeners.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import trio

__all__ = ["Record", "Ring"]

_OVERHEAD: Final = 100
"""Bytes that a record takes besides its data, roughly."""


@attrs.frozen
class Record:
    """Something that has happened.

    Attributes:
        number: counts up over all rooms; 0: no place in the ring.
        kind: the type of the event.
        data: JSON, in one line.
    """

    number: int
    kind: str
    data: str = attrs.field(repr=False)


@attrs.define(eq=False)
class Ring:
    """The latest records, up to a number of them and of their bytes.

    Attributes:
        most: records that are kept.
        most_bytes: bytes of data that are kept; the latest record is kept whatever its size.
        lost: the number of the last record that was dropped, and of none before it is anything
            kept.
        listeners: streams that are made of it.
    """

    most: int
    most_bytes: int
    lost: int = 0
    listeners: int = 0
    _records: deque[Record] = attrs.field(factory=deque, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _lot: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def add(self, record: Record) -> None:
        """Keep a record, and wake who waits for one. Never waits."""
        self._records.append(record)
        self._bytes += len(record.data) + _OVERHEAD
        while len(self._records) > self.most or (
            self._bytes > self.most_bytes and len(self._records) > 1
        ):
            dropped = self._records.popleft()
            self._bytes -= len(dropped.data) + _OVERHEAD
            self.lost = dropped.number
        self._lot.unpark_all()

    def close(self) -> None:
        """There will be no more records."""
        self._closed = True
        self._lot.unpark_all()

    @property
    def latest(self) -> int:
        """The number of the last record; 0: there was none."""
        return self._records[-1].number if self._records else self.lost

    def after(self, number: int, most_bytes: int) -> Sequence[Record]:
        """The first records that are kept and come after this number, the oldest first.

        Args:
            number: of the last record that is not wanted.
            most_bytes: bytes of data that are wanted at once; a record may have more by itself.
        """
        found, length = list[Record](), 0
        for record in [*self._after(number)][::-1]:
            length += len(record.data)
            if found and length > most_bytes:
                break
            found.append(record)
        return found

    def _after(self, number: int) -> Iterator[Record]:
        for record in reversed(self._records):
            if record.number <= number:
                return
            yield record

    async def wait_after(self, number: int, most_bytes: int) -> Sequence[Record]:
        """Wait for records as of `after`; empty when the ring is closed and has none.

        **Cancellation:** loses nothing.
        """
        await trio.lowlevel.checkpoint()
        while not (found := self.after(number, most_bytes)) and not self._closed:
            await self._lot.park()
        return found
