"""An agent in memory whose works can be killed one by one, its adapter, and the probe of both."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Literal

import attrs
import trio

from turnstop import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from turnstop._unwrap import open_private_nursery
from turnstop.abc import Backend, Emit, End, How, Request, Silenced
from turnstop.events import Ask, Text
from turnstop.testing import Probe, Work

# A piece of its answer, a question, the end, or what is not of the protocol.
Frame = Text | Ask | How | None


@attrs.define(eq=False)
class Job:
    """A work, and the line that its frames come by. The line breaks without an end, or after it."""

    work: Work
    line: trio.MemorySendChannel[Frame]
    frames: trio.MemoryReceiveChannel[Frame]
    answered: trio.Event = attrs.field(factory=trio.Event)
    left: list[str] = attrs.field(factory=list)
    lost: BackendLost | None = None

    def say(self, frame: Frame) -> None:
        """Send a frame, where the line is there."""
        try:
            self.line.send_nowait(frame)
        except trio.ClosedResourceError:
            pass

    def end(self, how: How) -> None:
        """Be over, and say so."""
        if self.work.runs:
            self.work.ended_at = trio.current_time()
            self.say(how)
            self.line.close()


@attrs.define(eq=False)
class Agent:
    """The far end."""

    nursery: trio.Nursery
    jobs: list[Job] = attrs.field(factory=list)
    holds_starts: bool = False
    refuses_starts: bool = False
    cancels: Literal["obeyed", "held", "refused", "ignored", "unanswered"] = "obeyed"
    ends_after: float = 0.0

    def take(self, text: str, session: object | None) -> Job:
        """Take a request: its work runs before it is answered."""
        now, name = trio.current_time(), f"work-{len(self.jobs) + 1}"
        work = Work(name, text, str(session or f"session of {name}"), now)
        job = Job(work, *trio.open_memory_channel[Frame](math.inf))
        self.jobs.append(job)
        if not self.refuses_starts:
            work.began_at = now
        if not self.holds_starts:
            job.answered.set()
        return job

    async def cancel(self, job: Job) -> None:
        """Tell a work to stop; return when that is acknowledged."""
        job.work.told_at.append(trio.current_time())
        if self.cancels == "refused":
            raise BackendError("the agent refuses to be cancelled")
        if self.cancels in ("obeyed", "unanswered"):
            self.nursery.start_soon(self._obey, job)
        if self.cancels in ("held", "unanswered"):
            await trio.sleep_forever()

    async def _obey(self, job: Job) -> None:
        if self.ends_after:
            await trio.sleep(self.ends_after)
        job.end(How.CANCELLED)

    def refuse_starts(self) -> None:
        """Begin nothing, nor what is kept back."""
        self.refuses_starts = True
        for job in self.jobs:
            if not job.answered.is_set():
                job.work.began_at = None

    def release_starts(self) -> None:
        """Answer what was kept back."""
        self.holds_starts = False
        for job in self.jobs:
            job.answered.set()

    def break_lines(self, *, gone: bool) -> None:
        """Break every line, with the works or without them."""
        for job in self.jobs:
            if job.work.runs:
                job.lost = BackendLost("the line broke", gone=gone)
                job.work.ended_at = trio.current_time() if gone else None
            job.line.close()
            job.answered.set()


@attrs.define(eq=False)
class KillableTurn:
    """The adapter's remote turn."""

    agent: Agent
    job: Job

    @property
    def session(self) -> object:
        return self.job.work.session

    async def follow(self, emit: Emit) -> End:
        async with open_private_nursery() as nursery:
            async for frame in self.job.frames:
                if isinstance(frame, Text):
                    emit(frame)
                elif isinstance(frame, Ask):
                    nursery.start_soon(self._ask, emit, frame)
                elif frame is None:
                    raise BackendMisbehaved("the agent has sent noise")
                else:
                    nursery.cancel_scope.cancel()
                    return End(frame, detail=f"the agent has {frame.value} it")
            assert self.job.lost is not None
            raise self.job.lost

    async def _ask(self, emit: Emit, ask: Ask) -> None:
        try:
            reply = await emit.ask(ask)
        except Silenced:
            reply = "cancelled"
        self.job.work.replies.append(reply)

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        await self.agent.cancel(self.job)

    async def kill(self) -> None:
        await trio.lowlevel.checkpoint()
        self.job.end(How.CANCELLED)

    async def leftovers(self) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        return tuple(self.job.left)

    async def sweep(self, leftovers: Sequence[str]) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        self.job.left = [name for name in self.job.left if name not in leftovers]
        return ()


@attrs.define(eq=False)
class Killable:
    """The adapter's backend."""

    agent: Agent

    async def start(self, request: Request[Any]) -> KillableTurn:
        session = None if request.previous is not None else request.session
        job = self.agent.take(str(request.content), session)
        try:
            await job.answered.wait()
        except trio.Cancelled:
            job.end(How.CANCELLED)
            raise
        if job.work.began_at is None:
            raise BackendRefused("the agent takes nothing")
        if job.lost is not None:
            raise job.lost
        return KillableTurn(self.agent, job)


class KillableProbe(Probe):
    """`Killable`, under virtual time."""

    name = "killable"
    unable: ClassVar = {"say_end_again": "the line that told the end is closed by it"}

    def open(self) -> AbstractAsyncContextManager[Backend[Any]]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Killable, None]:
        self.agent = Agent(self.far_end)
        yield Killable(self.agent)

    @property
    def jobs(self) -> list[Job]:
        return self.agent.jobs if hasattr(self, "agent") else []

    @property
    def works(self) -> Sequence[Work]:
        return [job.work for job in self.jobs]

    def _job(self, work: Work) -> Job:
        return next(job for job in self.jobs if job.work is work)

    def hold_starts(self) -> None:
        self.agent.holds_starts = True

    def release_starts(self) -> None:
        self.agent.release_starts()

    def refuse_starts(self) -> None:
        self.agent.refuse_starts()

    def hold_cancels(self) -> None:
        self.agent.cancels = "held"

    def refuse_cancels(self) -> None:
        self.agent.cancels = "refused"

    def ignore_cancels(self) -> None:
        self.agent.cancels = "ignored"

    def hold_acknowledgements(self) -> None:
        self.agent.cancels = "unanswered"

    def end_late(self, seconds: float) -> None:
        self.agent.ends_after = seconds

    async def say(self, work: Work, text: str) -> None:
        self._job(work).say(Text(text))

    async def ask(self, work: Work) -> None:
        self._job(work).say(Ask("q1", "approval", "may I?", ("yes", "no")))

    async def finish(self, work: Work) -> None:
        self._job(work).end(How.COMPLETED)

    async def fail(self, work: Work) -> None:
        self._job(work).end(How.FAILED)

    async def leave(self, work: Work) -> None:
        self._job(work).left.append(f"child of {work.name}")

    @property
    def alive(self) -> Sequence[str]:
        return [name for job in self.jobs for name in job.left]

    async def die(self) -> None:
        self.agent.break_lines(gone=True)

    async def cut(self) -> None:
        self.agent.break_lines(gone=False)

    async def babble(self) -> None:
        for job in self.jobs:
            job.say(None)
