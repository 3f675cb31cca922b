"""One session of the server in memory: what it holds, and what is said when that changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import attrs
import trio

from ..._probe import Work

Frame: TypeAlias = dict[str, Any]
ABORTED: Frame = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}


@attrs.define(eq=False)
class Run:
    """A message that is worked on.

    Attributes:
        work: what the probe sees of it.
        message: the id of the message.
        answer: the assistant's message.
        spoken: what was said of the answer.
        terminal: the event that told its end.
    """

    work: Work
    message: str
    answer: Frame
    spoken: str = ""
    terminal: Frame | None = None


@attrs.define(eq=False)
class Session:
    """A session.

    Attributes:
        id: its name.
        say: takes what is said of it: a kind and its properties.
        parent: the session that it is a sub-agent of.
        messages: its history, as the server tells it.
        run: what it works on.
        last: what it has worked on last.
        deaf: how many aborts come before it can be aborted.
        conversation: the session that this one is a fork of, or its own name.
    """

    id: str
    say: Callable[[str, Frame], None]
    names: Iterator[int]
    parent: str | None = None
    messages: list[Frame] = attrs.field(factory=list)
    run: Run | None = None
    last: Run | None = None
    deaf: int = 0
    deleted: bool = False
    conversation: str = attrs.field()

    @conversation.default
    def _its_own(self) -> str:
        return self.id

    def holds(self, message: str) -> bool:
        """Whether a message is in its history."""
        return any(one["info"]["id"] == message for one in self.messages)

    def info(self) -> Frame:
        """What the server says of it."""
        found: Frame = {"id": self.id, "title": "a session", "version": "1.18.33"}
        return found if self.parent is None else {**found, "parentID": self.parent}

    def take(self, body: Frame, work: Work) -> Run:
        """Take a message, and work on it."""
        message = body["messageID"]
        user = {"id": message, "role": "user", "sessionID": self.id, "time": {"created": 1}}
        part = {**body["parts"][0], "id": self._name("prt"), "messageID": message}
        self.messages.append({"info": user, "parts": [part]})
        self.tell("message.updated", info=user)
        self.tell("message.part.updated", part={**part, "sessionID": self.id})
        self.tell("session.status", status={"type": "busy"})
        answer: Frame = {
            "id": self._name("msg"),
            "parentID": message,
            "role": "assistant",
            "sessionID": self.id,
            "time": {"created": 2},
        }
        self.messages.append({"info": answer, "parts": []})
        self.tell("message.updated", info=answer)
        self.run = self.last = Run(work, message, answer)
        return self.run

    def speak(self, text: str) -> None:
        """Say a piece of the answer."""
        assert self.run is not None
        parts = self.messages[-1]["parts"]
        if not parts:
            part = {"id": self._name("prt"), "type": "text", "text": ""}
            parts.append({**part, "messageID": self.run.answer["id"], "sessionID": self.id})
            self.tell("message.part.updated", part=dict(parts[0]))
        # What it keeps of a part stays empty until the part is whole.
        self.run.spoken += text
        self.tell(
            "message.part.delta",
            messageID=self.run.answer["id"],
            partID=parts[0]["id"],
            field="text",
            delta=text,
        )

    def end(self, error: Frame | None = None, finish: str | None = None) -> None:
        """End what is worked on."""
        run = self.run
        assert run is not None
        self.run = None
        run.work.ended_at = trio.current_time()
        run.answer["time"] = {"created": 2, "completed": 3}
        if error is not None:
            run.answer["error"] = error
            self.tell("session.error", error=error)
        if finish is not None:
            run.answer["finish"] = finish
        if error is ABORTED:
            self.go_idle()
        if run.spoken:
            part = self.messages[-1]["parts"][0]
            part["text"] = run.spoken
            self.tell("message.part.updated", part=part)
        run.terminal = self.tell("message.updated", info=run.answer)
        self.go_idle()

    def go_idle(self) -> None:
        """Say that nothing is worked on."""
        self.tell("session.status", status={"type": "idle"})
        self.tell("session.idle")

    def tell(self, kind: str, **properties: Any) -> Frame:
        """Say something of this session."""
        told = {"sessionID": self.id, **{key: _copy(one) for key, one in properties.items()}}
        self.say(kind, told)
        return told

    def _name(self, kind: str) -> str:
        return f"{kind}_{next(self.names):012x}"


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def counting() -> Iterator[int]:
    """Numbers for names."""
    return itertools.count(1)
