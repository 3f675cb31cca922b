"""One room's door: one guest at a time, first come, first served."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import attrs
import trio

from ._records import Settlement


class Guest(Protocol):
    """Who can hold a room.

    Attributes:
        task: whose block it is; None before the room is entered.
    """

    task: trio.lowlevel.Task | None


@attrs.define(eq=False)
class Door:
    """Who holds the room, who waits for it, and what its next guest inherits.

    Attributes:
        holder: whose the room is now.
        waiting: who waits, in the order of their coming.
        session: what the room's last remote turn left to be continued.
        previous: the room's last settlement whose work may be alive.
    """

    room: str
    holder: Guest | None = None
    waiting: OrderedDict[Guest, trio.lowlevel.Task] | None = None
    session: object | None = None
    previous: Settlement | None = None

    def take_nowait(self, guest: Guest) -> bool:
        """Take the room if it is free. It is never free while somebody waits."""
        if self.holder is not None:
            return False
        self.holder = guest
        return True

    async def wait(self, guest: Guest, *, first: bool = False) -> None:
        """Queue until the room is handed over.

        Args:
            first: before all who wait by now.

        **Cancellation:** leaves the queue.
        """
        if self.waiting is None:
            self.waiting = OrderedDict()
        waiting = self.waiting
        waiting[guest] = trio.lowlevel.current_task()
        if first:
            waiting.move_to_end(guest, last=False)

        def abort(_: object) -> trio.lowlevel.Abort:
            del waiting[guest]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def hand_over(self) -> None:
        """The holder leaves: the next in the queue holds the room in this same step."""
        if self.waiting:
            self.holder, task = self.waiting.popitem(last=False)
            trio.lowlevel.reschedule(task)
        else:
            self.holder = None

    def guests(self) -> list[Guest]:
        """The holder and everybody who waits."""
        found = [] if self.holder is None else [self.holder]
        return [*found, *self.waiting] if self.waiting else found

    @property
    def idle(self) -> bool:
        """Nobody holds or awaits it, and the next guest would inherit nothing."""
        return self.holder is None and self.session is None and self.previous is None
