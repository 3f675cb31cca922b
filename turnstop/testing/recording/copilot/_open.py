"""The Copilot adapter over processes in memory: all of it but the pipes and the program."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import trio

from ...._errors import BackendLost
from ...._service import open_service
from ....abc import Backend
from ....adapters.copilot import CopilotContent, _sdk
from ....adapters.copilot._cli import Cli
from ....adapters.copilot._open import _Backend
from ....adapters.copilot._session import Settings
from ....transports.aio import Aio, open_aio
from ....transports.orphans import OrphanedTurn, Tell
from ....transports.pace import open_farewell
from ....transports.proctable import Marked
from ....transports.reading import open_reading
from ....transports.restart import open_restarting
from .._left import LeftTurn, find_process, to_address
from ._cli import FarCli
from ._recording import RecordingCopilot
from ._sdk import connect


@asynccontextmanager
async def open_recorded(
    copilot: RecordingCopilot, **session: Any
) -> AsyncGenerator[Backend[CopilotContent], None]:
    """Open the adapter over it; a process that is lost is begun anew, as with `open_copilot`.

    Takes the keywords of a session. No tools are run, and none are looked for in the process
    table. What another that was opened over the same Copilot has left is taken up.

    **Cancellation:** as `open_copilot`, but takes no time.
    """
    async with open_service() as service, open_aio() as aio:
        begun, before = len(copilot.processes), copilot.later
        copilot.later = service  # type: ignore[assignment]
        try:
            async with open_restarting(partial(_connect, aio, copilot)) as clis:
                await clis.get()
                yield _Backend(
                    aio, clis, Settings(session), _find_none, partial(_find_left, copilot)
                )
        finally:
            copilot.end_all(begun)
            copilot.later = before


def _find_left(copilot: RecordingCopilot, address: str, *, tell: Tell) -> OrphanedTurn:
    place, cli = find_process(address, copilot.processes)
    end = partial(copilot.end_left, cli)
    return cast("OrphanedTurn", LeftTurn(place, cli, copilot.works, end, tell))


async def _find_none(marks: Mapping[str, str]) -> Sequence[Marked]:
    await trio.lowlevel.checkpoint()
    return ()


@asynccontextmanager
async def _connect(aio: Aio, copilot: RecordingCopilot) -> AsyncGenerator[Cli, None]:
    far = copilot.begin()
    cli: Cli | None = None
    try:
        async with open_reading() as reading:
            address = to_address(len(copilot.processes))
            cli = Cli(aio, reading, address, far.broken, partial(_loss, far))
            far.note = cli.note
            cli.client = await aio.call_unowned(connect, far.rpc)
            async with open_farewell(
                partial(aio.call_unowned, _sdk.disconnect, cli.client), within=1.0
            ):
                yield cli
    finally:
        # As with a real one, its end comes first and is told second.
        copilot.put_down(far)
        if cli is not None:
            cli.declare_lost()


def _loss(far: FarCli) -> BackendLost:
    fate = "has ended" if far.ended else "is still running"
    why = f"; {far.why}" if far.why else ""
    error = BackendLost(f"copilot {fate}{why}", gone=far.ended)
    error.__cause__ = far.why
    return error
