"""The probe of `opencode`: the adapter over a server in memory. Needs the extra `opencode`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from ...abc import Backend
from ...adapters.opencode import OpenCodeContent, open_opencode
from .._probe import Probe, Work
from ..recording.opencode import URL, RecordingOpenCode

__all__ = ["OpenCodeProbe"]


class OpenCodeProbe(Probe):
    """`open_opencode` of a server that is there."""

    name = "opencode"

    def __init__(self) -> None:
        self._server: RecordingOpenCode | None = None

    @property
    def server(self) -> RecordingOpenCode:
        """The far end, from the opening on."""
        assert self._server is not None
        return self._server

    def open(self) -> AbstractAsyncContextManager[Backend[OpenCodeContent]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[OpenCodeContent], None]:
        self._server = RecordingOpenCode(self.far_end)
        try:
            async with open_opencode(URL, transport=self._server) as backend:
                yield backend
        finally:
            self._server.die()

    @property
    def works(self) -> Sequence[Work]:
        """Each message that the server was sent."""
        return self._server.works if self._server else ()

    def hold_starts(self) -> None:
        """Take messages, and do not answer them."""
        self.server.hold_starts()

    def release_starts(self) -> None:
        """Answer them."""
        self.server.release_starts()

    def refuse_starts(self) -> None:
        """Answer messages by an error."""
        self.server.refuse_starts()

    def hold_cancels(self) -> None:
        """Neither answer nor obey an abort."""
        self.server.cancels = "held"

    def refuse_cancels(self) -> None:
        """Answer an abort by an error."""
        self.server.cancels = "refused"

    def ignore_cancels(self) -> None:
        """Answer an abort by true, as ever, and go on."""
        self.server.cancels = "ignored"

    def hold_acknowledgements(self) -> None:
        """Obey, and do not answer."""
        self.server.cancels = "unanswered"

    def end_late(self, seconds: float) -> None:
        """Answer an abort at once, and end the run later."""
        self.server.ends_after = seconds

    async def say(self, work: Work, text: str) -> None:
        """Say a piece of the answer."""
        self.server.say(work, text)

    async def ask(self, work: Work) -> None:
        """Ask for a permission."""
        self.server.ask(work)

    async def finish(self, work: Work) -> None:
        """Complete the answer, and turn idle."""
        self.server.finish(work)

    async def fail(self, work: Work) -> None:
        """End the answer by an error, and turn idle."""
        self.server.fail(work)

    async def say_end_again(self, work: Work) -> None:
        """Tell of its answer again, and that the session is idle."""
        self.server.say_end_again(work)

    async def leave(self, work: Work) -> None:
        """Set a sub-agent to work."""
        self.server.set_to_work(work)

    @property
    def alive(self) -> Sequence[str]:
        """The sub-agents that work."""
        return self.server.alive if self._server else ()

    async def die(self) -> None:
        """Break every connection; the server is there again at once, with its sessions."""
        self.server.die()

    async def cut(self) -> None:
        """Break every connection; the server works on."""
        self.server.cut()

    async def babble(self) -> None:
        """Send what is no event into every stream."""
        self.server.babble()
