"""A child process whose own parent is gone: found again by another process, and ended.

A turn that is a process has an address that names it for ever: where, which pid, begun when; and a
mark in its environment, which all that it starts inherits. A pid that has been given to another
program since is never signalled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Self, TypeAlias, final

import attrs
import trio

from .._errors import BackendError, BackendLost
from .._identity import find_host, find_start, is_same_place
from ..abc import Emit, End, How, Proof
from .offspring import Look, Offspring, make_mark
from .proctable import (
    TableEntry,
    end_processes,
    find_marked,
    find_session,
    has_table,
    is_within,
    still_alive,
)

__all__ = [
    "PROCESS",
    "OrphanedTurn",
    "ProcessAddress",
    "Tell",
    "attach_process",
    "check_apart",
    "check_reach",
    "new_mark",
]

MARK: Final = "TURNSTOP_ORPHAN"
PROCESS: Final = "process:"
"""How the address of a process begins."""
_LOOK_EVERY: Final = 0.05
_UNCLEAR_LOOKS: Final = 4
_GRACE: Final = 0.25


def new_mark() -> tuple[str, str]:
    """A variable and its value, for the environment of a child that is about to be started."""
    return make_mark(MARK)


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
        turn: what the program calls the turn; may be empty.
        tool: what the program adds to the environment of its tools, as in `Offspring`: of these,
            only what the turn itself has begun is the turn's. Empty where all that the program
            has started is.
        since: when the turn began, in the process table's clock ticks.
        user: for whom it runs; others are not shown its mark. None where that was not known.
    """

    host: str
    pid: int
    started: int
    mark: tuple[str, str]
    session: str = ""
    turn: str = ""
    tool: Mapping[str, str | None] = attrs.field(factory=dict)
    since: int = 0
    user: int | None = None

    @classmethod
    def ahead(cls, mark: tuple[str, str], session: str = "") -> Self:
        """The address of a child that is about to be started: to be announced before it is."""
        return cls(find_host(), 0, 0, mark, session, user=os.geteuid())

    @classmethod
    def of(cls, pid: int, mark: tuple[str, str], session: str = "") -> Self:
        """The address of a child that was started with `mark`, and has not been waited for."""
        return cls(find_host(), pid, find_start(pid), mark, session, user=os.geteuid())

    def __str__(self) -> str:
        parts = [self.host, self.pid, self.started, *self.mark, self.session]
        more = {"turn": self.turn, "tool": dict(self.tool), "since": self.since}
        return PROCESS + json.dumps([*parts, {**more, "user": self.user}])

    @classmethod
    def parse(cls, address: str) -> Self:
        """Read what `str` has made.

        Raises:
            BackendLost: it is another kind of address.
        """
        try:
            *parts, more = json.loads(address.removeprefix(PROCESS))
            host, pid, started, name, value, session = map(str, parts)
            turn, tool, since = str(more["turn"]), dict(more["tool"]), int(more["since"])
            mark, user = (name, value), more["user"]
            user = None if user is None else int(user)
            return cls(host, int(pid), int(started), mark, session, turn, tool, since, user)
        except (TypeError, ValueError, LookupError):
            raise BackendLost(f"this is no address of a process: {address}") from None

    @property
    def counts(self) -> bool:
        """Whether its pid and its times mean something here; not once the machine was restarted.

        Raises:
            BackendLost: that cannot be told now.
        """
        return is_same_place(self.host, _find_here(self.host))

    async def find(self) -> list[TableEntry]:
        """What is alive of it: itself, its session, and what carries its mark and is no tool.

        **Cancellation:** leaves the looking thread to end by itself; nothing else is left.
        """
        if not self.counts:
            return []
        found = await find_marked(dict([self.mark]))
        marked = [one.process for one in found if not self._is_tools(one.environment)]
        if not self.started:
            return marked
        session = await find_session(self.pid, since=self.started)
        # Without its leader a session tells nobody whose it was: then only the mark does.
        is_ours = any((one.pid, one.started) == (self.pid, self.started) for one in session)
        return list(dict.fromkeys([*marked, *session])) if is_ours else marked

    async def find_tools(self, look: Look = find_marked) -> list[TableEntry]:
        """What is alive of the turn's tools, where these are told from the rest.

        **Cancellation:** as `find`.
        """
        if not self.tool or not self.counts:
            return []
        return await Offspring(self.mark, self.tool, self.since, look).find()

    async def find_unclear(self) -> list[TableEntry]:
        """What is alive of its session when it is not, and carries no mark.

        They dropped their environment; or its pid was given away since, and they are strangers'.

        **Cancellation:** as `find`.
        """
        if not self.started or not self.counts:
            return []
        for _ in range(_UNCLEAR_LOOKS):
            session = await find_session(self.pid, since=self.started)
            if not session or find_start(self.pid):
                return []  # Where it has a leader, it is known whose it is.
            marked = [one.process for one in await find_marked(dict([self.mark]))]
            if not (found := [one for one in session if one not in marked]):
                return []
            # One that is on its way out, or in, shows no environment either.
            await trio.sleep(_LOOK_EVERY)
        return still_alive(found)

    def _is_tools(self, environment: Mapping[str, str]) -> bool:
        return bool(self.tool) and all(name in environment for name in self.tool)


