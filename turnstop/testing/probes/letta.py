"""The probes of `letta`: rooms as conversations of one agent, and rooms with an agent each.

Needs the extra `letta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from ...abc import Backend
from ...adapters.letta import LettaContent, open_letta
from ...adapters.letta._sdk import check_sdk
from .._probe import Work
from ..recording.letta import URL, RecordingLetta
from ._far_end import FarEndProbe

__all__ = ["LettaAgentProbe", "LettaProbe"]

# Said once, and not of each promise.
check_sdk()


class LettaProbe(FarEndProbe[RecordingLetta]):
    """`open_letta` of one agent, in which each room has a conversation of its own.

    A cancel that is ignored, or obeyed late, is answered `cancelled` all the same: the stream goes
    on for as long as the model says nothing.
    """

    name = "letta"
    unable: ClassVar[Mapping[str, str]] = {
        "leave": "Letta has no word for what a run starts and leaves behind",
        "say_end_again": "a stop reason is said in the stream of its own run, which is over then",
    }

    def begin(self) -> RecordingLetta:
        """A server."""
        return RecordingLetta(self.far_end)

    def connect(self, server: RecordingLetta) -> AbstractAsyncContextManager[Backend[LettaContent]]:
        """Open the backend of one agent."""
        return open_letta(URL, agent_id="agent-1", transport=server)

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


class LettaAgentProbe(LettaProbe):
    """`open_letta` with an agent a room, which speaks in its own history."""

    name = "letta-agent"

    def __init__(self) -> None:
        super().__init__()
        self._agents = 0

    async def _make_agent(self, room: str) -> str:
        self._agents += 1
        return f"agent-{self._agents}"

    def connect(self, server: RecordingLetta) -> AbstractAsyncContextManager[Backend[LettaContent]]:
        """Open the backend of many."""
        return open_letta(URL, agent_id=self._make_agent, conversations=False, transport=server)
