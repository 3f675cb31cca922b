"""What all turns of the same rooms share: doors, a nursery, a watcher, and the state of closing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import attrs
import trio
from trio.lowlevel import Abort, enable_ki_protection

from ._admission import Door, Guest
from ._budget import StopBudget
from ._calls import Call
from ._errors import BackendMisbehaved, BackendRefused, RoomsClosed
from ._gate import Tally
from ._records import Settlement, StopRequest
from ._watch import Watch
from ._workers import Workers
from .abc import check_address

ANNOUNCED_WITHIN: Final = 0.5
"""Seconds. What may begin is not sent before a journal has it; but a disk that does not answer
holds up nothing for long."""


def refuse_abort(_: object) -> Abort:
    """An abort function for a wait that neither a cancellation nor Ctrl-C may end."""
    return Abort.FAILED


class Block(Protocol):
    """The local half of a turn."""

    def ask(self, request: StopRequest) -> object:
        """Stop the turn, body and all."""

    def halt(self) -> None:
        """Cancel the body of a turn that failed and that nobody ever read."""

    def note_settled(self) -> None:
        """The settlement is known, in this step."""


class Entry(Protocol):
    """One turn in a journal. What notes something never waits and never raises."""

    def note_address(self, address: str) -> None:
        """Where it can be found by another process."""

    def note_asked(self, request: StopRequest) -> None:
        """Somebody wants it stopped."""

    def note_settled(self, settlement: Settlement) -> None:
        """It is over."""

    def note_left(self) -> None:
        """It was taken over, and is not ended here: it is for whoever looks next."""

    async def saved(self) -> None:
        """Wait until what was noted is on the disk, or cannot be brought there."""


@attrs.frozen
class Orphan:
    """A turn that a process has left open which is gone.

    Attributes:
        address: where it can be found; None where that was not known.
    """

    room: str
    turn_id: str
    address: str | None
    entry: Entry = attrs.field(repr=False)


class Journal(Protocol):
    """What keeps, for another process, which turns have begun and have not ended."""

    def admit(self, backend: str, room: str, turn_id: str) -> Entry:
        """A turn is about to begin. Never waits and never raises."""
        ...

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        """The turns of such a backend that nobody else will end.

        Args:
            again: it was asked before; whose process has just gone is left to the one that is
                started in its place.

        **Cancellation:** they are taken over, or not; another process will find them.
        """
        ...


def find_address(remote: Any) -> str | None:
    """Where a remote turn can be found by another process; None where it does not tell.

    Raises:
        BackendMisbehaved: nobody could keep what it tells.
    """
    address = getattr(remote, "address", None)
    try:
        return None if address is None else check_address(address)
    except TypeError as error:
        raise BackendMisbehaved(str(error)) from error


@attrs.define(eq=False)
class Announcer:
    """`turnstop.abc.Request.announce`: who keeps it keeps no turn that is over.

    Attributes:
        tell: the turn's; None when the turn is over.
    """

    tell: Callable[[str], Awaitable[None]] | None

    @enable_ki_protection
    async def __call__(self, address: str) -> None:
        """See `turnstop.abc.Request`."""
        check_address(address)
        if self.tell is None:
            raise BackendRefused("the turn is over: nothing of it is sent any more")
        await self.tell(address)


@attrs.define(eq=False)
class House:
    """Made by `open_rooms`, handed to each turn.

    Attributes:
        sweep: whether leftovers are ended, or only listed.
        workers: the kernel's tasks.
        journal: where turns are noted; None: nowhere.
        backend_name: what the journal calls the backend: the same in the next process.
        announces: whether nothing is sent to the backend that was not announced.
        closing: no block is entered any more.
        stragglers: adapter calls that outlived their bound, each with its turn's id or room.
    """

    backend: Any
    budget: StopBudget
    sweep: bool
    workers: Workers
    watch: Watch
    journal: Journal | None = None
    backend_name: str = attrs.field(init=False)
    announces: bool = attrs.field(init=False)
    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    tally: Tally = attrs.field(factory=Tally)
    doors: dict[str, Door] = attrs.field(factory=dict)
    closing: bool = False
    stragglers: dict[Call, str] = attrs.field(factory=dict)
    _blocks: int = attrs.field(default=0, init=False)
    _exit: trio.lowlevel.Task | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        # Once, where nothing has begun: it is adapter code, which may raise.
        kind, name = type(self.backend), None
        if self.journal is not None:
            name = getattr(self.backend, "name", None)
        self.backend_name = (
            name if isinstance(name, str) else f"{kind.__module__}.{kind.__qualname__}"
        )
        self.announces = self.journal is not None and bool(
            getattr(self.backend, "announces", False)
        )

    def check_thread(self) -> None:
        """Raise RuntimeError anywhere but in the Trio thread that the rooms live in."""
        try:
            if trio.lowlevel.current_trio_token() is self.token:
                return
        except RuntimeError:
            pass
        raise RuntimeError(
            "these rooms live in another thread: from a thread that Trio started call "
            "trio.from_thread.run_sync(rooms.stop, ...), from any other "
            "TrioToken.run_sync_soon(rooms.stop, ...)"
        )

    def door(self, room: str) -> Door:
        """The room's door, for somebody who is about to enter and will `leave`."""
        if self.closing:
            raise RoomsClosed(f"room {room!r} cannot be entered: these rooms are closing")
        door = self.doors.get(room)
        if door is None:
            door = self.doors[room] = Door(room)
        elif door.holder is not None and door.holder.task is trio.lowlevel.current_task():
            raise RuntimeError(
                f"this task holds room {room!r} already and would wait for itself: "
                "leave the block first"
            )
        self._blocks += 1
        return door

    def leave(self, door: Door, guest: Guest) -> None:
        """Undo `door`: hand the room over if it is the guest's, forget it if nobody needs it."""
        if door.holder is guest:
            door.hand_over()
        # A guest that left the queue may find that the room has been let to others since.
        if door.idle and self.doors.get(door.room) is door:
            del self.doors[door.room]
        self._blocks -= 1
        if self._blocks == 0 and self._exit is not None:
            trio.lowlevel.reschedule(self._exit)

    async def wait_empty(self) -> None:
        """Wait until every block has left.

        **Cancellation:** does not end it, nor does Ctrl-C: like a nursery's exit it is over when
        the tasks inside are.
        """
        if self._blocks:
            self._exit = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(refuse_abort)
