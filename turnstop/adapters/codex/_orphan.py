"""A turn whose app server was another process's, which is gone.

The app server that is left is ended first: it would go on in the thread. How the turn ended is in
codex's own record of the thread then, which any app server reads; it says `interrupted` of a turn
that nobody has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

from ..._errors import BackendError, BackendLost
from ...abc import Emit, End, How, Proof
from ...transports.jsonrpc import Connection, RpcError
from ...transports.offspring import Offspring
from ...transports.orphans import OrphanedTurn, attach_process
from ...transports.peer import Peer
from ...transports.proctable import TableEntry, end_processes
from ...transports.restart import Restarting
from ._commands import ROOT, Look

_PATIENCE = 2.0
_HOW = {"completed": How.COMPLETED, "failed": How.FAILED}
_NEWEST = 20


@final
class CodexOrphan:
    """A turn of an app server that is nobody's any more.

    Attributes:
        address: where it is.
        session: its thread; None once codex was seen not to know it.
    """

    acknowledges: ClassVar[bool] = False

    def __init__(self, left: OrphanedTurn, codex: Restarting[Peer], look: Look) -> None:
        self.address = left.address
        self.session: str | None = left.process.session
        self._left = left
        self._codex = codex
        self._tools = Offspring((ROOT, left.process.session), {}, left.process.since, look)
        self._end: End | BackendError | None = None

    async def look(self) -> None:
        """Learn how it ended, if its app server is gone already: then nobody is told to stop."""
        if not await self._left.process.find():
            self._end = await self._ask()

    async def follow(self, emit: Emit) -> End:
        """Wait until the app server is gone; read then how the turn ended."""
        if self._end is None:
            await self._left.follow(emit)
            self._end = await self._ask()
        if isinstance(self._end, End):
            return self._end
        raise self._end

    async def _ask(self) -> End | BackendError:
        try:
            rpc = (await self._codex.get()).rpc
            return await self._read(rpc)
        except BackendError as error:
            return BackendLost(
                f"the turn's app server is gone, and how the turn ended was not told: {error}",
                gone=True,
            )

    async def _read(self, rpc: Connection) -> End:
        ended = End(How.CANCELLED, Proof.PROCESS)
        thread = {"threadId": self._left.process.session}
        try:
            await rpc.call_within(_PATIENCE, "thread/read", thread)
        except RpcError:
            # Nothing of it was written down: the room's next turn begins another.
            self.session = None
            return ended
        try:
            told = await rpc.call_within(
                _PATIENCE, "thread/turns/list", {**thread, "limit": _NEWEST}
            )
        except RpcError:
            return ended
        turn = _find(told, self._left.process.turn)
        how = _HOW.get(str(turn.get("status")))
        return ended if how is None else End(how, Proof.PROCESS, detail=_detail(turn.get("error")))

    async def cancel(self, sent: Callable[[], None]) -> None:
        """End the app server."""
        await self._left.cancel(sent)

    async def kill(self) -> None:
        """End it by force."""
        await self._left.kill()

    async def leftovers(self) -> Sequence[TableEntry]:
        """What is alive of it, and of the turn's commands, its sub-agents' too."""
        return await self._find()

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[TableEntry]:
        """End them."""
        processes = [one for one in leftovers if isinstance(one, TableEntry)]
        return await end_processes(self._find, processes)

    async def _find(self) -> list[TableEntry]:
        process = self._left.process
        tools = await self._tools.find() if process.counts else ()
        return [*await process.find(), *tools]


def _find(told: object, turn: str) -> Mapping[str, Any]:
    rows = told.get("data") if isinstance(told, dict) else None
    listed = rows if isinstance(rows, list) else ()
    mine = (row for row in listed if isinstance(row, dict) and row.get("id") == turn)
    return next(mine, {})


def _detail(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else ""


async def take_up(address: str, codex: Restarting[Peer], look: Look) -> CodexOrphan:
    """Take up the turn at an address.

    Raises:
        BackendLost: it is another's, or of a process that cannot be seen here.

    **Cancellation:** changes nothing.
    """
    turn = CodexOrphan(attach_process(address), codex, look)
    await turn.look()
    return turn
