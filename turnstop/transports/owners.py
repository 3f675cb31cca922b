"""Work of the very process that began it: a function, a task, an engine. It ends when that does.

Such a process is the application, maybe with other work in it. So nobody but itself may end it: it
is looked at, and never signalled. What the work has begun as programs of their own outlives it:
they are known by a mark in their environment, and ended.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Self, final

import attrs
import trio

from .._errors import BackendLost
from .._identity import find_host, find_start, is_gone, is_same_place
from ..abc import Emit, End, How, Proof
from .offspring import Look, Offspring, make_mark
from .orphans import check_apart, check_reach
from .proctable import TableEntry, find_marked

__all__ = ["OWNER", "OwnedTurn", "OwnerAddress", "attach_owner", "new_owner"]

OWNER: Final = "owner:"
"""How the address of work of a process itself begins."""
_MARK: Final = "TURNSTOP_OWNER"
_LOOK_EVERY: Final = 0.05
# A program that replaces itself by another one keeps its pid and its start.
_IMAGE: Final = secrets.token_hex(6)


@attrs.frozen
class OwnerAddress:
    """A process, and what it works on in itself.

    Attributes:
        host: where its pid means something.
        pid: the process.
        started: when it was begun, in the process table's clock ticks; 0 where that is not told.
        mark: what names a variable that only the work's own programs carry.
        session: what the work belongs to, and its room goes on with in another process; may be
            empty.
    """

    host: str
    pid: int
    started: int
    mark: str
    session: str = ""

    def __str__(self) -> str:
        return OWNER + json.dumps(attrs.astuple(self))

    @classmethod
    def parse(cls, address: str) -> Self:
        """Read what `str` has made.

        Raises:
            BackendLost: it is another kind of address.
        """
        try:
            if not address.startswith(OWNER):
                raise ValueError
            host, pid, started, mark, session = json.loads(address.removeprefix(OWNER))
            return cls(str(host), int(pid), int(started), str(mark), str(session))
        except (TypeError, ValueError):
            raise BackendLost(f"this is no address of work of a process: {address}") from None

    def of_turn(self, number: int, session: str = "") -> Self:
        """The address of one turn of this process's, by a number that it has for itself."""
        return attrs.evolve(self, mark=f"{self.mark}-{number}", session=session)

    @property
    def env(self) -> dict[str, str]:
        """What the work's own programs are to have in their environment."""
        return dict([make_mark(_MARK, self.mark)])

    def programs(self, look: Look = find_marked) -> Offspring:
        """The work's own programs, as far as they carry the mark."""
        return Offspring(make_mark(_MARK, self.mark), {}, 0, look)

    def may_be_there(self) -> bool:
        """Whether the process may still run: it is said to be gone only where that is certain."""
        here, there = find_host(), self.host
        if not is_same_place(here, there):
            return not _began_anew(there.split(), here.split())
        if self.pid == os.getpid() and not self.mark.startswith(_IMAGE):
            return False  # It has replaced itself by another program, this one.
        return not is_gone(self.pid, self.started or find_start(self.pid))


def _began_anew(there: Sequence[str], here: Sequence[str]) -> bool:
    """Whether the machine was certainly started since: where its start is told, and differs."""
    return len(there) == len(here) > 1 and there[1] != here[1]


def new_owner() -> OwnerAddress:
    """This process. Each turn has an address of its own from that, by `of_turn`."""
    pid = os.getpid()
    return OwnerAddress(find_host(), pid, find_start(pid), f"{_IMAGE}-{secrets.token_hex(6)}")


@final
@attrs.frozen
class _Owner:
    """The process in which the work is, as a survivor is named."""

    pid: int

    def __str__(self) -> str:
        return f"pid {self.pid}, which works on it: it is not to be ended from here"


@final
class OwnedTurn:
    """Work of a process that is taken up by another process.

    Attributes:
        owner: where it is.
        address: the same as a str.
        session: what the room goes on with.
    """

    acknowledges: ClassVar[bool] = False

    def __init__(self, owner: OwnerAddress, look: Look = find_marked) -> None:
        self.address = str(owner)
        self.session: object | None = owner.session or None
        self.owner = owner
        self._programs = owner.programs(look)

    async def follow(self, emit: Emit) -> End:
        """Wait until the process is gone, and the work's own programs with it."""
        while self.owner.may_be_there() or await self._programs.find():  # noqa: ASYNC110
            # A stranger's death is no event.
            await trio.sleep(_LOOK_EVERY)
        return End(How.CANCELLED, Proof.PROCESS)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """End the work's own programs, once the process is gone."""
        while self.owner.may_be_there():  # noqa: ASYNC110 - a stranger's death is no event
            await trio.sleep(_LOOK_EVERY)
        found = await self._programs.find()
        sent()
        await self._programs.end(found)

    async def kill(self) -> None:
        """End the work's own programs by force, and no process that may have other work.

        Raises:
            BackendLost: the process may still be there.
        """
        if self.owner.may_be_there():
            raise BackendLost(
                f"the turn is work of pid {self.owner.pid} itself, which is still there and has "
                "not said how that ended: see what it does, and end it yourself"
            )
        if left := await self._programs.end(await self._programs.find()):
            raise BackendLost(f"still alive: {', '.join(map(str, left))}")

    async def leftovers(self) -> Sequence[object]:
        """The process, or what its work has left."""
        if self.owner.may_be_there():
            return [_Owner(self.owner.pid)]
        return await self._programs.find()

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[object]:
        """End what the work has left; the process is nobody's to end."""
        kept = [one for one in leftovers if isinstance(one, _Owner)]
        ended = [one for one in leftovers if isinstance(one, TableEntry)]
        return [*kept, *(await self._programs.end(ended) if ended else ())]


def attach_owner(address: str, look: Look = find_marked) -> OwnedTurn:
    """Take up work of a process, for a backend's `attach`.

    Where the process is gone, the work has ended: `follow` says so, once its own programs have been
    ended too. Where it is still there, nothing is done to it, and the turn is not said to be gone.

    Raises:
        BackendLost: it is the address of something else, or of a process that cannot be seen here;
            or this process is itself one of the work's own programs.
    """
    owner = OwnerAddress.parse(address)
    check_reach(owner.host, owner.pid)
    check_apart(owner.programs().mark, owner.pid)
    return OwnedTurn(owner, look)
