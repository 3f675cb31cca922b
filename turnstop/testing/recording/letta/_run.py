"""A run, as the server keeps it, and the stream in which it speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import httpx

from ..._probe import Work
from .._far_http import FedStream
from ._frames import DONE, Answer, error, event, message, stop_reason, usage


class Stream(FedStream, httpx.AsyncByteStream):
    """A stream that somebody sends into, ends, or breaks."""

    broken = httpx.ReadError


@attrs.define(eq=False)
class Run:
    """One run: a message was sent, and a model is asked.

    Attributes:
        number: part of every name that belongs to it.
        agent_id: the agent.
        conversation_id: the conversation, if it is in one.
        work: what it works on; a work that asks for approvals goes on in another run.
        reason: its stop reason, once it was said.
        traced: whether its model call is over and written down.
        answered: whether its message was answered.
        asked: the tool call that it ended for, where that needs an approval.
        mark: what its message carried, and its step does.
        told: whether it was told to be cancelled; it is called so at once.
    """

    number: int
    agent_id: str
    conversation_id: str | None
    work: Work
    reason: str | None = None
    traced: bool = False
    answered: bool = False
    asked: str = ""
    mark: str | None = None
    told: bool = False
    stream: Stream = attrs.field(factory=Stream)

    @property
    def id(self) -> str:
        """Its name."""
        return f"run-{self.number}"

    @property
    def step_id(self) -> str:
        """Its only step's name."""
        return f"step-{self.number}"

    @property
    def where(self) -> str:
        """Whose history it writes: what only one run at a time may have."""
        return self.conversation_id or self.agent_id

    @property
    def waits(self) -> bool:
        """Whether it ended for an approval that nobody has given yet."""
        return self.reason == "requires_approval"

    def answer(self, replies: list[Answer]) -> None:
        """Take replies to what it asked: it waits no longer."""
        self.reason = "end_turn"
        self.work.replies.extend(replies)

    def say(self, kind: str, **said: object) -> None:
        """Say a message of the model."""
        ids = {"run_id": self.id, "step_id": self.step_id}
        self.stream.say_raw(event(message(kind, f"message-{self.number}", **ids, **said)))

    def end(self, reason: str, detail: str = "") -> None:
        """Say why it is over, and end the stream as the server does for this reason."""
        self.reason, self.traced = reason, reason != "cancelled"
        self.stream.say_raw(event(stop_reason(reason)))
        if reason == "cancelled":
            self.stream.end()
            return
        if detail:
            self.stream.say_raw(event(error(self.id, "llm_error", detail), "error"))
        else:
            self.stream.say_raw(event(usage()))
        self.stream.say_raw(DONE)
        self.stream.end()


def run_of(run: Run) -> Answer:
    """What the server tells of a run."""
    called_off = run.told and run.reason in (None, "requires_approval")
    reason = "cancelled" if called_off else run.reason
    status = {None: "running", "cancelled": "cancelled"}.get(reason, "completed")
    if reason is not None and "error" in reason:
        status = "failed"
    ids = {"id": run.id, "agent_id": run.agent_id, "conversation_id": run.conversation_id}
    return {**ids, "status": status, "stop_reason": reason}


def runs_in(runs: Iterable[Run], asked: Mapping[str, str]) -> list[Answer]:
    """What the server lists of runs, asked in these words."""
    place = asked.get("conversation_id")
    found = [run for run in runs if run.agent_id == asked["agent_id"]]
    found = [run for run in found if place in (None, run.conversation_id)]
    numbers = [run.id for run in found]
    if (after := asked.get("after")) in numbers:
        found = found[numbers.index(after) + 1 :]
    if asked["order"] == "desc":
        found.reverse()
    return [run_of(run) for run in found[: int(asked["limit"])]]


def messages_of(run: Run) -> list[Answer]:
    """What the server tells of the messages of a run."""
    if not run.asked:
        return []
    call = {"tool_call_id": run.asked, "name": "bake"}
    return [message("approval_request_message", f"message-{run.number}", tool_calls=[call])]


def steps_of(run: Run) -> list[Answer]:
    """What the server lists of the steps of a run."""
    status = "pending"
    if run.reason and run.traced:
        status = "failed" if run.reason == "cancelled" else "success"
    ids = {"id": run.step_id, "run_id": run.id, "agent_id": run.agent_id}
    return [{**ids, "status": status, "request_id": run.mark}]


def trace_of(run: Run) -> Answer | None:
    """What the server has written down of its model call."""
    if not run.traced:
        return None
    said: Answer = {"request_json": {}, "response_json": {}}
    return {"id": f"provider_trace-{run.number}", "step_id": run.step_id, **said}
