"""A function of this program as a bench: it waits, or runs a program."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from ..._unwrap import open_private_nursery
from .model import MOMENTS, Moment, Runner, RunnerName, Target, Work

if TYPE_CHECKING:
    from ...adapters.local import Work as LocalWork

_PROGRAM = ("sleep", "60")


@attrs.define(eq=False)
class _Asked:
    """One prompt, and what the function did for it."""

    word: str
    began: trio.Event = attrs.field(factory=trio.Event)
    finish: trio.Event = attrs.field(factory=trio.Event)
    work: list[Work] = attrs.field(factory=list)


class LocalTarget:
    """The function, and what it did."""

    races_within = 0.0

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._asked: dict[str, _Asked] = {}

    async def agent(self, work: LocalWork) -> None:
        """The function."""
        asked = self._asked[str(work.content)]
        began_at = trio.current_time()
        asked.work.append(Work("function", began_at))
        try:
            if asked.word == "tool":
                await self._run_program(asked)
            elif asked.word != "answer":
                asked.began.set()
                await asked.finish.wait()
        finally:
            asked.work[0] = Work("function", began_at, trio.current_time())

    async def _run_program(self, asked: _Asked) -> None:
        began_at = trio.current_time()
        async with open_private_nursery() as nursery:
            process = await nursery.start(partial(trio.run_process, _PROGRAM))
            asked.work.append(Work(f"{process.pid} sleep", began_at, None, process.pid))
            asked.began.set()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await process.wait()
                ended_at = trio.current_time()
                asked.work[1] = Work(f"{process.pid} sleep", began_at, ended_at, process.pid)

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """The token is the prompt."""
        token = f"t{next(self._numbers)}"
        self._asked[token] = _Asked(moment or "answer")
        return token, token

    async def reached(self, token: str, moment: Moment) -> None:
        """Wait until the function waits."""
        await self._asked[token].began.wait()

    def finish(self, token: str) -> None:
        """Let the function return."""
        self._asked[token].finish.set()

    def work(self, token: str) -> Sequence[Work]:
        """The function, and its program."""
        return tuple(self._asked[token].work)

    def faults(self, token: str) -> Sequence[str]:
        """None: it asks no model."""
        return ()

    def sweep(self, token: str) -> None:
        """Let the function return."""
        self.finish(token)


class LocalBench:
    """`turnstop.adapters.local`."""

    name = "local"
    moments: tuple[Moment, ...] = tuple(moment for moment in MOMENTS if moment != "permission")
    rooms: int | None = None
    runners: tuple[RunnerName, ...] = ("turnstop",)

    async def versions(self) -> Mapping[str, str]:
        """Nothing but what every run names."""
        return {}

    @asynccontextmanager
    async def open_target(self) -> AsyncGenerator[Target, None]:
        """The function."""
        yield LocalTarget()

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """Rooms of it."""
        assert isinstance(target, LocalTarget)
        return _open_ours(target)


@asynccontextmanager
async def _open_ours(target: LocalTarget) -> AsyncGenerator[Runner, None]:
    from ...adapters.local import open_local
    from .ours import open_ours

    async with open_local(target.agent) as local, open_ours(local) as ours:
        yield ours
