"""The probe of `claude`: the adapter over processes in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from ...abc import Backend
from ...adapters.claude import ClaudeContent
from .._probe import Probe, Work
from ..recording.claude import RecordingClaude, open_recorded

__all__ = ["ClaudeProbe", "carries"]

_UNANSWERED = "nothing answers a message: Claude can be told to stop it as soon as it is written"


def carries(answer: object, reply: str) -> bool:
    """Whether Claude's answer to a permission tells a person's reply."""
    if not isinstance(answer, Mapping):
        return False
    return reply in (answer.get("behavior"), answer.get("message"))


class ClaudeProbe(Probe):
    """`open_claude` but for the program: its connections, its restarts and its turns."""

    name = "claude"
    unable: ClassVar[Mapping[str, str]] = {
        "reach": "Claude is spoken to over the pipes of a process: whoever loses them ends the "
        "process, and a new one knows nothing of the turns of the old",
        "hold_starts": _UNANSWERED,
        "refuse_starts": "Claude refuses no message: what it cannot do is a turn that failed",
    }

    def __init__(self) -> None:
        self.claude = RecordingClaude()

    def open(self) -> AbstractAsyncContextManager[Backend[ClaudeContent]]:
        """Open it."""
        return open_recorded(self.claude)

    def open_again(self) -> AbstractAsyncContextManager[Backend[ClaudeContent]]:
        """Open it, where the processes of the one before may still work."""
        return open_recorded(self.claude)

    @property
    def works(self) -> Sequence[Work]:
        """Each message."""
        return self.claude.works

    def hold_cancels(self) -> None:
        """Do not answer an interrupt, nor obey it."""
        self.claude.hold_cancels()

    def refuse_cancels(self) -> None:
        """Answer an interrupt by an error."""
        self.claude.refuse_cancels()

    def ignore_cancels(self) -> None:
        """Answer an interrupt, and go on."""
        self.claude.ignore_cancels()

    def hold_acknowledgements(self) -> None:
        """End the turn as interrupted, and do not answer the interrupt."""
        self.claude.hold_acknowledgements()

    def end_late(self, seconds: float) -> None:
        """Answer an interrupt at once, and end the turn later."""
        self.claude.end_late(seconds)

    async def say(self, work: Work, text: str) -> None:
        """Tell a piece of the answer."""
        await self.claude.answer(work, text)

    async def ask(self, work: Work) -> None:
        """Ask for the permission to use a tool."""
        await self.claude.want_permission(work)

    def carries(self, answer: object, reply: str) -> bool:
        """Claude is answered by what it may do, or why not."""
        return carries(answer, reply)

    async def finish(self, work: Work) -> None:
        """Tell the turn's result."""
        await self.claude.finish(work)

    async def fail(self, work: Work) -> None:
        """Tell that it failed."""
        await self.claude.fail(work)

    async def say_end_again(self, work: Work) -> None:
        """Tell its result again."""
        await self.claude.say_end_again(work)

    async def leave(self, work: Work) -> None:
        """Begin a background task."""
        await self.claude.run_behind(work)

    @property
    def alive(self) -> Sequence[str]:
        """The background tasks that run."""
        return [f"task {number}" for number in self.claude.tasks]

    async def die(self) -> None:
        """End every process."""
        self.claude.die()

    async def cut(self) -> None:
        """Close the connections to processes that cannot be ended."""
        self.claude.cut()

    async def babble(self) -> None:
        """Write what is no JSON."""
        self.claude.babble()
