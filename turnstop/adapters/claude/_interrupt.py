"""How a turn of Claude is interrupted."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..._errors import BackendMisbehaved
from ...transports.jsonrpc import Connection, RpcError
from ...transports.pace import wait_at_most

_SIGN_WITHIN = 1.0
_END_WITHIN = 0.25


async def interrupt(
    rpc: Connection, begun: trio.Event, over: trio.Event, sent: Callable[[], None]
) -> None:
    """Interrupt the turn that runs, or cancel the message that waits to become one.

    One that Claude has read and not yet begun is cancelled as a queued message. A Claude that knows
    no such thing, which its answer shows, acknowledges an interrupt that comes before the turn has
    begun, and goes on: it is told once more when it has.

    `begun` is set when Claude has said that it begins, `over` when the turn was seen to end.

    **Cancellation:** an interrupt that has left may still be taken.
    """
    early = not begun.is_set()
    if await _tell(rpc, sent) or not early:
        return
    await wait_at_most(begun, _SIGN_WITHIN)
    if not await wait_at_most(over, _END_WITHIN):
        await _tell(rpc, lambda: None)


async def _tell(rpc: Connection, sent: Callable[[], None]) -> bool:
    """Whether it was understood."""
    try:
        answer = await rpc.call("interrupt", {"cancel_queued": True}, sent=sent)
    except RpcError as error:
        raise BackendMisbehaved(f"claude refused the interrupt: {error}") from error
    return isinstance(answer, dict) and "cancelled" in answer
