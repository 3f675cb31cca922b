"""How a turn of codex is interrupted: by its own id, and until codex takes it."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..._errors import BackendMisbehaved
from ...transports.jsonrpc import Connection, RpcError
from ...transports.pace import wait_at_most

_TOO_EARLY = ("no active turn", "expected active turn")
_SIGN_WITHIN = 0.05
_PAUSE = 0.01


async def interrupt(
    rpc: Connection,
    thread: str,
    turn: str,
    begun: trio.Event,
    sent: Callable[[], None],
    *,
    tries: int | None = None,
) -> bool:
    """Interrupt a turn; codex refuses until it has really begun it.

    `begun` is set when codex has said so. An interrupt before that is only a waste, and in the
    way of codex; but a sign that stays out must not hold the stop, so it is tried all the same.
    At most one interrupt is ever accepted: codex 0.163 never answers a second one.

    Returns:
        whether codex took it.

    **Cancellation:** an interrupt that has left may still be taken.
    """
    params = {"threadId": thread, "turnId": turn}
    while tries is None or tries > 0:
        if not begun.is_set():
            await wait_at_most(begun, _SIGN_WITHIN)
        try:
            await rpc.call("turn/interrupt", params, sent=sent)
            return True
        except RpcError as error:
            if not error.message.startswith(_TOO_EARLY):
                raise BackendMisbehaved(f"codex refused the interrupt: {error}") from error
        sent = _already_sent
        tries = None if tries is None else tries - 1
        await trio.sleep(_PAUSE)
    return False


def _already_sent() -> None:
    """The first request that left is the one to be timed."""
