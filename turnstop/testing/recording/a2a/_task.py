"""A task, as the agent that works on it keeps it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import trio

from ..._probe import Work
from ._frames import Answer
from ._transport import Stream

_OVER = ("COMPLETED", "CANCELED", "FAILED", "REJECTED")


@attrs.define(eq=False)
class AgentTask:
    """One task: what was said of it, and to whom.

    Attributes:
        id: the agent's name for it.
        context_id: the conversation.
        published: whether anybody may know of it.
        works: the messages that it was given, oldest first.
        state: what was said last, such as `WORKING`.
        rests: set when the agent says that it goes no further by itself.
    """

    id: str
    context_id: str
    _names: Iterator[int]
    published: bool = False
    works: list[Work] = attrs.field(factory=list)
    state: str = "SUBMITTED"
    rests: trio.Event = attrs.field(factory=trio.Event)
    _words: Answer = attrs.field(factory=dict)
    _artifacts: list[Answer] = attrs.field(factory=list)
    _history: list[Answer] = attrs.field(factory=list)
    _streams: list[Stream] = attrs.field(factory=list)

    @property
    def work(self) -> Work:
        """The newest work."""
        return self.works[-1]

    @property
    def over(self) -> bool:
        """Whether a state was said after which nothing is said."""
        return self.state in _OVER

    def take(self, message: Answer) -> Work:
        """Note a message of the client; nothing begins yet."""
        text = "".join(part.get("text", "") for part in message["parts"])
        self._history.append({**message, "contextId": self.context_id, "taskId": self.id})
        self.works.append(Work(self.id, text, self.context_id, trio.current_time()))
        self.rests = trio.Event()
        return self.work

    def snapshot(self) -> Answer:
        """The task as a whole."""
        found: Answer = {"id": self.id, "contextId": self.context_id, "status": self._status()}
        if self._artifacts:
            found["artifacts"] = list(self._artifacts)
        return {**found, "history": list(self._history)}

    def move(self, state: str, text: str) -> None:
        """Say that it is in another state now."""
        if self._words:
            self._history.append(self._words)
        self.state, self._words = state, self._message(text)
        self.say(self.last_word())
        if self.over or state == "INPUT_REQUIRED":
            self.rests.set()

    def last_word(self) -> Answer:
        """The event that it is in the state that it is in."""
        return {"statusUpdate": {**self._ids(), "status": self._status()}}

    def add(self, text: str) -> None:
        """Say a piece of the result."""
        made = {"artifactId": self._name("artifact"), "name": "result", "parts": [{"text": text}]}
        self._artifacts.append(made)
        self.say({"artifactUpdate": {**self._ids(), "artifact": made}})

    def open_stream(self, request_id: object, whole: bool) -> Stream:
        """A stream of all that is said from now on, beginning with the task where it is wanted."""
        stream = Stream(request_id)
        if whole:
            stream.say({"task": self.snapshot()})
        self._streams.append(stream)
        return stream

    def end(self) -> None:
        """The work is over; whoever listened is told so."""
        if self.work.runs:
            self.work.ended_at = trio.current_time()
        for stream in self._streams:
            stream.end()
        self._streams.clear()

    def babble(self) -> None:
        """Say what is not of the protocol."""
        for stream in self._streams:
            stream.say_raw("data: lorem ipsum\n\n")

    def break_off(self) -> None:
        """Nobody listens any more."""
        for stream in self._streams:
            stream.break_off()
        self._streams.clear()

    def say(self, event: Answer) -> None:
        """Send an event to everybody who listens."""
        for stream in self._streams:
            stream.say(event)

    def _status(self) -> Answer:
        words = {"message": self._words} if self._words else {}
        return {"state": f"TASK_STATE_{self.state}", **words}

    def _message(self, text: str) -> Answer:
        name = self._name("message")
        said = {"role": "ROLE_AGENT", "parts": [{"text": text}]}
        return {"messageId": name, **self._ids(), **said}

    def _ids(self) -> Answer:
        return {"taskId": self.id, "contextId": self.context_id}

    def _name(self, what: str) -> str:
        return f"{what}-{next(self._names)}"
