"""A turn whose CLI belonged to another process, which is gone.

A CLI whose pipes break ends by itself, and so do commands that end with it. What it has written
down of the session until then, another CLI reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import trio

from ...abc import End, How, Proof
from ...transports.orphans import OrphanedTurn, ProcessAddress, attach_process
from ...transports.pace import call_unless
from ...transports.restart import Restarting
from ._cli import Cli
from ._events import SessionEvent, has_completed
from ._session import CopilotSession, Settings, look_back

Attach: TypeAlias = Callable[..., OrphanedTurn]
"""Takes up the process at an address: `attach_process`, or what stands for it."""

_TOLD_WITHIN: Final = 2.0


async def take_up_turn(
    address: str, clis: Restarting[Cli], settings: Settings, attach: Attach = attach_process
) -> OrphanedTurn:
    """Take up the turn at an address.

    Raises:
        BackendLost: it is another's, or of a process that cannot be seen here.

    **Cancellation:** its session may be loaded.
    """
    turn = attach(address, tell=partial(_tell, clis, settings))
    await turn.look()
    return turn


async def _tell(
    clis: Restarting[Cli], settings: Settings, process: ProcessAddress
) -> tuple[End, CopilotSession]:
    # Copilot may not have written it down: it is begun anew then, where it is to go on.
    session = CopilotSession(process.session)
    completed = has_completed(await _read_back(clis.current, session, settings), process.turn)
    return End(How.COMPLETED if completed else How.CANCELLED, Proof.PROCESS), session


async def _read_back(
    cli: Cli | None, session: CopilotSession, settings: Settings
) -> Sequence[SessionEvent]:
    if cli is None:
        return ()
    look = partial(look_back, cli, session, settings)
    try:
        return await call_unless(trio.Event(), look, within=_TOLD_WITHIN)
    except Exception:
        return ()  # The turn is over, whether or not anybody can tell how it was.