Tell: TypeAlias = Callable[[ProcessAddress], Awaitable[tuple[End, object | None]]]
"""Says of a turn whose process is gone how it ended, and what its room goes on with."""


async def _say_gone(process: ProcessAddress) -> tuple[End, object | None]:
    return End(How.CANCELLED, Proof.PROCESS), process.session or None


@final
class OrphanedTurn:
    """A turn that is a process, taken up by another than its parent.

    Attributes:
        process: where it is.
        address: the same as a str.
        session: what its room goes on with; None where nothing is known of that.
    """

    acknowledges: ClassVar[bool] = False

    def __init__(
        self,
        process: ProcessAddress,
        *,
        grace: float = _GRACE,
        tell: Tell = _say_gone,
        tools: Offspring | None = None,
    ) -> None:
        self.process = process
        self.address = str(process)
        self.session: object | None = process.session or None
        self._find = process.find
        self._grace = grace
        self._tell = tell
        self._tools = tools
        self._end: End | BackendLost | None = None

    async def look(self) -> None:
        """Learn how it ended, where its process is gone already: then nobody is told to stop.

        **Cancellation:** changes nothing.
        """
        with suppress(BackendLost):  # `follow` looks again
            if not await self._find():
                await self._learn()

    async def follow(self, emit: Emit) -> End:
        """Wait until nothing of it is alive."""
        if self._end is None:
            await self._wait_gone()
            await self._learn()
        if isinstance(self._end, End):
            return self._end
        assert self._end is not None
        raise self._end

    async def _wait_gone(self) -> None:
        found: Sequence[TableEntry] | None = None
        while found is None or found:
            try:
                # A stranger's death is no event. The whole table is looked through only when those
                # that are known have ended.
                while found := still_alive(found or ()):  # noqa: ASYNC110
                    await trio.sleep(_LOOK_EVERY)
                found = await self._find()
            except BackendLost:
                # What cannot be seen now is not gone.
                found = None
                await trio.sleep(_LOOK_EVERY)

    async def _learn(self) -> None:
        try:
            self._end, self.session = await self._tell(self.process)
        except BackendError as error:
            text = f"the turn's process is gone, and how the turn ended was not told: {error}"
            self._end = BackendLost(text, gone=True)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Have it end, and see that it does."""
        found = await self._find()
        sent()
        await end_processes(self._find, found, grace=self._grace)

    async def kill(self) -> None:
        """End it by force."""
        if left := await end_processes(self._find, grace=0.0):
            raise BackendLost(f"still alive: {', '.join(map(str, left))}")

    async def leftovers(self) -> Sequence[TableEntry]:
        """What is alive of it, and of its tools, and what may be so."""
        return [*(found := await self._all()), *await self._unclear(found)]

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[TableEntry]:
        """End it by force, and nothing that may be a stranger's."""
        left = await end_processes(self._all, grace=0.0)
        return [*left, *await self._unclear(left)]

    async def _all(self) -> list[TableEntry]:
        return [*await self._find(), *await self.process.find_tools()]

    async def _unclear(self, known: Sequence[TableEntry]) -> list[TableEntry]:
        found = await self.process.find_unclear()
        if self._tools is not None and self.process.counts:
            found += await self._tools.find()
        return [one for one in dict.fromkeys(found) if one not in known]


