"""How a turn of codex is interrupted: by its own id, and until codex takes it."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..._errors import BackendMisbehaved
from ...transports.jsonrpc import Connection, RpcError

_TOO_EARLY = ("no active turn", "expected active turn")
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.05


async def interrupt(
    rpc: Connection,
    thread: str,
    turn: str,
    sent: Callable[[], None],
    *,
    tries: int | None = None,
) -> None:
    """Interrupt a turn by its own id; codex refuses until it has really begun it.

    At most one interrupt is ever accepted: codex 0.163 never answers a second one.

    **Cancellation:** an interrupt that has left may still be taken.
    """
    params = {"threadId": thread, "turnId": turn}
    pause = _FIRST_PAUSE
    while tries is None or tries > 0:
        try:
            await rpc.call("turn/interrupt", params, sent=sent)
            return
        except RpcError as error:
            if not error.message.startswith(_TOO_EARLY):
                raise BackendMisbehaved(f"codex refused the interrupt: {error}") from error
        sent = _already_sent
        tries = None if tries is None else tries - 1
        await trio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _already_sent() -> None:
    """The first request that left is the one to be timed."""
