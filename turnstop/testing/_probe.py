"""What an obligation is checked against: a real adapter, and the far end with its levers."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Literal

import attrs
import trio

from .._budget import StopBudget
from ..abc import Backend

__all__ = ["Probe", "Work"]


@attrs.define(eq=False)
class Work:
    """One request, as the far end itself saw it: the truth that a settlement is held against.

    Times are seconds on Trio's clock, None where it did not happen.

    Attributes:
        name: what the wire calls it: a turn's id, a task's.
        text: what was asked, as far as the far end was told.
        session: the conversation that it works in, as the wire calls it; the name of a new one
            where it began one; None where there are no conversations.
        asked_at: when the request arrived.
        began_at: when the work began.
        ended_at: when the work was over: after that, it does and says nothing any more.
        told_at: when each request to cancel *this* work arrived.
        replies: what was answered to its questions.
    """

    name: str
    text: str
    session: str | None
    asked_at: float
    began_at: float | None = None
    ended_at: float | None = None
    told_at: list[float] = attrs.field(factory=list)
    replies: list[object] = attrs.field(factory=list)

    @property
    def runs(self) -> bool:
        """Whether it has begun and is not over."""
        return self.began_at is not None and self.ended_at is None


class Probe(abc.ABC):
    """An adapter against a far end that records what it is told and does what its levers say.

    A fresh one is made for each obligation. Subclasses implement `open` and `works`, and as many
    levers as the far end has: a lever that is not overridden is not there. By default a work
    begins at once, goes on until it is told to stop, ends at once when it is, and says so.

    **Cancellation:** of a lever: what it has ordered stands.

    Attributes:
        name: what the report calls it.
        unable: what the backend cannot do, each with the reason: the name of a lever, or one of
            `ABILITIES`. Obligations that need it are excused; and one that is excused and kept
            all the same is red, since then the excuse is not true.
        clock: `"virtual"` where everything happens in memory; `"real"` where threads, processes
            or sockets take part.
        budget: the bound of each stop.
        opening: how many seconds of real time its opening may take, beside what an obligation may:
            where a program is started that sets itself up.
        far_end: for tasks of the far end. It is there before `open` is called, and outlives all
            that the application cancels, as a real far end does.
    """

    name: ClassVar[str] = ""
    unable: ClassVar[Mapping[str, str]] = {}
    clock: Literal["virtual", "real"] = "virtual"
    budget: StopBudget = StopBudget(cancel_within=2.0, kill_within=1.0)
    opening: ClassVar[float] = 0.0
    far_end: trio.Nursery

    @abc.abstractmethod
    def open(self) -> AbstractAsyncContextManager[Backend[Any]]:
        """Open the adapter's backend, and the far end behind it.

        **Cancellation:** both end; the far end's work too, whatever its levers say.
        """

    @property
    @abc.abstractmethod
    def works(self) -> Sequence[Work]:
        """All that was ever asked of the far end, oldest first, refused requests included."""

    def content(self, text: str) -> object:
        """What the application sends so that the far end is asked `text`."""
        return text

    def release(self) -> None:  # noqa: B027  most far ends have nothing to do here
        """Let every work end that goes on in spite of its cancel: the obligation is over.

        Only needed where it keeps a task of the adapter waiting that cannot be cancelled.
        """

    # The levers of starts.

    def hold_starts(self) -> None:
        """From now on the far end begins, and its answer to the start is kept back."""
        raise NotImplementedError

    def release_starts(self) -> None:
        """Send the answers that were kept back; the next starts are answered at once again."""
        raise NotImplementedError

    def refuse_starts(self) -> None:
        """From now on starts are refused: nothing begins. Also those that are kept back."""
        raise NotImplementedError

    # The levers of cancels.

    def hold_cancels(self) -> None:
        """From now on a cancel is recorded, and neither answered nor obeyed."""
        raise NotImplementedError

    def refuse_cancels(self) -> None:
        """From now on a cancel is answered by an error, and the work goes on."""
        raise NotImplementedError

    def ignore_cancels(self) -> None:
        """From now on a cancel is acknowledged, and the work goes on all the same."""
        raise NotImplementedError

    def hold_acknowledgements(self) -> None:
        """From now on a cancel is obeyed, and its answer never comes."""
        raise NotImplementedError

    def end_late(self, seconds: float) -> None:
        """From now on a cancel is acknowledged at once; the work ends `seconds` later."""
        raise NotImplementedError

    # What a work does.

    async def say(self, work: Work, text: str) -> None:
        """Have it say a piece of its answer, also after it was told to stop."""
        raise NotImplementedError

    async def ask(self, work: Work) -> None:
        """Have it ask for an approval; what is answered is kept in `Work.replies`.

        Where the question has choices, the first one approves.
        """
        raise NotImplementedError

    def carries(self, answer: object, reply: str) -> bool:
        """Whether what is in `Work.replies` tells a person's reply to the far end."""
        return answer == reply

    async def finish(self, work: Work) -> None:
        """Have it complete by itself.

        It may come while the answer to its start is kept back, and does not wait for that: the
        work is over, and its end is told once its start has been answered. The same with `fail`;
        no other lever of a work is used then.
        """
        raise NotImplementedError

    async def fail(self, work: Work) -> None:
        """Have it fail by itself.

        When it may come: see `finish`.
        """
        raise NotImplementedError

    async def say_end_again(self, work: Work) -> None:
        """Send the frame that told its end once more."""
        raise NotImplementedError

    async def leave(self, work: Work) -> None:
        """Have it start something that outlives it: see `alive`."""
        raise NotImplementedError

    @property
    def alive(self) -> Sequence[str]:
        """What works have left behind and is alive now, each by a name of its own."""
        raise NotImplementedError

    # What happens to the far end as a whole.

    async def die(self) -> None:
        """End the far end, or the connection to it, with everything that it works on."""
        raise NotImplementedError

    async def cut(self) -> None:
        """Break the connection; what the far end works on goes on."""
        raise NotImplementedError

    async def babble(self) -> None:
        """Have it send something that is not of its protocol."""
        raise NotImplementedError

    def open_again(self) -> AbstractAsyncContextManager[Backend[Any]]:
        """Open the backend once more over the same far end, as the next process does."""
        raise NotImplementedError


LEVERS: tuple[str, ...] = (
    "hold_starts",
    "refuse_starts",
    "hold_cancels",
    "refuse_cancels",
    "ignore_cancels",
    "hold_acknowledgements",
    "end_late",
    "say",
    "ask",
    "finish",
    "fail",
    "say_end_again",
    "leave",
    "die",
    "cut",
    "babble",
    "open_again",
)

ABILITIES: Mapping[str, str] = {
    "early_stop": "a stop that comes before the start is answered reaches the work",
    "undo": "a start that is answered only after the bound is undone",
    "end_seen": "after a stop, the end of the work is told, and not only that it was asked for",
    "sweep": "what a turn leaves behind can be found and ended",
    "session": "the next turn goes on with the conversation",
    "restart": "after the far end has died, the next turn finds it again",
    "reach": "a turn whose connection is lost can be told to stop by another one",
    "attach": "a turn can be taken up by another process than the one that began it",
    "end_kept": "how a turn has ended is told to another process than the one that began it",
    "announce": "where a turn will be is told before it is sent",
}


def has_lever(probe: Probe, name: str) -> bool:
    """Whether the far end of this probe has the lever."""
    return getattr(type(probe), name) is not getattr(Probe, name)