def attach_process(
    address: str,
    *,
    grace: float = _GRACE,
    tell: Tell = _say_gone,
    tools: Offspring | None = None,
) -> OrphanedTurn:
    """Take up a turn that is a process, for a backend's `attach`.

    One that is gone with its parent, or with the machine's last start, has ended: its `follow`
    says so.

    Args:
        address: a `ProcessAddress`, as str.
        grace: seconds that it has for ending by itself between SIGTERM and SIGKILL. The turn's
            budget bounds it, and does not lengthen it.
        tell: called with the address once nothing of it is alive: it returns how the turn ended,
            and what its room goes on with. By default it was stopped, whatever it had come to.
        tools: what finds more than the mark does, and maybe tools of others too: what is alive of
            these is named, and not ended.

    Raises:
        BackendLost: it is the address of something else, or of a process that cannot be seen here;
            or this process is itself a tool of that one.
    """
    process = ProcessAddress.parse(address)
    check_reach(process.host, process.pid)
    if not has_table():
        raise BackendLost(f"no process is shown here: see that pid {process.pid} has ended")
    if process.counts:
        _check_nearness(process)
    check_apart(process.mark, process.pid)
    return OrphanedTurn(process, grace=grace, tell=tell, tools=tools)


def _check_nearness(process: ProcessAddress) -> None:
    if process.user is not None and os.geteuid() not in (process.user, 0):
        raise BackendLost(
            f"pid {process.pid} ran for user {process.user}, and others are not shown what it has "
            "begun: take the turn up for that user"
        )
    if is_within(TableEntry(process.pid, process.started, 0, 0)):
        # It would be ended with it, or by it: as the service that an agent of its own restarts.
        raise BackendLost(
            f"pid {process.pid} works on the turn, and has begun this very process: end it "
            "yourself, and start this one from elsewhere"
        )


def check_apart(mark: tuple[str, str], pid: int) -> None:
    """See that this process is not of a turn's own: with a mark that only these carry.

    Such a one is a service that its own agent has restarted, however far from itself. What it has
    begun would be ended as the turn's, and the turn said to be gone while it is not.

    Args:
        mark: a variable, and its value.
        pid: the process that the turn is, or is work of; 0 where it was not known yet.

    Raises:
        BackendLost: this process carries it.
    """
    name, value = mark
    if os.environ.get(name) == value:
        whose = f"of pid {pid}" if pid else "of a process whose pid was not known yet"
        raise BackendLost(
            f"the turn, {whose}, has begun this very process: end what is left of it yourself, and "
            "start this one from elsewhere"
        )


def check_reach(host: str, pid: int) -> None:
    """See that whether a process of `host` runs can be told here.

    Raises:
        BackendLost: it ran elsewhere.
    """
    found = _find_here(host)
    if is_same_place(host, found):
        return
    there, here = host.split(), found.split()
    if there[1:2] == here[1:2] != []:
        raise BackendLost(f"pid {pid} ran in another container: see there that it has ended")
    if there[0] != here[0]:
        raise BackendLost(f"pid {pid} ran on {there[0]}: see there that it has ended")


def _find_here(host: str) -> str:
    here = find_host()
    if len(here.split()) < len(host.split()):
        # Which start of the machine this is stands in a file, which may not be opened now.
        raise BackendLost("where this process runs cannot be told now: see what it has opened")
    return here
