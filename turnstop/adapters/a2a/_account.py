"""What an agent has said of one turn, and the events and the end that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from a2a.types import a2a_pb2 as pb

from ..._errors import BackendMisbehaved
from ...abc import End, How, Proof
from ...events import Event, Other, Text, Thought
from ._wire import text_of

_HOW: Final[dict[int, How]] = {
    pb.TASK_STATE_COMPLETED: How.COMPLETED,
    pb.TASK_STATE_INPUT_REQUIRED: How.COMPLETED,
    pb.TASK_STATE_AUTH_REQUIRED: How.COMPLETED,
    pb.TASK_STATE_CANCELED: How.CANCELLED,
    pb.TASK_STATE_FAILED: How.FAILED,
    pb.TASK_STATE_REJECTED: How.FAILED,
}
_WAITING: Final = (pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED)


@attrs.define(eq=False)
class Account:
    """The turn's side of the story.

    Attributes:
        post: takes the events.
        context_id: the conversation, as the agent calls it.
        task_id: the task, once it is known.
        heard: how many events of a stream were taken in.
    """

    post: Callable[[Event], None]
    context_id: str
    task_id: str | None
    heard: int = 0
    _sure: bool = False
    _state: int = pb.TASK_STATE_UNSPECIFIED
    _mark: tuple[int, str, str] | None = None
    _detail: str = ""
    _said: dict[str, int] = attrs.field(factory=dict)

    @property
    def over(self) -> bool:
        """Whether the state that was said last ends a turn."""
        return self._state in _HOW

    @property
    def waits(self) -> bool:
        """Whether the task waits for a person."""
        return self._state in _WAITING

    def end(self, proof: Proof) -> End:
        """The end that the last state stands for."""
        return End(_HOW[self._state], proof, detail=self._detail)

    def begin_at(self, task: pb.Task) -> None:
        """Take what the task has said up to now as said before this turn."""
        self._mark = _mark(task.status)
        self._said = {one.artifact_id: len(text_of(one.parts)) for one in task.artifacts}

    def believe(self) -> None:
        """Take the next state for this turn's, though it may be an old one."""
        self._mark = None

    def hear(self, event: pb.StreamResponse) -> None:
        """Take in an event of a stream."""
        kind = event.WhichOneof("payload")
        if self._is_anothers(_task_of(event)):
            return
        if kind == "task":
            self.hear_task(event.task)
        elif kind == "message":
            self._state = pb.TASK_STATE_COMPLETED
            self.post(Text(text_of(event.message.parts), raw=event))
        elif kind == "status_update":
            self._know(event.status_update.task_id, event.status_update.context_id)
            self._hear_status(event.status_update.status)
        elif kind == "artifact_update":
            self._know(event.artifact_update.task_id, event.artifact_update.context_id)
            self._hear_artifact(event.artifact_update.artifact, event.artifact_update.append)
        else:
            raise BackendMisbehaved("the agent sent an event of a kind that A2A does not have")
        self.heard += 1

    def hear_task(self, task: pb.Task) -> None:
        """Take in the task as a whole: of its artifacts, what was not said before."""
        self._know(task.id, task.context_id)
        self._sure = True
        for artifact in task.artifacts:
            text = text_of(artifact.parts)
            known = self._said.get(artifact.artifact_id, 0)
            self._say(artifact, text[known:], max(known, len(text)))
        self._hear_status(task.status)

    def _hear_artifact(self, artifact: pb.Artifact, append: bool) -> None:
        text = text_of(artifact.parts)
        known = self._said.get(artifact.artifact_id, 0) if append else 0
        self._say(artifact, text, known + len(text))

    def _say(self, artifact: pb.Artifact, text: str, length: int) -> None:
        seen = artifact.artifact_id in self._said
        self._said[artifact.artifact_id] = length
        if text:
            self.post(Text(text, raw=artifact))
        elif not seen:
            self.post(Other("artifact", raw=artifact))

    def _hear_status(self, status: pb.TaskStatus) -> None:
        if (mark := _mark(status)) == self._mark:
            return
        self._mark, self._state = mark, status.state
        text = text_of(status.message.parts)
        if _HOW.get(status.state, How.COMPLETED) is not How.COMPLETED:
            self._detail = text
        elif text:
            kind = Text if status.state in _HOW else Thought
            self.post(kind(text, raw=status))
        if not text:
            name = pb.TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()
            self.post(Other(name, raw=status))

    def _is_anothers(self, task_id: str) -> bool:
        # The first event says which task it is, also where another was to be continued. Of one
        # that came as a whole there is no doubt: then another's last words end nothing here.
        if not (self.heard and self.task_id) or task_id in ("", self.task_id):
            return False
        if self._sure:
            return True
        raise BackendMisbehaved(
            f"the agent told of task {task_id} in the stream of task {self.task_id}"
        )

    def _know(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id or self.task_id
        self.context_id = context_id or self.context_id


def is_waiting(task: pb.Task) -> bool:
    """Whether a task waits for a person."""
    return task.status.state in _WAITING


def has_answered(task: pb.Task, message_id: str) -> bool:
    """Whether an agent has said something since a message came.

    What a task has asked last goes to its history when a message comes (a2a-sdk 1.1).
    """
    told = [message.message_id for message in task.history]
    return message_id in told and (task.status.HasField("message") or told[-1] != message_id)


def _task_of(event: pb.StreamResponse) -> str:
    kind = event.WhichOneof("payload")
    if kind == "task":
        return event.task.id
    said = getattr(event, kind) if kind in ("status_update", "artifact_update") else None
    return said.task_id if said is not None else ""


def _mark(status: pb.TaskStatus) -> tuple[int, str, str]:
    return status.state, status.message.message_id, status.timestamp.ToJsonString()
