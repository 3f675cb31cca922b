"""What a real agent that speaks ACP is told and says: which prompt is which, and who was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import attrs
import trio

from ...transports.dialect import Frame, JsonRpc, Reply, Said
from .._probe import Work

__all__ = ["PromptLog", "Tapped"]


@attrs.define(eq=False)
class PromptLog:
    """The prompts that the processes of an agent were sent, as their wires show them.

    Attributes:
        look: called after each frame.
        works: a prompt each; the wire tells of all but when its work began and ended.
        over: the prompts that were answered, and when.
    """

    look: Callable[[], object]
    works: list[Work] = attrs.field(factory=list)
    over: dict[Work, float] = attrs.field(factory=dict)

    def note_prompt(self, params: Frame) -> Work:
        """A prompt is written."""
        text = " ".join(str(block.get("text", "")) for block in params["prompt"])
        name = f"prompt {len(self.works) + 1}"
        self.works.append(Work(name, text, str(params["sessionId"]), trio.current_time()))
        return self.works[-1]

    def note_cancel(self, session: str) -> None:
        """A cancel is written: it is for whatever the session works on."""
        for work in self.works:
            if work.session == session and work not in self.over:
                work.told_at.append(trio.current_time())

    def asking(self, session: str) -> Work | None:
        """Whose question a session asks."""
        mine = [one for one in self.works if one.session == session and one not in self.over]
        return mine[-1] if mine else None

    def note_over(self, work: Work) -> None:
        """A prompt is answered."""
        self.over.setdefault(work, trio.current_time())


@final
@attrs.define(eq=False)
class Tapped:
    """The dialect of one process of the agent, which tells a log what goes by."""

    log: PromptLog
    plain: JsonRpc = attrs.field(factory=JsonRpc)
    _prompts: dict[object, Work] = attrs.field(factory=dict)
    _questions: dict[object, Work] = attrs.field(factory=dict)

    def call(self, number: int, method: str, params: Frame) -> Frame:
        """A call of ours."""
        if method == "session/prompt":
            self._prompts[number] = self.log.note_prompt(params)
            self.log.look()
        return self.plain.call(number, method, params)

    def notification(self, method: str, params: Frame | None) -> Frame:
        """A notification of ours."""
        if method == "session/cancel" and params is not None:
            self.log.note_cancel(str(params["sessionId"]))
            self.log.look()
        return self.plain.notification(method, params)

    def result(self, number: object, result: object) -> Frame:
        """Our answer to a request."""
        self._note_answer(number, result)
        return self.plain.result(number, result)

    def refusal(self, number: object, message: str, code: int) -> Frame:
        """Our answer that it cannot be."""
        self._note_answer(number, message)
        return self.plain.refusal(number, message, code)

    def read(self, frame: Frame) -> Said | Reply:
        """Understand a frame of the agent's."""
        heard = self.plain.read(frame)
        if isinstance(heard, Reply):
            if (work := self._prompts.pop(heard.number, None)) is not None:
                self.log.note_over(work)
        elif heard.method == "session/request_permission":
            work = self.log.asking(str(heard.params.get("sessionId")))
            if work is not None:
                self._questions[heard.number] = work
        self.log.look()
        return heard

    def _note_answer(self, number: object, answer: Any) -> None:
        work = self._questions.pop(number, None)
        if work is not None:
            work.replies.append(answer)
        self.log.look()
