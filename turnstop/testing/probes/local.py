"""The probes of `local`: a function of this program, async or in a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from ...abc import Backend
from ...adapters.local import open_local
from .._probe import Probe, Work
from ..recording.local import RecordingFunction

__all__ = ["LocalProbe"]

_NO_START = "a function is called: there is no start that could be answered late, or refused"


class LocalProbe(Probe):
    """`open_local` of an async function."""

    name = "local"
    unable = {
        "hold_starts": _NO_START,
        "refuse_starts": _NO_START,
        "refuse_cancels": "Trio's cancellation is no request that could be answered by an error",
        "ignore_cancels": "only the function's return acknowledges a cancellation",
        "hold_acknowledgements": "the function's return is both the end and the acknowledgement",
        "say_end_again": "a function returns once",
        "leave": "what a function starts and leaves is its program's own",
        "die": "a function has no process of its own that could be lost",
        "babble": "a function speaks no protocol",
    }

    def __init__(self) -> None:
        self.function = RecordingFunction()

    def open(self) -> AbstractAsyncContextManager[Backend[object]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[object], None]:
        try:
            async with open_local(self.function) as local:
                yield local
        finally:
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
