"""The probes of `acp`: the adapter over an agent in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from ...abc import Backend
from ...adapters.acp import AcpContent
from .._probe import Probe, Work
from ..recording.acp import QUIRKS, RecordingAcp, open_recorded

__all__ = [
    "AcpClaudeProbe",
    "AcpCodexProbe",
    "AcpCopilotProbe",
    "AcpProbe",
    "AcpQwenProbe",
    "AcpSharedProbe",
]

_PIPES = (
    "an agent is spoken to over the pipes of its process: whoever loses them ends the process, "
    "and a new one knows nothing of the prompts of the old"
)
_NO_ANSWER = (
    "nothing answers the start of a prompt: one that was written can be cancelled, and its only "
    "answer is its end"
)
_UNABLE: Mapping[str, str] = {
    "reach": _PIPES,
    "end_kept": "an agent that is gone tells nobody how its turn has ended",
    "hold_starts": _NO_ANSWER,
    "refuse_cancels": "a cancel is a notification: nothing answers it",
    "leave": "what the tools of an agent leave are processes, which are there with real ones only",
}


class AcpProbe(Probe):
    """`open_acp` but for the processes: one for each room, its prompts, its cancels.

    A cancel is a notification: there is no acknowledgement that could be held back, and one that
    is not obeyed is as good as one that was acknowledged and not obeyed.
    """

    name = "acp"
    unable: ClassVar[Mapping[str, str]] = _UNABLE
    profile: ClassVar[str] = "generic"
    shared: ClassVar[bool] = False

    def __init__(self) -> None:
        self.acp = RecordingAcp(QUIRKS[self.profile])

    def open(self) -> AbstractAsyncContextManager[Backend[AcpContent]]:
        """Open it."""
        return open_recorded(self.acp, self.profile, shared=self.shared)

    def open_again(self) -> AbstractAsyncContextManager[Backend[AcpContent]]:
        """Open it, where the agents of the one before may still work."""
        return self.open()

    @property
    def works(self) -> Sequence[Work]:
        """Each prompt."""
        return self.acp.works

    def refuse_starts(self) -> None:
        """Answer by an error whatever begins a session, or takes one up."""
        self.acp.refuse_starts()

    def hold_cancels(self) -> None:
        """Do not obey `session/cancel`."""
        self.acp.ignore_cancels()

    def ignore_cancels(self) -> None:
        """Do not obey `session/cancel`."""
        self.acp.ignore_cancels()

    def hold_acknowledgements(self) -> None:
        """Obey `session/cancel`, which nothing acknowledges."""
        self.acp.end_late(0.0)

    def end_late(self, seconds: float) -> None:
        """Obey `session/cancel` later."""
        self.acp.end_late(seconds)

    async def say(self, work: Work, text: str) -> None:
        """Tell a chunk of the agent's message."""
        self.acp.say(work, text)

    async def ask(self, work: Work) -> None:
        """Ask for permission."""
        self.acp.want_approval(work)

    def carries(self, answer: object, reply: str) -> bool:
        """A reply is the option that was selected."""
        return isinstance(answer, dict) and answer.get("optionId") == reply

    async def finish(self, work: Work) -> None:
        """Answer the prompt."""
        self.acp.finish(work)

    async def fail(self, work: Work) -> None:
        """Answer it by an error."""
        self.acp.fail(work)

    async def say_end_again(self, work: Work) -> None:
        """Answer it once more."""
        self.acp.say_end_again(work)

    async def die(self) -> None:
        """End every process."""
        self.acp.end_all()

    async def cut(self) -> None:
        """Close the connections to processes that cannot be ended."""
        self.acp.cut()

    async def babble(self) -> None:
        """Write what is no JSON."""
        self.acp.babble()


class AcpSharedProbe(AcpProbe):
    """One process for all rooms: no turn of it can be killed."""

    name = "acp-shared"
    shared = True


class AcpCopilotProbe(AcpProbe):
    """An agent that loses a cancel right behind its prompt for good."""

    name = "acp-copilot"
    profile = "copilot"


class AcpClaudeProbe(AcpProbe):
    """An agent that answers a cancel a moment before its work is over."""

    name = "acp-claude"
    profile = "claude"


class AcpCodexProbe(AcpProbe):
    """An agent that answers a cancel, and works on until its session is closed."""

    name = "acp-codex"
    profile = "codex"


class AcpQwenProbe(AcpProbe):
    """An agent that answers a cancel by an error, and only when its questions are answered."""

    name = "acp-qwen"
    profile = "qwen"
