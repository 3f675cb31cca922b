"""What ends processes that nobody else will end, whichever backend's turns they are."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

import attrs
import trio

from ..._budget import StopBudget
from ..._errors import BackendLost, BackendRefused
from ..._house import Entry, Orphan
from ..._records import Settlement
from ..._rooms import open_rooms
from ...abc import RemoteTurn, Request
from ...journal import Journal, open_journal
from ...journal._file import OpenTurn
from ...journal._reading import ListedTurn, list_open
from ...transports.orphans import PROCESS, attach_process
from ...transports.owners import OWNER, attach_owner

__all__ = ["compact", "recover"]

_LOOK_EVERY = 0.01


@final
class _Processes:
    """The backend of all turns that are processes of this machine, or work of such a one."""

    async def start(self, request: Request[str]) -> RemoteTurn:
        raise BackendRefused("nothing is begun here")

    async def attach(self, address: str) -> RemoteTurn:
        return attach_owner(address) if address.startswith(OWNER) else attach_process(address)


@final
@attrs.frozen
class _Journal:
    """A journal that has nothing but what is a process here."""

    _journal: Journal

    def admit(self, backend: str, room: str, turn_id: str) -> Entry:
        return self._journal.admit(backend, room, turn_id)

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        return await self._journal.take_over_where(_is_process_here)


def _is_process_here(turn: OpenTurn) -> bool:
    address = turn.address or ""
    try:
        if address.startswith(OWNER):
            # What works in the program itself is over with that, and ended by nobody else.
            return not attach_owner(address).owner.may_be_there()
        if address.startswith(PROCESS):
            attach_process(address)
            return True
    except BackendLost:
        pass
    return False


@asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[Journal, None]:
    # First as it is: an empty file would become a journal.
    await list_open(path)
    # How much is kept is for its programs to say.
    async with open_journal(path, keep_for=math.inf, keep_records=math.inf) as journal:
        yield journal
    if journal.statistics().waiting:
        raise sqlite3.OperationalError(
            f"what was done could not be written: {journal.statistics().failing}"
        )


async def recover(path: Path, budget: StopBudget, ended: list[Settlement]) -> list[ListedTurn]:
    """End what can be ended; return what is open all the same.

    Args:
        ended: is told what became of each, as soon as that is known.

    **Cancellation:** what was not settled yet is for the next one that recovers.
    """
    async with _opened(path) as journal:
        of_processes = _Journal(journal)
        async with open_rooms(
            _Processes(), budget=budget, observers=[ended.append], journal=of_processes
        ) as rooms:
            while rooms.statistics().rooms:  # noqa: ASYNC110 - rooms have no word for it
                await trio.sleep(_LOOK_EVERY)
    return await list_open(path)


async def compact(path: Path) -> int:
    """Drop what settled turns have said; return how many records are gone.

    **Cancellation:** it is done, or not.
    """
    async with _opened(path) as journal:
        return await journal.compact()
