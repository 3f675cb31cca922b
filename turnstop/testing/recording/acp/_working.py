"""An agent whose prompts work: they talk, run tools, ask, and are answered in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import trio

from ..._probe import Work
from ._quirks import QUIRKS, Quirks
from ._server import AgentProcess, Frame, refusal

_OPTIONS = [
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]


def _nobody(*what: object) -> None:
    raise RuntimeError("it is not open")


@attrs.define(eq=False)
class Prompt:
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
class WorkingAcp:
    """What the prompts of an agent do.

    Attributes:
        quirks: what it gets wrong.
        start_soon: starts what is done after a while.
    """

    quirks: Quirks = attrs.field(factory=lambda: QUIRKS["generic"])
    start_soon: Callable[..., None] = attrs.field(default=_nobody, kw_only=True)
    _prompts: list[Prompt] = attrs.field(factory=list, init=False)
    _count: Counter[str] = attrs.field(factory=Counter, init=False)
    _asked: dict[int, Prompt] = attrs.field(factory=dict, init=False)

    def say(self, work: Work, text: str) -> None:
        """Say a piece of its answer; when it is over, only what its name tells apart."""
        prompt = self._of(work)
        if work.runs or self.quirks.names_messages:
            if self.quirks.ahead:
                self._count_tokens(prompt)
            prompt.said = True
            self._chunk(prompt, text)

    def _count_tokens(self, prompt: Prompt) -> None:
        session = str(prompt.work.session)
        prompt.process.counted.add(session)
        prompt.process.update(session, "usage_update", used=1, size=1000)

    def _chunk(self, prompt: Prompt, text: str) -> None:
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

    def _begin_tool(self, work: Work, prompt: Prompt) -> Frame:
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

    def come_to_limit(self, work: Work) -> None:
        """Answer that it has come to a limit, as when it turns in circles."""
        answer = {"result": {"stopReason": "max_turn_requests"}}
        self._answer(self._of(work), answer, stays=self.quirks.reads_on)

    def say_end_again(self, work: Work) -> None:
        """Answer it once more."""
        prompt = self._of(work)
        if prompt.end is not None:
            prompt.process.write({"id": prompt.number, **prompt.end})

    def _of(self, work: Work) -> Prompt:
        return next(one for one in self._prompts if one.work is work)

    def _answer(self, prompt: Prompt, answer: Frame, *, stays: bool = False) -> None:
        if prompt.unanswered and prompt.work.ended_at is None:
            prompt.end = answer
            if not stays:
                self._close(prompt.work)
            prompt.process.write({"id": prompt.number, **answer})

    def _close(self, work: Work) -> None:
        if work.runs:
            work.ended_at = trio.current_time()
            self._of(work).over.set()

    def _cancel(self, prompt: Prompt) -> None:
        quirks = self.quirks
        if quirks.reads_on and not prompt.unanswered:
            self._close(prompt.work)
            return
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

    async def _go_on(self, prompt: Prompt) -> None:
        await trio.sleep(self.quirks.ahead)
        while prompt.open:  # noqa: ASYNC110 - a record gives no event
            await trio.sleep(0.001)
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

    def _name(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}-{self._count[kind]}"
