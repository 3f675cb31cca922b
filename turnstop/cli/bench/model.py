"""What a measurement is made of. Every time is in seconds on Trio's clock of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

import attrs
import click

from ..._ending import Ending

Moment: TypeAlias = Literal["starting", "running", "tool", "permission", "finishing"]
RunnerName: TypeAlias = Literal["turnstop", "raw", "band"]

MOMENTS: tuple[Moment, ...] = ("starting", "running", "tool", "permission", "finishing")

PARKED_FOR = 0.020
"""A turn is `running` once nothing of it has been under way for about this many seconds."""


class Missing(click.ClickException):
    """Something is not installed; the text is one line with the command that installs it."""

    exit_code = 2


class BenchFailed(click.ClickException):
    """The measurement cannot go on: the backend does not behave as the bench needs it to."""

    exit_code = 2


@attrs.frozen
class Work:
    """A piece of a turn's work, seen where it was done.

    Attributes:
        name: for people; a process begins with its pid.
        began_at: when it was first seen.
        ended_at: when its end was seen; None while it goes on.
        pid: of a process, else None.
        cut: whether somebody was seen to end it before it was done.
    """

    name: str
    began_at: float
    ended_at: float | None = None
    pid: int | None = None
    cut: bool = False


@attrs.frozen(kw_only=True)
class Outcome:
    """What a runner says of a turn that it stopped.

    Attributes:
        ending: `Ending` by its name; the other runners are told in the same words.
        gone: whether it says that the work is over.
        settled_at: when it said so.
        survivors: what it names as still alive.
    """

    ending: str = Ending.STOPPED.name
    gone: bool
    asked_at: float | None = None
    sent_at: float | None = None
    acked_at: float | None = None
    ended_at: float | None = None
    settled_at: float
    survivors: tuple[str, ...] = ()


class Run(Protocol):
    """A turn of a runner."""

    async def asks(self) -> None:
        """Wait until it asks for a permission."""

    async def stop(self) -> None:
        """Ask for its stop, or do nothing where it is over."""

    async def settled(self) -> Outcome:
        """Wait until the runner says that it is over."""
        ...

    async def admitted(self) -> float:
        """Wait until its room has let it in, and say when that was."""
        ...


class Runner(Protocol):
    """Who starts and stops turns. A room's turns run one after another."""

    async def begin(
        self, room: str, content: str, stop_after: float | None = None, *, grants: bool = True
    ) -> Run:
        """Queue a turn and return at once.

        Args:
            room: the conversation.
            content: the prompt.
            stop_after: stop it by itself, this many seconds after its start call has left.
            grants: give the permissions that it asks for; else they are left open.
        """
        ...

    async def discard(self, room: str) -> None:
        """Never use the room again; end what is there for nothing else."""


class Target(Protocol):
    """Where a backend's work shows.

    Attributes:
        races_within: `finishing` stops this many seconds at most after the release: about what
            the backend takes from there to its end. None: it is measured first.
    """

    @property
    def races_within(self) -> float | None:
        """See above."""
        ...

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """A new token, and a prompt for a turn to be stopped at the moment; None: answer."""
        ...

    async def reached(self, token: str, moment: Moment) -> None:
        """Wait until a turn of that prompt is where the moment wants it."""

    def finish(self, token: str) -> None:
        """Let a turn of a `finishing` prompt come to its own end now."""

    def work(self, token: str) -> Sequence[Work]:
        """All work with this token that was ever seen. Looks for more where that takes looking."""
        ...

    def faults(self, token: str) -> Sequence[str]:
        """What was wrong with the histories that came with this token."""
        ...

    def sweep(self, token: str) -> None:
        """End what is left of it."""


class Bench(Protocol):
    """A backend that can be measured.

    Attributes:
        name: what it is called on the command line and in the table.
        moments: those that it has.
        runners: who can drive it.
        rooms: at most so many are open for a runner at a time; None: as many as it takes.
    """

    name: str
    moments: tuple[Moment, ...]
    runners: tuple[RunnerName, ...]
    rooms: int | None

    async def versions(self) -> Mapping[str, str]:
        """What is measured here, and its version.

        Raises:
            Missing: it is not installed.
        """
        ...

    def open_target(self) -> AbstractAsyncContextManager[Target]:
        """Open where the work shows."""
        ...

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """Open somebody who works there.

        Raises:
            Missing: what the runner needs is not installed.
        """
        ...
