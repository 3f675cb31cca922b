"""The probes of `a2a`: an agent that streams, one that is polled, and one that answers at its end.

Needs the extra `a2a`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from ...abc import Backend
from ...adapters.a2a import A2AContent, open_a2a
from .._probe import Work
from ..recording.a2a import URL, Kind, RecordingAgent
from ._far_end import FarEndProbe

__all__ = ["A2APlainProbe", "A2APollingProbe", "A2AProbe"]

_NOT_HERE = {
    "ask": "a task that asks for input ends its turn as completed; the room's next turn answers it",
    "leave": "A2A has no word for what a task starts and leaves behind",
}
_CLAIMS = {
    "end_seen": "an agent that does not stream says CANCELED while its executor may still work: "
    "nothing shows the end, and the stop is unconfirmed at once",
    "say_end_again": "a state that is asked for is said as often as it is asked for",
}


class _Levers(FarEndProbe[RecordingAgent]):
    """What agents of every kind can do."""

    kind: ClassVar[Kind]

    def begin(self) -> RecordingAgent:
        """An agent of this kind."""
        return RecordingAgent(self.kind, self.far_end)

    def connect(self, server: RecordingAgent) -> AbstractAsyncContextManager[Backend[A2AContent]]:
        """Open the backend of it."""
        return open_a2a(URL, transport=server)

    async def finish(self, work: Work) -> None:
        """Say COMPLETED, and end."""
        self.server.end(work, "COMPLETED")

    async def fail(self, work: Work) -> None:
        """Say FAILED, and end."""
        self.server.end(work, "FAILED", "no flour left")


class A2AProbe(_Levers):
    """`open_a2a` of an agent that streams."""

    name = "a2a"
    kind = "streaming"
    unable = _NOT_HERE

    async def say(self, work: Work, text: str) -> None:
        """Say an artifact."""
        self.server.say(work, text)

    async def say_end_again(self, work: Work) -> None:
        """Say the last state again, in the stream that its conversation has now."""
        self.server.say_end_again(work)


class A2APollingProbe(_Levers):
    """`open_a2a` of an agent that answers a message at once, and is then asked about its task."""

    name = "a2a-polling"
    kind = "polling"
    unable: ClassVar = {**_NOT_HERE, **_CLAIMS}

    async def say(self, work: Work, text: str) -> None:
        """Add an artifact to the task."""
        self.server.say(work, text)


class A2APlainProbe(_Levers):
    """`open_a2a` of an agent that answers a message when its work is over."""

    name = "a2a-plain"
    kind = "plain"
    unable: ClassVar = {
        **_NOT_HERE,
        **_CLAIMS,
        "say": "what an agent says that answers when its work is over is heard only then",
    }
