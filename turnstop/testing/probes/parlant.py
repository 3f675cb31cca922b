"""The probe of `parlant`: an engine in memory, on the bridge. Needs the extra `aio`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

import trio

from ...abc import Backend
from ...adapters.parlant import open_parlant
from .._probe import Probe, Work
from ..recording.parlant import RecordingParlant

__all__ = ["ParlantProbe"]

_TASK = "the engine is told by cancelling its task, which is no request that could be answered"


class ParlantProbe(Probe):
    """`open_parlant` of an engine in memory."""

    name = "parlant"
    unable: ClassVar[Mapping[str, str]] = {
        "refuse_cancels": _TASK,
        "hold_acknowledgements": _TASK,
        "ask": "Parlant asks in its answer, which ends the turn; the room's next turn answers it",
        "cut": "the engine is in this process: there is no connection that could break",
        "open_again": "an engine in this process ends with it: the next one finds none",
        "restart": "an engine in this process ends with what opened it, and its sessions with it",
    }

    def __init__(self) -> None:
        self._engine: RecordingParlant | None = None

    @property
    def engine(self) -> RecordingParlant:
        """The far end, from the opening on."""
        assert self._engine is not None
        return self._engine

    def open(self) -> AbstractAsyncContextManager[Backend[str]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[str], None]:
        engine = self._engine = RecordingParlant()
        try:
            async with open_parlant(engine.prepare, library=engine.library) as backend:
                try:
                    yield backend
                finally:
                    engine.die()
        finally:
            engine.dying = True

    @property
    def works(self) -> Sequence[Work]:
        """Each message that the engine was sent."""
        return self._engine.works if self._engine else ()

    def release(self) -> None:
        """Obey."""
        self.engine.let_go()

    def hold_starts(self) -> None:
        """Take a message, and do not answer."""
        self.engine.held.clear()

    def release_starts(self) -> None:
        """Answer."""
        self.engine.held.set()

    def refuse_starts(self) -> None:
        """Raise, as where there is no such session."""
        self.engine.refuse_starts()

    def hold_cancels(self) -> None:
        """Have the processing task swallow its cancellation."""
        self.engine.swallows = True

    def ignore_cancels(self) -> None:
        """Say `cancelled`, and have the preamble generated on."""
        self.engine.preamble_swallows = True

    def end_late(self, seconds: float) -> None:
        """Have the processing task clean up for some time."""
        self.engine.ends_after = seconds

    async def say(self, work: Work, text: str) -> None:
        """Say a piece of a message that is streamed."""
        self.engine.order(work, "say", text)
        await trio.sleep(0.001)

    async def finish(self, work: Work) -> None:
        """Say `ready`."""
        self.engine.order(work, "finish")
        await trio.sleep(0.001)

    async def fail(self, work: Work) -> None:
        """Say `ready`, and then `error`, as the engine does; and leave the preamble behind."""
        self.engine.order(work, "fail", "no flour left")
        await trio.sleep(0.001)

    async def say_end_again(self, work: Work) -> None:
        """Say `cancelled` and `ready` again, in the same session."""
        self.engine.say_end_again(work)

    async def leave(self, work: Work) -> None:
        """Call a tool, which nobody ends."""
        self.engine.call_tool(work)
        await trio.sleep(0.001)

    @property
    def alive(self) -> Sequence[str]:
        """The tools that run."""
        return [*self.engine.tools]

    async def die(self) -> None:
        """End the server."""
        self.engine.die()

    async def babble(self) -> None:
        """Have what makes no sense in the place of the events."""
        self.engine.babble()
