"""The probes of `local`: a function of this program, async or in a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

from ..._budget import StopBudget
from ...abc import Backend
from ...adapters.local import open_local
from .._probe import Probe, Work
from ..recording.local import RecordingFunction
from ..recording.thread import RecordingThread

__all__ = ["LocalProbe", "LocalThreadProbe"]

_NO_START = "a function is called: there is no start that could be answered late, or refused"
_UNABLE = {
    "hold_starts": _NO_START,
    "refuse_starts": _NO_START,
    "say_end_again": "a function returns once",
    "leave": "what a function starts and leaves is its program's own",
    "open_again": "a function ends with its process: the next one finds none",
    "die": "a function has no process of its own that could be lost",
    "cut": "a function has no connection that could break",
    "babble": "a function speaks no protocol",
}


class _FunctionProbe(Probe):
    function: RecordingFunction | RecordingThread

    def open(self) -> AbstractAsyncContextManager[Backend[object]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[object], None]:
        async with open_local(self.function) as local:
            yield local

    def release(self) -> None:
        """Obey."""
        self.function.let_go()

    @property
    def works(self) -> Sequence[Work]:
        """Each call of the function."""
        return self.function.works

    def hold_cancels(self) -> None:
        """Go on until told to finish."""
        self.function.obeys_after = None

    def end_late(self, seconds: float) -> None:
        """Take some time to clean up."""
        self.function.obeys_after = seconds

    async def say(self, work: Work, text: str) -> None:
        """Emit a text."""
        await self.function.order(work, "say", text)

    async def ask(self, work: Work) -> None:
        """Ask through the turn."""
        await self.function.order(work, "ask", "")

    async def finish(self, work: Work) -> None:
        """Return."""
        await self.function.order(work, "finish", "")

    async def fail(self, work: Work) -> None:
        """Raise."""
        await self.function.order(work, "fail", "")


class LocalProbe(_FunctionProbe):
    """`open_local` of an async function, under virtual time."""

    name = "local"
    unable: ClassVar[Mapping[str, str]] = {
        **_UNABLE,
        "refuse_cancels": "Trio's cancellation is no request that could be answered by an error",
        "ignore_cancels": "only the function's return acknowledges a cancellation",
        "hold_acknowledgements": "the function's return is both the end and the acknowledgement",
    }

    def __init__(self) -> None:
        self.function = RecordingFunction()


class LocalThreadProbe(_FunctionProbe):
    """`open_local` of a blocking function, in real time."""

    name = "local-thread"
    clock = "real"
    budget = StopBudget(cancel_within=1.0, kill_within=0.3)
    unable: ClassVar[Mapping[str, str]] = {
        **_UNABLE,
        "refuse_cancels": "a thread is told by a flag, which nothing answers",
        "hold_acknowledgements": "a thread is told by a flag, which nothing answers",
    }

    def __init__(self) -> None:
        self.function = RecordingThread()

    def ignore_cancels(self) -> None:
        """Never come to a checkpoint again: the flag is set, and that is all there is."""
        self.function.obeys_after = None
