"""All of Copilot: processes that come and go, and the levers of starts and aborts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import attrs
import trio

from ..._probe import Work
from ._cli import UNKNOWN, FarCli, Message
from ._working import Doing, WorkingCopilot

_SHOWS_ITSELF = 0.001


@attrs.define(eq=False, slots=False)
class RecordingCopilot(WorkingCopilot):
    """A CLI with levers. Its sessions outlive the processes, its turns end with theirs.

    Attributes:
        processes: every process that was ever begun.
        old: whether its processes are as old as the oldest that the SDK speaks to.
        idles: whether the idle of an aborted turn is told.
        late: seconds that an abort, or a process's end, takes.
        later: where what comes later is waited for.
        asked: how often its sessions were asked whether they are active.
    """

    processes: list[FarCli] = attrs.field(factory=list, init=False)
    old: bool = False
    idles: bool = True
    asked: int = attrs.field(default=0, init=False)
    late: float = attrs.field(default=0.0, init=False)
    later: trio.Nursery | None = attrs.field(default=None, init=False)
    _waiting: dict[str, Work] = attrs.field(factory=dict, init=False)
    _held: list[tuple[FarCli, Message, Work]] | None = attrs.field(default=None, init=False)
    _refuses: bool = attrs.field(default=False, init=False)
    _obey: Callable[[FarCli, Message, Work], object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.end_late(0.0)

    def _soon(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        assert self.later is not None
        self.later.start_soon(fn, *args)

    # The processes.

    def begin(self) -> FarCli:
        """Begin a process."""
        cli = FarCli(self.wire, self._hear, old=self.old)
        self.processes.append(cli)
        return cli

    @property
    def live(self) -> list[FarCli]:
        """The processes that somebody is connected to."""
        return [cli for cli in self.processes if not cli.broken.is_set()]

    def put_down(self, cli: FarCli) -> None:
        """End a process, with everything that it works on, if it can be ended."""
        if not cli.clings:
            self._end(cli)

    def _end(self, cli: FarCli) -> None:
        cli.ended = True
        cli.hang_up()
        for work in self._works_of(cli):
            self._waiting.pop(work.name, None)
            if work.runs:
                work.ended_at = trio.current_time()
        for number in [one for one, (work, _) in self.tasks.items() if self._is_of(cli, work)]:
            del self.tasks[number]

    def die(self) -> None:
        """End every process."""
        for cli in self.live:
            self._end(cli)

    def cut(self) -> None:
        """Close every connection; the processes cannot be ended, and work on."""
        for cli in self.live:
            cli.clings = True
            cli.hang_up()

    def end_all(self, begun: int) -> None:
        """End whatever works, in whichever process from this one on."""
        for cli in self.processes[begun:]:
            self._end(cli)

    async def end_left(self, cli: FarCli) -> None:
        """End a process whose client is gone.

        **Cancellation:** it goes on.
        """
        await trio.sleep(self.late)
        self.put_down(cli)

    def babble(self) -> None:
        """Write what is no message."""
        for cli in self.live:
            cli.write_bytes(b"thread 'main' panicked\n")

    def _works_of(self, cli: FarCli) -> Iterator[Work]:
        return (work for work in self.works if self._is_of(cli, work))

    def _is_of(self, cli: FarCli, work: Work) -> bool:
        return self._doing[work.name].cli is cli

    # What it is told.

    def _hear(self, cli: FarCli, message: Message) -> None:
        answers: dict[str, Callable[[FarCli, Message], object]] = {
            "connect": self._connect,
            "session.create": self._create,
            "session.resume": self._resume,
            "session.detach": self._detach,
            "session.destroy": self._detach,
            "session.send": self._send,
            "session.abort": self._abort,
            "session.getMessages": self._messages,
            "session.metadata.activity": self._activity,
            "session.permissions.handlePendingPermissionRequest": self._decided,
            "session.tasks.list": self._tasks_list,
            "session.tasks.cancel": self._task_cancel,
        }
        method = message.get("method", "")
        if method in answers:
            answers[method](cli, message)
        elif "id" in message:
            cli.refuse(message, f"Unhandled method {method}", UNKNOWN)

    def _connect(self, cli: FarCli, request: Message) -> None:
        cli.answer(request, {"ok": True, "protocolVersion": 3, "version": "1.0.102"})

    def _create(self, cli: FarCli, request: Message) -> None:
        cli.answer(request, {"sessionId": request["params"]["sessionId"], "workspacePath": "/w"})

    def _resume(self, cli: FarCli, request: Message) -> None:
        session = request["params"]["sessionId"]
        if session in self.on_disk:
            self._create(cli, request)
        else:
            cli.refuse(request, f"Session not found: {session}")

    def _detach(self, cli: FarCli, request: Message) -> None:
        cli.answer(request, {"success": True})

    def _messages(self, cli: FarCli, request: Message) -> None:
        told = [one.body.get("params", {}) for one in self.wire if one.direction == "<-"]
        session = request["params"]["sessionId"]
        events = [one["event"] for one in told if one.get("sessionId") == session]
        cli.answer(request, {"events": [one for one in events if not one["ephemeral"]]})

    def _activity(self, cli: FarCli, request: Message) -> None:
        self.asked += 1
        busy = self._busy(request["params"]["sessionId"]) is not None
        cli.answer(request, {"abortable": busy, "hasActiveWork": busy})

    def _tasks_list(self, cli: FarCli, request: Message) -> None:
        cli.answer(request, {"tasks": self._list_tasks(request["params"]["sessionId"])})

    def _task_cancel(self, cli: FarCli, request: Message) -> None:
        done = self.tasks.pop(request["params"]["id"], None) is not None
        cli.answer(request, {"cancelled": done})

    def _busy(self, session: str) -> Work | None:
        """What the session works on, or is about to."""
        return next(
            (
                work
                for work in self.works
                if work.session == session and (work.runs or work.name in self._waiting)
            ),
            None,
        )

    # The levers of starts.

    def hold_starts(self) -> None:
        """Begin, and keep the answers back."""
        self._held = self._held or []

    def release_starts(self) -> None:
        """Send the answers that were kept back."""
        held, self._held = self._held or [], None
        for cli, request, work in held:
            self._answer_send(cli, request, work)

    def refuse_starts(self) -> None:
        """Take no message from now on; what is kept back has not begun either."""
        self._refuses = True
        for _, _, work in self._held or []:
            work.began_at = work.ended_at = None

    def _send(self, cli: FarCli, request: Message) -> None:
        params = request["params"]
        work = Work(self.name(1), params["prompt"], params["sessionId"], trio.current_time())
        self.works.append(work)
        self._doing[work.name] = Doing(cli)
        if self._held is not None:
            self._held.append((cli, request, work))
            if not self._refuses:
                self._begin(work)
            return
        self._answer_send(cli, request, work)
        if not self._refuses:
            self._waiting[work.name] = work
            self._soon(self._begin_soon, work)

    def _answer_send(self, cli: FarCli, request: Message, work: Work) -> None:
        if self._refuses:
            cli.refuse(request, "the message was refused")
        else:
            cli.answer(request, {"messageId": work.name})

    async def _begin_soon(self, work: Work) -> None:
        # What was taken and has not shown itself yet can be aborted: nothing of it is told then.
        await trio.sleep(_SHOWS_ITSELF)
        if self._waiting.pop(work.name, None) is not None:
            self._begin(work)

    # The levers of aborts.

    def hold_cancels(self) -> None:
        """Neither answer aborts nor obey them."""
        self._obey = lambda cli, request, work: None

    def refuse_cancels(self) -> None:
        """Answer aborts by an error, and go on."""
        self._obey = lambda cli, request, work: cli.refuse(request, "it cannot be aborted")

    def ignore_cancels(self) -> None:
        """Acknowledge aborts, and go on."""
        self._obey = lambda cli, request, work: cli.answer(request, {"success": True})

    def hold_acknowledgements(self) -> None:
        """Obey aborts, and do not answer them."""

        def obey(cli: FarCli, request: Message, work: Work) -> None:
            self._stop(cli, work)
            self._told_idle(work)

        self._obey = obey

    def end_late(self, seconds: float) -> None:
        """Acknowledge aborts at once, and obey them later."""

        self.late = seconds

        async def stop_later(cli: FarCli, work: Work) -> None:
            await trio.sleep(seconds)
            if work.ended_at is None:
                self._stop(cli, work)
                self._told_idle(work)

        def acknowledge(cli: FarCli, request: Message, work: Work) -> None:
            if seconds:
                cli.answer(request, {"success": True})
                self._soon(stop_later, cli, work)
                return
            self._stop(cli, work)
            cli.answer(request, {"success": True})
            self._told_idle(work)

        self._obey = acknowledge

    def _stop(self, cli: FarCli, work: Work) -> None:
        cli.event(str(work.session), "abort", reason="user_initiated")
        if self._waiting.pop(work.name, None) is None:
            self._interrupt(work)

    def _told_idle(self, work: Work) -> None:
        if self.idles:
            self._over(work, aborted=True)
        elif work.began_at is not None:
            work.ended_at = trio.current_time()

    def _abort(self, cli: FarCli, request: Message) -> None:
        session = request["params"]["sessionId"]
        work = self._busy(session)
        # It names no message: one that comes too late is the last one's.
        for told in [one for one in self.works if one.session == session][-1:]:
            (work or told).told_at.append(trio.current_time())
        if work is None:
            cli.answer(request, {"success": True})
        else:
            self._obey(cli, request, work)
