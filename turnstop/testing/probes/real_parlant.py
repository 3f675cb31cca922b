"""The probe of the real Parlant engine, with the lab's model. Needs the extra `parlant`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    redirect_stdout,
)
from typing import ClassVar, Literal

import trio

from ..._budget import StopBudget
from ...abc import Backend
from ...adapters.parlant import open_parlant
from ...adapters.parlant._library import check_version
from ...lab.parlant import ParkedModel
from .._probe import Probe, Work
from .parlant import ParlantProbe

__all__ = ["RealParlantProbe"]

# Said once, and not of each promise.
check_version()

_ITSELF = "the real engine answers as it does: there is nothing that could hold it back"


class RealParlantProbe(Probe):
    """`open_parlant`, with an agent whose hook waits, before guidelines are matched, for orders.

    That a turn is over is told by its tasks: the model's side counts them for itself. Of all places
    where a turn may wait it is only in a hook that its cancellation can be swallowed for good.
    """

    name = "parlant, the real engine"
    unable: ClassVar[Mapping[str, str]] = {
        **ParlantProbe.unable,
        "hold_starts": _ITSELF,
        "refuse_starts": _ITSELF,
        "say_end_again": _ITSELF,
        "die": "the engine is in this process, and ends with what opened it",
        "babble": _ITSELF,
    }
    clock: Literal["virtual", "real"] = "real"
    budget = StopBudget(cancel_within=1.0, kill_within=0.5)
    opening = 30.0

    def __init__(self) -> None:
        self._model: ParkedModel | None = None
        self._texts: dict[str, str] = {}
        self._works: dict[str, Work] = {}

    def open(self) -> AbstractAsyncContextManager[Backend[str]]:
        """Open it; what Parlant prints goes where it is in nobody's way."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[str], None]:
        self._model = ParkedModel()
        opening = open_parlant(self._model.prepare, **self._model.options())
        async with AsyncExitStack() as stack:
            with redirect_stdout(sys.stderr):
                backend = await stack.enter_async_context(opening)
            # It never holds: it is looked at whenever the engine has said something.
            self.far_end.start_soon(self._model.until, self._look)
            stack.callback(self.release)
            yield backend

    @property
    def model(self) -> ParkedModel:
        """The far end, from the opening on."""
        assert self._model is not None
        return self._model

    def release(self) -> None:
        """Obey."""
        self.model.linger(0.0)
        for token in self._texts:
            self.model.release(token)

    def content(self, text: str) -> str:
        """A message that has the hook wait for orders."""
        assert self._model is not None
        token, message = self._model.write("park hook")
        self._texts[token] = text
        return message

    @property
    def works(self) -> Sequence[Work]:
        """Each message that the engine has begun to process."""
        self._look()
        return sorted(self._works.values(), key=lambda work: work.asked_at)

    def _look(self) -> None:
        """Take over what was seen."""
        for token, text in self._texts.items():
            pieces = self.model.work(token)
            if not pieces:
                continue
            work = self._works.get(token)
            if work is None:
                asked_at = pieces[0].began_at
                session = self.model.session(token)
                work = self._works[token] = Work(token, text, session, asked_at, asked_at)
            work.told_at[:] = self.model.told(token)
            ends = [one.ended_at for one in pieces if one.what != "left"]
            if work.ended_at is None and None not in ends:
                work.ended_at = max(end for end in ends if end is not None)

    def hold_cancels(self) -> None:
        """Have the hook swallow its cancellation."""
        self.model.linger(None)

    def ignore_cancels(self) -> None:
        """Have the hook shield its work, which goes on when the turn is over for the engine."""
        self.model.shield()

    def end_late(self, seconds: float) -> None:
        """Have the hook's clean-up take some time."""
        self.model.linger(seconds)

    async def say(self, work: Work, text: str) -> None:
        """Have it say a message."""
        self.model.order(work.name, "say", text)
        await trio.sleep(0.05)

    async def finish(self, work: Work) -> None:
        """Have the model find that there is nothing more to say."""
        self.model.order(work.name, "mute")
        await trio.lowlevel.checkpoint()

    async def fail(self, work: Work) -> None:
        """Have another hook of the agent's fail."""
        self.model.order(work.name, "fail")
        await trio.lowlevel.checkpoint()

    async def leave(self, work: Work) -> None:
        """Have it start a task, which nobody waits for."""
        self.model.order(work.name, "leave")
        await self.model.until(
            lambda: any(one.what == "left" for one in self.model.work(work.name))
        )

    @property
    def alive(self) -> Sequence[str]:
        """The tasks that were left."""
        return [
            f"{one.what} of {token}"
            for token in self._texts
            for one in self.model.work(token)
            if one.what == "left" and one.ended_at is None
        ]
