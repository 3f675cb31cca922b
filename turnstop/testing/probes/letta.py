"""The probes of `letta`: rooms as conversations of one agent, and rooms with an agent each.

Needs the extra `letta`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

from ...abc import Backend
from ...adapters.letta import LettaContent, open_letta
from .._probe import Probe, Work
from ..recording.letta import URL, RecordingLetta

__all__ = ["LettaAgentProbe", "LettaProbe"]


class LettaProbe(Probe):
    """`open_letta` of one agent, in which each room has a conversation of its own."""

    name = "letta"
    unable: ClassVar[Mapping[str, str]] = {
        "leave": "Letta has no word for what a run starts and leaves behind",
        "say_end_again": "a stop reason is said in the stream of its own run, which is over then",
    }

    def __init__(self) -> None:
        self._server: RecordingLetta | None = None

    @property
    def server(self) -> RecordingLetta:
        """The far end, from the opening on."""
        assert self._server is not None
        return self._server

    def open(self) -> AbstractAsyncContextManager[Backend[LettaContent]]:
        """Open it."""
        return self._open()

    def _letta(self, server: RecordingLetta) -> AbstractAsyncContextManager[Backend[LettaContent]]:
        return open_letta(URL, agent_id="agent-1", transport=server)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[LettaContent], None]:
        self._server = RecordingLetta(self.far_end)
        try:
            async with self._letta(self._server) as backend:
                yield backend
        finally:
            self._server.die()

    @property
    def works(self) -> Sequence[Work]:
        """Each message that the server was sent."""
        return self._server.works if self._server else ()

    def hold_starts(self) -> None:
        """Keep back the stream, and with it the first ping."""
        self.server.hold_starts()

    def release_starts(self) -> None:
        """Let it go."""
        self.server.release_starts()

    def refuse_starts(self) -> None:
        """Answer messages by HTTP 404."""
        self.server.refuse_starts()

    def hold_cancels(self) -> None:
        """Neither answer nor obey."""
        self.server.cancels = "held"

    def refuse_cancels(self) -> None:
        """Answer by HTTP 500."""
        self.server.cancels = "refused"

    def ignore_cancels(self) -> None:
        """Answer `cancelled`, and go on: the model says nothing."""
        self.server.cancels = "ignored"

    def hold_acknowledgements(self) -> None:
        """Obey, and do not answer."""
        self.server.cancels = "unanswered"

    def end_late(self, seconds: float) -> None:
        """Answer `cancelled` at once; the model's next chunk comes later."""
        self.server.ends_after = seconds

    async def say(self, work: Work, text: str) -> None:
        """Have the model say a chunk."""
        self.server.say(work, text)

    async def ask(self, work: Work) -> None:
        """Have the model call a tool that needs an approval."""
        self.server.ask(work)

    def carries(self, answer: object, reply: str) -> bool:
        """Whether the approval's return says so."""
        return isinstance(answer, Mapping) and answer["approve"] is (reply in ("approve", "yes"))

    async def finish(self, work: Work) -> None:
        """Say `end_turn`, and end."""
        self.server.end(work)

    async def fail(self, work: Work) -> None:
        """Say `llm_api_error` and what went wrong, and end."""
        self.server.end(work, "llm_api_error", "no flour left")

    async def die(self) -> None:
        """Break every connection and end all work; the server is there again at once."""
        self.server.die()

    async def cut(self) -> None:
        """Break every connection; the runs go on."""
        self.server.cut()

    async def babble(self) -> None:
        """Send what is not JSON into every stream."""
        self.server.babble()


class LettaAgentProbe(LettaProbe):
    """`open_letta` with an agent a room, which speaks in its own history."""

    name = "letta-agent"

    def __init__(self) -> None:
        super().__init__()
        self._agents = 0

    async def _make_agent(self, room: str) -> str:
        self._agents += 1
        return f"agent-{self._agents}"

    def _letta(self, server: RecordingLetta) -> AbstractAsyncContextManager[Backend[LettaContent]]:
        return open_letta(URL, agent_id=self._make_agent, conversations=False, transport=server)
