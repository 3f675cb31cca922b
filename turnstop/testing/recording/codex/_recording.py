"""All of codex: processes that come and go, and the levers of starts and interrupts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import trio

from ..._probe import Work
from ._server import NO_TURN, Answer, Frame, refusal, turn_result
from ._working import WorkingServer


@attrs.define(eq=False)
class AppProcess:
    """A process of an app server.

    Attributes:
        codex: whose it is.
        ended: whether it has ended.
    """

    codex: RecordingCodex
    ended: bool = False


@attrs.define(eq=False, slots=False)
class RecordingCodex(WorkingServer):
    """An app server with levers. Its threads outlive the process, its turns end with it.

    Attributes:
        processes: every process that was ever begun in its home.
        late: seconds that an interrupt, or a process's end, takes.
    """

    processes: list[AppProcess] = attrs.field(factory=list, init=False)
    late: float = attrs.field(default=0.0, init=False)
    _process: AppProcess | None = attrs.field(default=None, init=False)
    _mine: set[str] = attrs.field(factory=set, init=False)
    _clings: bool = attrs.field(default=False, init=False)
    _refuses: bool = attrs.field(default=False, init=False)
    _released: trio.Event | None = attrs.field(default=None, init=False)
    _too_late: set[str] = attrs.field(factory=set, init=False)
    _kept_back: list[Work] = attrs.field(factory=list, init=False)
    _obey: Callable[[Work], Awaitable[Answer]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.end_late(0.0)

    def next(self) -> RecordingCodex:
        """The codex that the next process runs in the same home, where this one may still work."""
        later = RecordingCodex(wire=self.wire)
        for name in ("works", "on_disk", "agents", "processes", "_ends", "_count"):
            setattr(later, name, getattr(self, name))
        return later

    # The process.

    @property
    def ended(self) -> bool:
        """Whether the process that was connected last has ended."""
        return self._process is None or self._process.ended

    def connect(self) -> trio.StapledStream[Any, Any]:
        """Begin a process, and connect to it."""
        self._clings = False
        self._process = AppProcess(self)
        self.processes.append(self._process)
        self._mute = {work.name for work in self.works}
        return super().connect()

    def end(self) -> None:
        """End the process, with everything that it works on."""
        self.hang_up()
        if self._process is not None:
            self._process.ended = True
        for work in self.works:
            if work.name in self.running.values():
                self._close(work)
        for agent in self.agents.values():
            agent["turn"]["status"] = "interrupted"
        self._terminals.clear()

    def put_down(self) -> None:
        """End the process, if it can be ended."""
        if not self._clings:
            self.end()

    def cut(self) -> None:
        """Close the connection; the process cannot be ended, and works on."""
        self.hang_up()
        self._clings = True

    def end_all(self) -> None:
        """End whatever works of it, in whichever process."""
        self.end()
        for work in self.works:
            if work.runs and work.name in self._mine:
                self._close(work)

    async def end_left(self, process: AppProcess) -> None:
        """End a process whose client is gone.

        **Cancellation:** it goes on.
        """
        await trio.sleep(self.late)
        if process is self._process:
            self.put_down()

    def babble(self) -> None:
        """Write what is no JSON."""
        self.write_line(b"thread 'main' panicked: not yet implemented")

    # The levers of starts.

    def hold_starts(self) -> None:
        """Begin the next turns, and keep the answers back."""
        self._released = self._released or trio.Event()

    def release_starts(self) -> None:
        """Send the answers that were kept back."""
        if self._released is not None:
            self._released.set()
        self._released = None
        self._kept_back.clear()

    def refuse_starts(self) -> None:
        """Begin no turn from now on; what is kept back has not begun either."""
        self._refuses = True
        for work in self._kept_back:
            self.running.pop(str(work.session), None)
            work.began_at = None

    async def _turn_start(self, params: Frame) -> Answer:
        thread = params["threadId"]
        text = " ".join(str(item.get("text", "")) for item in params["input"])
        # One that is busy is steered: the same turn is named once more.
        name = self.running.get(thread) or self._name("U")
        work = Work(name, text, thread, trio.current_time())
        self.works.append(work)
        self._mine.add(name)
        if thread in self.loaded and not self._refuses:
            work.began_at = work.asked_at
            self.running[thread] = name
        if self._released is not None:
            self._kept_back.append(work)
            await self._released.wait()
        if work.began_at is None:
            return refusal("the turn was refused")
        return turn_result(name), partial(self._begin_if_told, thread, name)

    # The levers of interrupts.

    def hold_cancels(self) -> None:
        """Neither answer interrupts nor obey them."""

        async def hold(work: Work) -> Answer:
            return None

        self._obey = hold

    def refuse_cancels(self) -> None:
        """Answer interrupts by an error that does not say that they come too early."""

        async def refuse(work: Work) -> Answer:
            return refusal("the turn cannot be interrupted")

        self._obey = refuse

    def ignore_cancels(self) -> None:
        """Acknowledge interrupts, and go on."""

        async def ignore(work: Work) -> Answer:
            return {"result": {}}

        self._obey = ignore

    def hold_acknowledgements(self) -> None:
        """Obey interrupts, and do not answer them."""

        async def obey(work: Work) -> Answer:
            await self._abort(work)
            await self._over(work, "interrupted")
            return None

        self._obey = obey

    def end_late(self, seconds: float) -> None:
        """Acknowledge interrupts at once, and obey them later."""
        self.late = seconds

        async def acknowledge(work: Work) -> Answer:
            await self._abort(work)
            return {"result": {}}, partial(self._interrupt, work, seconds)

        self._obey = acknowledge

    async def _interrupt(self, work: Work, seconds: float) -> None:
        if seconds:
            await trio.sleep(seconds)
        await self._over(work, "interrupted")

    async def _turn_interrupt(self, params: Frame) -> Answer:
        thread, turn = params["threadId"], params["turnId"]
        if thread in self.agents:
            return await super()._turn_interrupt(params)
        work = next((one for one in self.works if one.name == turn), None)
        if work is None or (work.runs and turn not in self.started):
            return {"error": NO_TURN}
        if work.runs:
            work.told_at.append(trio.current_time())
            return await self._obey(work)
        # One that comes too late is repeated as well, and was told once.
        if work.name not in self._too_late:
            self._too_late.add(work.name)
            work.told_at.append(trio.current_time())
        return {"error": NO_TURN}

    async def _turns_list(self, params: Frame) -> Answer:
        thread = params["threadId"]
        if thread in self.agents:
            return await super()._turns_list(params)
        # The record tells of one that nobody has completed as if it had been interrupted.
        rows = [
            self._ends.get(work.name, {"id": work.name, "status": "interrupted", "error": None})
            for work in reversed(self.works)
            if work.session == thread and work.began_at is not None
        ]
        return {"result": {"data": rows[: params["limit"]]}}
