"""A child process whose own parent is gone: found again by another process, and ended.

A turn that is a process has an address that names it for ever: where, which pid, begun when; and a
mark in its environment, which all that it starts inherits. A pid that has been given to another
program since is never signalled.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Self, final

import attrs
import trio

from .._errors import BackendLost
from .._identity import find_host, find_start
from ..abc import Emit, End, How, Proof
from .proctable import TableEntry, end_processes, find_marked, find_session

__all__ = ["PROCESS", "OrphanedTurn", "ProcessAddress", "attach_process", "new_mark"]

MARK: Final = "TURNSTOP_ORPHAN"
PROCESS: Final = "process:"
"""How the address of a process begins."""
_LOOK_EVERY: Final = 0.05
_GRACE: Final = 0.25


def new_mark() -> tuple[str, str]:
    """A variable and its value, for the environment of a child that is about to be started."""
    return MARK, secrets.token_hex(16)


@attrs.frozen
class ProcessAddress:
    """A child in a session of its own, as another process finds it.

    Attributes:
        host: where its pid means something.
        pid: 0 where it was not known yet.
        started: when it was begun, in the process table's clock ticks.
        mark: a variable that only it was begun with, and its value.
        session: what the turn belongs to, and its room goes on with in another process; may be
            empty.
    """

    host: str
    pid: int
    started: int
    mark: tuple[str, str]
    session: str = ""

    @classmethod
    def ahead(cls, mark: tuple[str, str], session: str = "") -> Self:
        """The address of a child that is about to be started: to be announced before it is."""
        return cls(find_host(), 0, 0, mark, session)

    @classmethod
    def of(cls, pid: int, mark: tuple[str, str], session: str = "") -> Self:
        """The address of a child that was started with `mark`, and has not been waited for."""
        return cls(find_host(), pid, find_start(pid), mark, session)

    def __str__(self) -> str:
        session = [self.session] if self.session else []
        return PROCESS + json.dumps([self.host, self.pid, self.started, *self.mark, *session])

    @classmethod
    def parse(cls, address: str) -> Self:
        """Read what `str` has made.

        Raises:
            BackendLost: it is another kind of address.
        """
        try:
            told = json.loads(address.removeprefix(PROCESS))
            host, pid, started, name, value, *session = map(str, told)
            return cls(host, int(pid), int(started), (name, value), *session)
        except (TypeError, ValueError):
            raise BackendLost(f"this is no address of a process: {address}") from None

    async def find(self) -> list[TableEntry]:
        """What is alive of it: itself, its session, and whatever carries its mark.

        **Cancellation:** leaves the looking thread to end by itself; nothing else is left.
        """
        if self.host != find_host():
            return []
        marked = [one.process for one in await find_marked(dict([self.mark]))]
        if not self.started:
            return marked
        session = await find_session(self.pid, since=self.started)
        # Without its leader a session tells nobody whose it was: then only the mark does.
        is_ours = any((one.pid, one.started) == (self.pid, self.started) for one in session)
        return list(dict.fromkeys([*marked, *session])) if is_ours else marked


@final
class OrphanedTurn:
    """A turn that is a process, taken up by another than its parent.

    Attributes:
        address: the process's.
        session: what its room goes on with; None where the address tells none.
    """

    acknowledges: ClassVar[bool] = False

    def __init__(self, process: ProcessAddress) -> None:
        self.address = str(process)
        self.session = process.session or None
        self._find = process.find

    async def follow(self, emit: Emit) -> End:
        """Wait until nothing of it is alive."""
        while await self._find():  # noqa: ASYNC110 - a stranger's death is no event
            await trio.sleep(_LOOK_EVERY)
        return End(How.CANCELLED, Proof.PROCESS)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Have it end, and see that it does."""
        found = await self._find()
        sent()
        await end_processes(self._find, found, grace=_GRACE)

    async def kill(self) -> None:
        """End it by force."""
        if left := await end_processes(self._find, grace=0.0):
            raise BackendLost(f"still alive: {', '.join(map(str, left))}")

    async def leftovers(self) -> Sequence[TableEntry]:
        """What is alive of it."""
        return await self._find()

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[TableEntry]:
        """End it by force."""
        return await end_processes(self._find, grace=0.0)


def attach_process(address: str) -> OrphanedTurn:
    """Take up a turn that is a process, for a backend's `attach`.

    One that is gone with its parent, or with the machine's last start, has ended: its `follow`
    says so.

    Raises:
        BackendLost: it is the address of something else, or of a process that cannot be seen here.
    """
    process = ProcessAddress.parse(address)
    there, here = process.host.split(), find_host().split()
    if there[0] != here[0]:
        raise BackendLost(f"pid {process.pid} ran on {there[0]}: see there that it has ended")
    if there[1:2] == here[1:2] and there != here:
        raise BackendLost(
            f"pid {process.pid} ran in another container: see there that it has ended"
        )
    return OrphanedTurn(process)
