"""The probe of `codex`: the adapter over an app server in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from ...abc import Backend
from ...adapters.codex import CodexContent
from .._probe import Probe, Work
from ..recording.codex import RecordingCodex, open_recorded

__all__ = ["CodexProbe"]


class CodexProbe(Probe):
    """`open_codex` but for the program: its connection, its restarts and its turns.

    codex refuses an interrupt until it has begun the turn, and the adapter repeats it until then:
    one that comes too early does not count as told.
    """

    name = "codex"
    unable: ClassVar[Mapping[str, str]] = {
        "reach": "codex is spoken to over the pipes of its process: whoever loses them ends the "
        "process, and a new one knows nothing of the turns of the old",
    }

    def __init__(self) -> None:
        self.codex = RecordingCodex()

    def open(self) -> AbstractAsyncContextManager[Backend[CodexContent]]:
        """Open it."""
        return open_recorded(self.codex)

    def open_again(self) -> AbstractAsyncContextManager[Backend[CodexContent]]:
        """Open it in the same home, where the one before may still work."""
        return open_recorded(self.codex.next())

    @property
    def works(self) -> Sequence[Work]:
        """Each turn that was asked for."""
        return self.codex.works

    def hold_starts(self) -> None:
        """Keep the answers to `turn/start` back."""
        self.codex.hold_starts()

    def release_starts(self) -> None:
        """Send them."""
        self.codex.release_starts()

    def refuse_starts(self) -> None:
        """Answer `turn/start` by an error."""
        self.codex.refuse_starts()

    def hold_cancels(self) -> None:
        """Do not answer `turn/interrupt`, nor obey it."""
        self.codex.hold_cancels()

    def refuse_cancels(self) -> None:
        """Answer `turn/interrupt` by an error."""
        self.codex.refuse_cancels()

    def ignore_cancels(self) -> None:
        """Answer `turn/interrupt`, and go on."""
        self.codex.ignore_cancels()

    def hold_acknowledgements(self) -> None:
        """Complete the turn as interrupted, and do not answer `turn/interrupt`."""
        self.codex.hold_acknowledgements()

    def end_late(self, seconds: float) -> None:
        """Answer `turn/interrupt` at once, and complete the turn later."""
        self.codex.end_late(seconds)

    async def say(self, work: Work, text: str) -> None:
        """Tell a delta of the agent's message."""
        await self.codex.answer(work, text)

    async def ask(self, work: Work) -> None:
        """Ask for the approval of a command."""
        await self.codex.want_approval(work)

    async def finish(self, work: Work) -> None:
        """Complete the turn."""
        await self.codex.finish(work)

    async def fail(self, work: Work) -> None:
        """Complete the turn as failed."""
        await self.codex.fail(work)

    async def say_end_again(self, work: Work) -> None:
        """Send its `turn/completed` again."""
        await self.codex.say_end_again(work)

    async def leave(self, work: Work) -> None:
        """Set a sub-agent to work, and begin a shell command."""
        await self.codex.set_to_work(work)
        await self.codex.run_command(work)

    @property
    def alive(self) -> Sequence[str]:
        """The sub-agents that work, and the commands that run."""
        return self.codex.alive

    async def die(self) -> None:
        """End the process."""
        self.codex.end()

    async def cut(self) -> None:
        """Close the connection to a process that cannot be ended."""
        self.codex.cut()

    async def babble(self) -> None:
        """Write what is no JSON."""
        self.codex.babble()
