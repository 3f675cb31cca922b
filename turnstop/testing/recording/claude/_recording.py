"""All of Claude: a process for each room, and the levers of interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs
import trio

from ....abc import End, How, Proof
from ....transports.orphans import ProcessAddress
from ..._probe import Work
from ._cli import Cli, Frame
from ._working import Doing, WorkingClaude

_PREWAIT = 0.001
_HOW = {"completed": How.COMPLETED, "api_error": How.FAILED}


@attrs.define(eq=False, slots=False)
class RecordingClaude(WorkingClaude):
    """Claude Code with levers. Its sessions outlive the processes, its turns end with theirs.

    Attributes:
        processes: every process that was ever begun.
        old: whether its processes are of an old Claude.
        late: seconds that an interrupt, or a process's end, takes.
    """

    processes: list[Cli] = attrs.field(factory=list, init=False)
    old: bool = False
    late: float = attrs.field(default=0.0, init=False)
    _queued: dict[str, Work] = attrs.field(factory=dict, init=False)
    _awake: set[str] = attrs.field(factory=set, init=False)
    _obey: Callable[[Cli, Frame], None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.end_late(0.0)

    # The processes.

    def begin(self, session: str, later: trio.Nursery) -> Cli:
        """Begin a process, and connect to it."""
        cli = Cli(session, self.wire, self._hear, later, old=self.old)
        self.processes.append(cli)
        return cli

    @property
    def live(self) -> list[Cli]:
        """The processes that somebody is connected to."""
        return [cli for cli in self.processes if cli.is_connected]

    def end(self, cli: Cli) -> None:
        """End a process, with everything that it works on, if it can be ended."""
        if not cli.clings:
            self._end(cli)

    def _end(self, cli: Cli) -> None:
        cli.hang_up()
        cli.ended = True
        for work in self._works_of(cli):
            if work.runs:
                work.ended_at = trio.current_time()
            self._queued.pop(work.name, None)
        for number in [one for one, work in self.tasks.items() if self._is_of(cli, work)]:
            del self.tasks[number]

    def die(self) -> None:
        """End every process."""
        for cli in self.live:
            self._end(cli)

    def cut(self) -> None:
        """Close every connection; the processes cannot be ended, and work on."""
        for cli in self.live:
            cli.hang_up()
            cli.clings = True

    def end_all(self, processes: Iterable[Cli]) -> None:
        """End these, and whatever works in them."""
        for cli in processes:
            self._end(cli)

    async def end_left(self, cli: Cli) -> None:
        """End a process whose owner is gone.

        **Cancellation:** it goes on.
        """
        await trio.sleep(self.late)
        self.end(cli)

    async def tell(self, place: ProcessAddress) -> tuple[End, str | None]:
        """How a turn has ended whose process is gone, as its conversation on disk has it.

        **Cancellation:** changes nothing.
        """
        await trio.lowlevel.checkpoint()
        _, reason = self._last.get(place.turn, (None, ""))
        how = _HOW.get(reason, How.CANCELLED)
        return End(how, Proof.PROCESS), place.session if place.session in self.on_disk else None

    def babble(self) -> None:
        """Write what is no JSON."""
        for cli in self.live:
            cli.write_line(b"Update available: run `claude update`")

    def _works_of(self, cli: Cli) -> Iterator[Work]:
        return (work for work in self.works if self._is_of(cli, work))

    def _is_of(self, cli: Cli, work: Work) -> bool:
        return self._doing[work.name].cli is cli

    # What it is told.

    def _hear(self, cli: Cli, frame: Frame) -> None:
        if frame["type"] == "user":
            self._take(cli, frame)
        elif frame["type"] == "control_response":
            self._answered(frame["response"])
        elif frame["request"]["subtype"] == "interrupt":
            self._told(cli, frame)
        elif frame["request"]["subtype"] == "initialize":
            cli.answer(frame, {"claude_code_version": "2.1.332"})
        else:
            self._stop_task(cli, frame)

    def _stop_task(self, cli: Cli, frame: Frame) -> None:
        number = str(frame["request"]["task_id"])
        if self.tasks.pop(number, None) is None:
            cli.refuse(frame, f"No task found with ID: {number}")
            return
        cli.task("task_notification", number, status="stopped")
        cli.answer(frame, {})

    def _take(self, cli: Cli, frame: Frame) -> None:
        content = frame["message"]["content"]
        texts = [content] if isinstance(content, str) else [one.get("text") for one in content]
        text = " ".join(str(one) for one in texts)
        work = Work(str(frame["uuid"]), text, cli.session, trio.current_time())
        self.works.append(work)
        self._doing[work.name] = Doing(cli, work.name)
        self._queued[work.name] = work
        cli.lifecycle(work.name, "queued")
        cli.later.start_soon(self._begin, cli, work)

    async def _begin(self, cli: Cli, work: Work) -> None:
        # What it has read and not yet begun can be cancelled as if it had never come.
        await trio.sleep(_PREWAIT)
        while any(one.runs for one in self._works_of(cli)):  # noqa: ASYNC110 - one at a time
            await trio.sleep(_PREWAIT)
        if self._queued.pop(work.name, None) is not None:
            work.began_at = trio.current_time()
            cli.lifecycle(work.name, "started")
            cli.init(work.name)
            self._open(self._doing[work.name])

    def _told(self, cli: Cli, frame: Frame) -> None:
        """An interrupt: it is of what runs, and of what waits where it says so."""
        works = [work for work in self._works_of(cli) if work.runs]
        cancels = frame["request"].get("cancel_queued")
        waiting = [one for one in self._works_of(cli) if one.name in self._queued]
        told = [*works, *(waiting if cancels and not self.old else ())]
        if cancels and not told:
            # It names none: one that comes too late can only be of the last.
            told = list(self._works_of(cli))[-1:]
        for work in told:
            work.told_at.append(trio.current_time())
        self._obey(cli, frame)

    def _cancel_queued(self, cli: Cli, frame: Frame) -> Frame:
        """Take back what waits; the answer that says so."""
        answer: Frame = {"still_queued": []}
        if self.old or not frame["request"].get("cancel_queued"):
            return {} if self.old else answer
        waiting = [one.name for one in self._works_of(cli) if one.name in self._queued]
        for name in waiting:
            del self._queued[name]
            cli.lifecycle(name, "cancelled")
        return {**answer, "cancelled": waiting}

    # The levers of interrupts.

    def hold_cancels(self) -> None:
        """Neither answer interrupts nor obey them."""
        self._obey = lambda cli, frame: None

    def refuse_cancels(self) -> None:
        """Answer interrupts by an error, and go on."""
        self._obey = lambda cli, frame: cli.refuse(frame, "it cannot be interrupted")

    def ignore_cancels(self) -> None:
        """Acknowledge interrupts, and go on."""
        said: Frame = {"still_queued": [], "cancelled": []}
        self._obey = lambda cli, frame: cli.answer(frame, said)

    def hold_acknowledgements(self) -> None:
        """Obey interrupts, and do not answer them."""

        def obey(cli: Cli, frame: Frame) -> None:
            self._cancel_queued(cli, frame)
            self._abort_all(cli)

        self._obey = obey

    def end_late(self, seconds: float) -> None:
        """Acknowledge interrupts at once, and obey them later."""
        self.late = seconds

        def obey(cli: Cli, frame: Frame) -> None:
            cli.answer(frame, self._cancel_queued(cli, frame))
            if seconds:
                self._abort_in(cli, seconds)
            else:
                self._abort_all(cli)

        self._obey = obey

    async def _abort_later(self, work: Work, seconds: float) -> None:
        await trio.sleep(seconds)
        if work.runs:
            self._abort(work)

    def _abort_soon(self, cli: Cli) -> None:
        self._abort_in(cli, _PREWAIT)

    def _abort_in(self, cli: Cli, seconds: float) -> None:
        for work in self._works_of(cli):
            if work.runs:
                cli.later.start_soon(self._abort_later, work, seconds)

    def _abort_all(self, cli: Cli) -> None:
        if cli.session in self._awake:
            self._awake.discard(cli.session)
            cli.result(None, "aborted_streaming")
        for work in list(self._works_of(cli)):
            if work.runs:
                self._abort(work)

    # What it does by itself.

    async def end_tasks(self) -> None:
        """End the background tasks: that wakes each process, which begins a turn for nobody.

        **Cancellation:** they have ended all the same.
        """
        for number, work in list(self.tasks.items()):
            del self.tasks[number]
            cli = self._doing[work.name].cli
            cli.task("task_notification", number, status="completed")
            cli.init(None)
            self._awake.add(cli.session)
        await trio.lowlevel.checkpoint()
