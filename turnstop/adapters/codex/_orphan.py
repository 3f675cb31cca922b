"""A turn whose app server was another process's, which is gone.

The app server that is left is ended first: it would go on in the thread. How the turn ended is in
codex's own record of the thread then, which any app server reads; it says `interrupted` of a turn
that nobody has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from ...abc import End, How, Proof
from ...transports.jsonrpc import RpcError
from ...transports.offspring import Offspring
from ...transports.orphans import OrphanedTurn, ProcessAddress, attach_process
from ...transports.peer import Peer
from ...transports.restart import Restarting
from ._commands import ROOT, Look

Attach: TypeAlias = Callable[..., OrphanedTurn]
"""Takes up the process at an address: `attach_process`, or what stands for it."""

_PATIENCE = 2.0
_HOW = {"completed": How.COMPLETED, "failed": How.FAILED}
_NEWEST = 20


async def take_up(
    address: str, codex: Restarting[Peer], look: Look, attach: Attach = attach_process
) -> OrphanedTurn:
    """Take up the turn at an address.

    Raises:
        BackendLost: it is another's, or of a process that cannot be seen here.

    **Cancellation:** changes nothing.
    """
    process = ProcessAddress.parse(address)
    tools = Offspring((ROOT, process.session), {}, process.since, look)
    turn = attach(address, tell=partial(_tell, codex), tools=tools)
    await turn.look()
    return turn


async def _tell(codex: Restarting[Peer], process: ProcessAddress) -> tuple[End, str | None]:
    rpc = (await codex.get()).rpc
    thread, ended = {"threadId": process.session}, End(How.CANCELLED, Proof.PROCESS)
    try:
        await rpc.call_within(_PATIENCE, "thread/read", thread)
    except RpcError:
        # Nothing of it was written down: the room's next turn begins another.
        return ended, None
    page = {**thread, "limit": _NEWEST}
    try:
        turn = _find(await rpc.call_within(_PATIENCE, "thread/turns/list", page), process.turn)
    except RpcError:
        return ended, process.session
    how = _HOW.get(str(turn.get("status")))
    if how is not None:
        ended = End(how, Proof.PROCESS, detail=_detail(turn.get("error")))
    return ended, process.session


def _find(told: object, turn: str) -> Mapping[str, Any]:
    rows = told.get("data") if isinstance(told, dict) else None
    listed = rows if isinstance(rows, list) else ()
    return next((row for row in listed if isinstance(row, dict) and row.get("id") == turn), {})


def _detail(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else ""
