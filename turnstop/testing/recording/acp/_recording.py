"""An agent's program: processes that come and go, the truth of each prompt, and the levers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio

from ..._probe import Work
from ..._wire import WireFrame
from ._server import AgentProcess, Answer, Frame, Handler, refusal
from ._working import Prompt, WorkingAcp

_MODES = {
    "modes": {
        "currentModeId": "default",
        "availableModes": [{"id": "default"}, {"id": "plan"}, {"id": "read-only"}],
    }
}


@attrs.define(eq=False, slots=False)
class RecordingAcp(WorkingAcp):
    """An ACP agent with levers. Its sessions outlive its processes, its prompts end with them.

    Attributes:
        wire: all that its processes were told and have said.
        works: the prompts that it was asked, oldest first.
        processes: those that were begun, oldest first.
        login: what it says where it wants a login.
        slow_to_greet: seconds that `initialize` takes.
        slow: seconds that `session/new` takes, and whatever takes a session up.
        history: the updates that `session/load` tells again.
        late: seconds that it takes to obey.
    """

    wire: list[WireFrame] = attrs.field(factory=list)
    works: list[Work] = attrs.field(factory=list)
    processes: list[AgentProcess] = attrs.field(factory=list)
    login: str | None = None
    slow_to_greet: float = 0.0
    slow: float = 0.0
    history: list[str] = attrs.field(factory=list)
    late: float = 0.0
    _on_disk: set[str] = attrs.field(factory=set, init=False)
    _clinging: set[AgentProcess] = attrs.field(factory=set, init=False)
    _refuses: bool = attrs.field(default=False, init=False)
    _obey: Callable[[Prompt], object] = attrs.field(init=False)

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

    async def end_left(self, process: AgentProcess) -> None:
        """End a process whose owner is gone; it takes as long as a cancel does.

        **Cancellation:** it does not end.
        """
        await trio.sleep(self.late)
        self.put_down(process)

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
        self.late = seconds

        def obey(prompt: Prompt) -> None:
            if not seconds:
                self._cancel(prompt)
                return
            self.start_soon(self._cancel_later, prompt, seconds)

        self._obey = obey

    async def _cancel_later(self, prompt: Prompt, seconds: float) -> None:
        await trio.sleep(seconds)
        self._cancel(prompt)

    # What it answers.

    async def _initialize(self, process: AgentProcess, frame: Frame) -> Answer:
        if self.slow_to_greet:
            await trio.sleep(self.slow_to_greet)
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
        self._prompts.append(Prompt(work, process, frame["id"]))
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
