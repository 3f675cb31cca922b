"""What the probes of real programs have in common: the lab for their model, and for the truth."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal

import trio

from ..._budget import StopBudget
from ..._service import open_service
from ...lab import Behaviour, Lab, open_lab, read_prompt, write_prompt
from .._probe import Probe, Work

__all__ = ["ITSELF", "LEFT", "LabProbe", "token_of"]

_ITSELF = "the real program answers as it does: there is nothing that could hold it back"
ITSELF: Mapping[str, str] = {
    "hold_starts": _ITSELF,
    "refuse_starts": _ITSELF,
    "hold_cancels": _ITSELF,
    "refuse_cancels": _ITSELF,
    "ignore_cancels": _ITSELF,
    "hold_acknowledgements": _ITSELF,
    "end_late": _ITSELF,
    "say_end_again": _ITSELF,
    "babble": _ITSELF,
    "open_again": "what the next process does is shown where one is really killed",
}
"""What no real program can be made to do; for `Probe.unable`."""
LEFT = "setsid sleep 300 >/dev/null 2>&1 &"
"""A command that leaves a process of its own."""


class LabProbe(Probe):
    """A real program, with a model that goes on until it is ordered otherwise.

    That a turn is over is told by the model: its requests have ended, and once the wire has told
    the end, the program will make no more. A subclass opens the program inside `open_home`, says
    what `over` is, and takes away the levers that the program has not: `fail = Probe.fail`.

    Attributes:
        asks_again: whether it asks its model once more after an empty answer.
    """

    clock: Literal["virtual", "real"] = "real"
    budget = StopBudget(cancel_within=10.0, kill_within=5.0)
    asks_again: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lab: Lab | None = None
        self._dead: set[Work] = set()
        self._spoken: set[Work] = set()

    @property
    def lab(self) -> Lab:
        """The model, from the opening on."""
        assert self._lab is not None
        return self._lab

    @asynccontextmanager
    async def open_home(self) -> AsyncGenerator[str, None]:
        """Open a lab, and a folder for the program.

        **Cancellation:** both are closed, after what was opened inside.
        """
        # What has been ended may be writing still.
        with tempfile.TemporaryDirectory(
            prefix="turnstop-probe-", ignore_cleanup_errors=True
        ) as home:
            async with open_service() as service, open_lab() as self._lab:
                # It never holds: it is looked at whenever the lab has seen something.
                service.start_soon(self._lab.until, self.look)
                yield home

    def over(self, work: Work) -> float | None:
        """When the wire told that its turn is over; None where it has not."""
        raise NotImplementedError

    def look(self) -> None:
        """Take from the lab what the wire does not tell."""
        for work in self.works:
            asked = self._lab.requests(token_of(work)) if self._lab is not None else []
            if work.began_at is None and asked:
                work.began_at = asked[0].parked_at or asked[0].ended_at
            over = self.over(work)
            if work.ended_at is None and (over is not None or work in self._dead):
                ends = [one.ending_at or one.ended_at for one in asked] or [over]
                if None not in ends:
                    work.ended_at = max(end for end in ends if end is not None)

    def content(self, text: str) -> object:
        """A prompt that tells the lab to be silent until it is ordered otherwise."""
        return f"{text}\n{write_prompt(Behaviour('park', 0))[1]}"

    def order(self, work: Work, order: Any, text: str = "", arguments: Any = None) -> None:
        """Tell the model what to do with a work."""
        self.lab.order(token_of(work), order, text, arguments)

    async def say(self, work: Work, text: str) -> None:
        """Have the model say a piece; one that nobody listens to any more says nothing."""
        self._spoken.add(work)
        self.order(work, "say", text)
        await trio.sleep(0.05)

    async def finish(self, work: Work) -> None:
        """Have the model end its answer."""
        if self.asks_again and work not in self._spoken:
            self.order(work, "say", "done")
        self.order(work, "end")
        await trio.lowlevel.checkpoint()

    async def fail(self, work: Work) -> None:
        """Have the model fail."""
        self.order(work, "fail")
        await trio.lowlevel.checkpoint()

    async def leave(self, work: Work) -> None:
        """Have the model run a command that leaves a process of its own."""
        self.order(work, "tool", LEFT)
        await self.lab.tool_running(token_of(work))
        await self.lab.parked(token_of(work))

    @property
    def alive(self) -> Sequence[str]:
        """The processes that its commands have left."""
        tokens = [token_of(work) for work in self.works]
        return [str(process) for token in tokens for process in self.lab.processes(token)]

    def bury(self) -> None:
        """Whatever is not over is so as soon as its requests have ended: its process is killed."""
        self._dead.update(work for work in self.works if work.ended_at is None)


def token_of(work: Work) -> str:
    """By which the lab knows it."""
    found = read_prompt(work.text)
    return found[0] if found else ""
