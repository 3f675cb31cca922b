"""An agent's program: processes that come and go, the truth of each prompt, and the levers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import trio

from ..._probe import Work
from ..._wire import WireFrame
from ._quirks import QUIRKS, Quirks
from ._server import AgentProcess, Answer, Frame, Handler, refusal

_MODES = {"modes": {"currentModeId": "default", "availableModes": [{"id": "default"}]}}
_OPTIONS = [
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]


def _nobody(*what: object) -> None:
    raise RuntimeError("it is not open")


@attrs.define(eq=False)
class _Prompt:
    """A prompt that was asked, and where its answer goes."""

    work: Work
    process: AgentProcess
    number: object
    end: Frame | None = None
    signed: bool = False
    deaf: bool = False
    said: bool = False
    open: set[int] = attrs.field(factory=set)
    cancelled: Frame | None = None
    over: trio.Event = attrs.field(factory=trio.Event)

    @property
    def unanswered(self) -> bool:
        return self.end is None


@attrs.define(eq=False, slots=False)
class RecordingAcp:
    """An ACP agent with levers. Its sessions outlive its processes, its prompts end with them.

    Attributes:
        quirks: what it gets wrong.
        wire: all that its processes were told and have said.
        works: the prompts that it was asked, oldest first.
        processes: those that were begun, oldest first.
        login: what it says where it wants a login.
        slow: seconds that `session/new` takes, and whatever takes a session up.
        history: the updates that `session/load` tells again.
        start_soon: starts what is done after a while.
    """

    quirks: Quirks = attrs.field(factory=lambda: QUIRKS["generic"])
    wire: list[WireFrame] = attrs.field(factory=list)
    works: list[Work] = attrs.field(factory=list)
    processes: list[AgentProcess] = attrs.field(factory=list)
    login: str | None = None
    slow: float = 0.0
    history: list[str] = attrs.field(factory=list)
    start_soon: Callable[..., None] = attrs.field(default=_nobody)
    _prompts: list[_Prompt] = attrs.field(factory=list, init=False)
    _on_disk: set[str] = attrs.field(factory=set, init=False)
    _clinging: set[AgentProcess] = attrs.field(factory=set, init=False)
    _count: Counter[str] = attrs.field(factory=Counter, init=False)
    _asked: dict[int, _Prompt] = attrs.field(factory=dict, init=False)
    _refuses: bool = attrs.field(default=False, init=False)
    _obey: Callable[[_Prompt], object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.end_late(0.0)

    def told(self, method: str) -> list[Frame]:
        """The requests and notifications of this method that it was told."""
        frames = [frame.body for frame in self.wire if frame.direction == "->"]
        return [one for one in frames if one.get("method") == method]

    # Processes.

    def begin(self) -> AgentProcess:
        """Begin a process."""
        handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._load,
            "session/set_mode": self._set_mode,
            "session/prompt": self._prompt,
            "session/close": self._close_session,
        }
        process = AgentProcess(
            self.wire,
            handlers,
            self._hear_request,
            self._hear_notification,
            self._hear_answer,
        )
        self.processes.append(process)
        return process

    def end(self, process: AgentProcess) -> None:
        """End a process, with everything that it works on."""
        process.hang_up()
        process.ended = True
        for prompt in self._prompts:
            if prompt.process is process:
                self._close(prompt.work)

    def put_down(self, process: AgentProcess) -> None:
        """End a process, if it can be ended."""
        if process not in self._clinging:
            self.end(process)

    def end_all(self) -> None:
        """End every process, as when the far end dies."""
        for process in self.processes:
            self.end(process)

    def cut(self) -> None:
        """Close the connections; the processes cannot be ended, and work on."""
        for process in self.processes:
            if not process.ended:
                process.hang_up()
                self._clinging.add(process)

    def babble(self) -> None:
        """Have each process write what is no JSON."""
        for process in self.processes:
            process.write_line(b"Update available! Run npm install -g agent")

    # Levers.

    def refuse_starts(self) -> None:
        """Begin no session from now on, nor take one up. Those in memory take prompts as ever."""
        self._refuses = True

    def ignore_cancels(self) -> None:
        """Go on in spite of cancels."""
        self._obey = lambda prompt: None

    def end_late(self, seconds: float) -> None:
        """Obey cancels, later."""

        def obey(prompt: _Prompt) -> None:
            if not seconds:
                self._cancel(prompt)
                return
            self.start_soon(self._cancel_later, prompt, seconds)

        self._obey = obey

    async def _cancel_later(self, prompt: _Prompt, seconds: float) -> None:
        await trio.sleep(seconds)
        self._cancel(prompt)

    # What a prompt does.

    def say(self, work: Work, text: str) -> None:
        """Say a piece of its answer; when it is over, only what its name tells apart."""
        prompt = self._of(work)
        if work.runs or self.quirks.names_messages:
            if self.quirks.ahead:
                self._count_tokens(prompt)
            prompt.said = True
            self._chunk(prompt, text)

    def _count_tokens(self, prompt: _Prompt) -> None:
        session = str(prompt.work.session)
        prompt.process.counted.add(session)
        prompt.process.update(session, "usage_update", used=1, size=1000)

    def _chunk(self, prompt: _Prompt, text: str) -> None:
        name = f"message-of-{prompt.work.name}" if self.quirks.names_messages else None
        prompt.process.chunk(str(prompt.work.session), text, name)

    def want_approval(self, work: Work) -> None:
        """Ask whether a command may be run."""
        if work.runs:
            prompt, number = self._of(work), len(self._asked)
            self._asked[number] = prompt
            prompt.open.add(number)
            call = self._begin_tool(work, prompt)
            params = {"sessionId": work.session, "toolCall": call, "options": _OPTIONS}
            method = "session/request_permission"
            prompt.process.write({"id": number, "method": method, "params": params})

    def run_command(self, work: Work) -> None:
        """Begin a command, which a cancel ends."""
        if work.runs:
            self._begin_tool(work, self._of(work))

    def _begin_tool(self, work: Work, prompt: _Prompt) -> Frame:
        if self.quirks.ahead:
            self._count_tokens(prompt)
        prompt.said = True
        call = {"toolCallId": self._name("call"), "title": "sleep 60", "status": "pending"}
        prompt.process.update(str(work.session), "tool_call", kind="execute", **call)
        return call

    def finish(self, work: Work) -> None:
        """Complete it."""
        if self.quirks.ahead and work.runs:
            self._tell_cost(work)
        self._answer(self._of(work), {"result": {"stopReason": "end_turn"}})

    def fail(self, work: Work) -> None:
        """Fail it, as when the model cannot be asked."""
        self._answer(self._of(work), refusal("the model was not reached"))

    def say_end_again(self, work: Work) -> None:
        """Answer it once more."""
        prompt = self._of(work)
        if prompt.end is not None:
            prompt.process.write({"id": prompt.number, **prompt.end})

    def _of(self, work: Work) -> _Prompt:
        return next(one for one in self._prompts if one.work is work)

    def _answer(self, prompt: _Prompt, answer: Frame, *, stays: bool = False) -> None:
        if prompt.unanswered and prompt.work.ended_at is None:
            prompt.end = answer
            if not stays:
                self._close(prompt.work)
            prompt.process.write({"id": prompt.number, **answer})

    def _close(self, work: Work) -> None:
        if work.runs:
            work.ended_at = trio.current_time()
            self._of(work).over.set()

    def _cancel(self, prompt: _Prompt) -> None:
        quirks = self.quirks
        answer: Frame = {"result": {"stopReason": "cancelled"}}
        if quirks.error is not None and not prompt.said:
            answer = {"error": quirks.error}
        elif quirks.empty and not prompt.said:
            answer = {"result": {"stopReason": "end_turn"}}
        if quirks.waits and prompt.open:
            prompt.cancelled = answer
            return
        self._answer(prompt, answer, stays=quirks.stays or quirks.ahead > 0)
        if quirks.ahead:
            self.start_soon(self._go_on, prompt)

    async def _go_on(self, prompt: _Prompt) -> None:
        await trio.sleep(self.quirks.ahead)
        if prompt.work.runs:
            if prompt.said:
                self._chunk(prompt, "late")
            self._close(prompt.work)
            self._tell_cost(prompt.work)

    def _tell_cost(self, work: Work) -> None:
        process = self._of(work).process
        if work.session not in process.counted:
            return
        cost = {"amount": 0.1, "currency": "USD"}
        told = {"used": 1, "size": 1000, "cost": cost}
        process.update(str(work.session), "usage_update", **told)

    # What it answers.

    async def _initialize(self, process: AgentProcess, frame: Frame) -> Answer:
        quirks = self.quirks
        result: Frame = {"protocolVersion": 1, "agentCapabilities": quirks.capabilities}
        if quirks.name:
            result["agentInfo"] = {"name": quirks.name, "version": quirks.version}
        if self.login is not None:
            result["authMethods"] = [{"id": "api-key", "name": "API key"}]
        return {"result": result}

    async def _new(self, process: AgentProcess, frame: Frame) -> Answer:
        if self.slow:
            await trio.sleep(self.slow)
        if self.login is not None:
            return refusal(self.login, -32000)
        if self._refuses:
            return refusal("no session was begun")
        session = self._name("session")
        process.sessions.add(session)
        self._on_disk.add(session)
        return {"result": {"sessionId": session, **_MODES}}

    async def _load(self, process: AgentProcess, frame: Frame) -> Answer:
        if frame["method"] == "session/resume" and not self.quirks.resumes:
            return refusal("Method not found", -32601)
        if self.slow:
            await trio.sleep(self.slow)
        session = frame["params"]["sessionId"]
        if self._refuses or session not in self._on_disk:
            return refusal(f"Session not found: {session}")
        if frame["method"] == "session/load":
            for text in self.history:
                process.chunk(session, text)
        process.sessions.add(session)
        return {"result": {**_MODES}}

    async def _set_mode(self, process: AgentProcess, frame: Frame) -> Answer:
        session = frame["params"]["sessionId"]
        for prompt in self._prompts:
            if prompt.work.runs and prompt.work.session == session:
                await prompt.over.wait()
        return {"result": {}}

    async def _close_session(self, process: AgentProcess, frame: Frame) -> Answer:
        process.sessions.discard(frame["params"]["sessionId"])
        return {"result": {}}

    def _hear_request(self, process: AgentProcess, frame: Frame) -> None:
        """A prompt is there when the cancel behind it is heard."""
        if frame["method"] != "session/prompt":
            return
        session = frame["params"]["sessionId"]
        text = " ".join(str(one.get("text", "")) for one in frame["params"]["prompt"])
        work = Work(self._name("prompt"), text, session, trio.current_time())
        self.works.append(work)
        self._prompts.append(_Prompt(work, process, frame["id"]))
        if session in process.sessions:
            work.began_at = work.asked_at

    async def _prompt(self, process: AgentProcess, frame: Frame) -> Answer:
        mine = (one for one in self._prompts if one.process is process)
        prompt = next(one for one in mine if one.number == frame["id"])
        if prompt.work.began_at is None:
            prompt.end = refusal("the session is not known")
            return prompt.end
        if self.quirks.names_messages and prompt.unanswered:
            self._chunk(prompt, "")
        if self.quirks.sign_after is not None:
            await trio.sleep(self.quirks.sign_after)
            if prompt.work.runs:
                prompt.signed = True
                process.update(str(prompt.work.session), "usage_update", used=1, size=1000)
        return None

    def _hear_notification(self, process: AgentProcess, frame: Frame) -> None:
        if frame["method"] != "session/cancel":
            return
        session = frame["params"]["sessionId"]
        mine = [one for one in self._prompts if one.work.session == session]
        prompt = next((one for one in mine if one.work.runs), mine[-1] if mine else None)
        if prompt is None:
            return
        prompt.work.told_at.append(trio.current_time())
        prompt.deaf = prompt.deaf or (self.quirks.loses_early and not prompt.signed)
        missed = self.quirks.misses and len(prompt.work.told_at) == 1
        if prompt.work.runs and not prompt.deaf and not missed:
            self._obey(prompt)

    def _hear_answer(self, process: AgentProcess, frame: Frame) -> None:
        prompt = self._asked.get(frame["id"])
        if prompt is None:
            return
        outcome: Any = frame.get("result", {}).get("outcome", frame.get("error"))
        prompt.work.replies.append(outcome)
        prompt.open.discard(frame["id"])
        if prompt.cancelled is not None and not prompt.open:
            self._answer(prompt, prompt.cancelled)

    def _name(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}-{self._count[kind]}"
