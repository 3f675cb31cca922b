"""The probe of `copilot`: the adapter, and the SDK but for its threads, over a CLI in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from ...abc import Backend
from ...adapters.copilot import CopilotContent
from ...adapters.copilot._sdk import check_sdk
from .._probe import Probe, Work
from ..recording.copilot import RecordingCopilot, open_recorded

__all__ = ["CopilotProbe", "carries"]

# An SDK that `open_copilot` refuses shows nothing of it.
check_sdk()

_KINDS = {"allow": "approve-once", "deny": "reject"}


def carries(answer: object, reply: str) -> bool:
    """Whether Copilot's answer to a permission tells a person's reply."""
    if not isinstance(answer, Mapping):
        return False
    return answer.get("kind") == _KINDS.get(reply, "reject") and (
        reply in _KINDS or answer.get("feedback") == reply
    )


class CopilotProbe(Probe):
    """`open_copilot` but for the program: its connections, its restarts and its turns."""

    name = "copilot"
    unable: ClassVar[Mapping[str, str]] = {
        "reach": "Copilot is spoken to over the pipes of its process: whoever loses them ends the "
        "process, and a new one knows nothing of the turns of the old",
    }

    def __init__(self) -> None:
        self.copilot = RecordingCopilot()

    def open(self) -> AbstractAsyncContextManager[Backend[CopilotContent]]:
        """Open it."""
        return open_recorded(self.copilot)

    def open_again(self) -> AbstractAsyncContextManager[Backend[CopilotContent]]:
        """Open it once more, where the one before may still work."""
        return open_recorded(self.copilot)

    @property
    def works(self) -> Sequence[Work]:
        """Each message."""
        return self.copilot.works

    def hold_starts(self) -> None:
        """Take messages, and do not answer them."""
        self.copilot.hold_starts()

    def release_starts(self) -> None:
        """Answer them."""
        self.copilot.release_starts()

    def refuse_starts(self) -> None:
        """Answer messages by an error."""
        self.copilot.refuse_starts()

    def hold_cancels(self) -> None:
        """Do not answer an abort, nor obey it."""
        self.copilot.hold_cancels()

    def refuse_cancels(self) -> None:
        """Answer an abort by an error."""
        self.copilot.refuse_cancels()

    def ignore_cancels(self) -> None:
        """Answer an abort, and go on."""
        self.copilot.ignore_cancels()

    def hold_acknowledgements(self) -> None:
        """Obey an abort, and do not answer it."""
        self.copilot.hold_acknowledgements()

    def end_late(self, seconds: float) -> None:
        """Answer an abort at once, and obey it later."""
        self.copilot.end_late(seconds)

    async def say(self, work: Work, text: str) -> None:
        """Tell a piece of the answer."""
        await self.copilot.answer(work, text)

    async def ask(self, work: Work) -> None:
        """Ask for the permission to run a command."""
        await self.copilot.want_permission(work)

    def carries(self, answer: object, reply: str) -> bool:
        """Copilot is answered by a decision, and why."""
        return carries(answer, reply)

    async def finish(self, work: Work) -> None:
        """Complete it."""
        await self.copilot.finish(work)

    async def fail(self, work: Work) -> None:
        """Tell that it failed."""
        await self.copilot.fail(work)

    async def say_end_again(self, work: Work) -> None:
        """Tell its idle again."""
        await self.copilot.say_end_again(work)

    async def leave(self, work: Work) -> None:
        """Begin a background task."""
        await self.copilot.run_behind(work)

    @property
    def alive(self) -> Sequence[str]:
        """The background tasks that run."""
        return [f"task {number}" for number in self.copilot.tasks]

    async def die(self) -> None:
        """End every process."""
        self.copilot.die()

    async def cut(self) -> None:
        """Close the connections to processes that cannot be ended."""
        self.copilot.cut()

    async def babble(self) -> None:
        """Write what is no message."""
        self.copilot.babble()
