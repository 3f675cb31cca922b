"""The probes of `a2a`: an agent that streams, one that is polled, and one that answers at its end.

Needs the extra `a2a`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

from ...abc import Backend
from ...adapters.a2a import A2AContent, open_a2a
from .._probe import Probe, Work
from ..recording.a2a import URL, Kind, RecordingAgent

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


class _Levers(Probe):
    """What agents of every kind can do."""

    kind: ClassVar[Kind]

    def __init__(self) -> None:
        self._agent: RecordingAgent | None = None

    @property
    def agent(self) -> RecordingAgent:
        """The far end, from the opening on."""
        assert self._agent is not None
        return self._agent

    def open(self) -> AbstractAsyncContextManager[Backend[A2AContent]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[A2AContent], None]:
        self._agent = RecordingAgent(self.kind, self.far_end)
        try:
            async with open_a2a(URL, transport=self._agent) as backend:
                yield backend
        finally:
            self._agent.die()

    @property
    def works(self) -> Sequence[Work]:
        """Each message that the agent was sent."""
        return self._agent.works if self._agent else ()

    def hold_starts(self) -> None:
        """Keep back the stream's first event, or the answer; and publish no task."""
        self.agent.hold_starts()

    def release_starts(self) -> None:
        """Let them go."""
        self.agent.release_starts()

    def refuse_starts(self) -> None:
        """Answer messages by an error."""
        self.agent.refuse_starts()

    def hold_cancels(self) -> None:
        """Neither answer nor obey."""
        self.agent.cancels = "held"

    def refuse_cancels(self) -> None:
        """Answer by an error."""
        self.agent.cancels = "refused"

    def ignore_cancels(self) -> None:
        """Say CANCELED, and go on."""
        self.agent.cancels = "ignored"

    def hold_acknowledgements(self) -> None:
        """Obey, and do not answer."""
        self.agent.cancels = "unanswered"

    def end_late(self, seconds: float) -> None:
        """Say CANCELED at once, and have the executor clean up for some time."""
        self.agent.ends_after = seconds

    async def finish(self, work: Work) -> None:
        """Say COMPLETED, and end."""
        self.agent.end(work, "COMPLETED")

    async def fail(self, work: Work) -> None:
        """Say FAILED, and end."""
        self.agent.end(work, "FAILED", "no flour left")

    async def die(self) -> None:
        """Break every connection; the agent is there again at once, and knows nothing."""
        self.agent.die()

    async def cut(self) -> None:
        """Break every connection; the agent works on."""
        self.agent.cut()

    async def babble(self) -> None:
        """Send what is not JSON into every stream."""
        self.agent.babble()


class A2AProbe(_Levers):
    """`open_a2a` of an agent that streams."""

    name = "a2a"
    kind = "streaming"
    unable = _NOT_HERE

    async def say(self, work: Work, text: str) -> None:
        """Say an artifact."""
        self.agent.say(work, text)

    async def say_end_again(self, work: Work) -> None:
        """Say the last state again, in the stream that its conversation has now."""
        self.agent.say_end_again(work)


class A2APollingProbe(_Levers):
    """`open_a2a` of an agent that answers a message at once, and is then asked about its task."""

    name = "a2a-polling"
    kind = "polling"
    unable: ClassVar = {**_NOT_HERE, **_CLAIMS}

    async def say(self, work: Work, text: str) -> None:
        """Add an artifact to the task."""
        self.agent.say(work, text)


class A2APlainProbe(_Levers):
    """`open_a2a` of an agent that answers a message when its work is over."""

    name = "a2a-plain"
    kind = "plain"
    unable: ClassVar = {
        **_NOT_HERE,
        **_CLAIMS,
        "say": "what an agent says that answers when its work is over is heard only then",
    }
