"""The probe of `opencode`: the adapter over a server in memory. Needs the extra `opencode`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from ...abc import Backend
from ...adapters.opencode import OpenCodeContent, open_opencode
from .._probe import Work
from ..recording.opencode import URL, RecordingOpenCode
from ._far_end import FarEndProbe

__all__ = ["OpenCodeProbe"]


class OpenCodeProbe(FarEndProbe[RecordingOpenCode]):
    """`open_opencode` of a server that is there."""

    name = "opencode"

    def begin(self) -> RecordingOpenCode:
        """A server."""
        return RecordingOpenCode(self.far_end)

    def connect(
        self, server: RecordingOpenCode
    ) -> AbstractAsyncContextManager[Backend[OpenCodeContent]]:
        """Open the backend of it."""
        return open_opencode(URL, transport=server)

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
