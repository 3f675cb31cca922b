"""An A2A agent that keeps tasks, records what it is told, and does what its levers say.

It answers as the reference server of a2a-sdk does, frame by frame. As there, CANCELED is said when
the cancel is taken, and the stream ends when the work has ended, which may be much later.
"""

from __future__ import annotations

import itertools
from typing import Literal, TypeAlias

import attrs
import httpx
import trio

from ..._probe import Work
from .._far_http import HeldStarts
from ._frames import Answer, refused
from ._task import AgentTask
from ._transport import AgentTransport, Stream

Kind: TypeAlias = Literal["streaming", "polling", "plain"]
Cancels: TypeAlias = Literal["obeyed", "held", "refused", "ignored", "unanswered"]

_NOT_FOUND = refused(-32001, "Task not found")
_NOT_CANCELABLE = refused(-32002, "Task cannot be canceled")
_NO_CANCEL = refused(-32004, "This agent cancels nothing")
_NO_START = refused(-32005, "This agent takes no such message")


@attrs.define(eq=False)
class _Pending:
    """A request that is not answered yet, and what becomes of it instead."""

    method: str
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    instead: httpx.Response | Exception | None = None

    def answer(self, instead: httpx.Response | Exception) -> None:
        self.instead = instead
        self.scope.cancel()


class RecordingAgent(HeldStarts, AgentTransport):
    """An agent with levers. Give it to `open_a2a` as its transport, and have it `die` in the end.

    Args:
        kind: it streams; or it answers a message at once with its task, which is to be polled; or
            it answers a message when its work is over.
        nursery: for what it does by itself.

    Attributes:
        works: every message that it was sent, refused ones included.
        cancels: what becomes of a cancel.
        ends_after: how many seconds after a cancel that is obeyed the work ends.
        refuses: whether messages are refused.
    """

    def __init__(self, kind: Kind, nursery: trio.Nursery) -> None:
        super().__init__(streaming=kind == "streaming")
        self.works: list[Work] = []
        self.cancels: Cancels = "obeyed"
        self.ends_after = 0.0
        self.refuses = False
        self._streams, self._blocks = kind == "streaming", kind == "plain"
        self._nursery = nursery
        self._names = itertools.count(1)
        self._tasks: dict[str, AgentTask] = {}
        self._pending: list[_Pending] = []
        self._babbles = False

    async def answer(
        self, method: str, params: Answer, request_id: object
    ) -> Answer | Stream | httpx.Response:
        """Answer a request, unless it is broken off first.

        **Cancellation:** what was begun goes on.
        """
        pending = _Pending(method)
        self._pending.append(pending)
        try:
            with pending.scope:
                return await self._answer(method, params, request_id)
        finally:
            self._pending.remove(pending)
        if isinstance(pending.instead, httpx.Response):
            return pending.instead
        assert pending.instead is not None
        raise pending.instead

    async def _answer(
        self, method: str, params: Answer, request_id: object
    ) -> Answer | Stream | httpx.Response:
        if method in ("SendMessage", "SendStreamingMessage"):
            return await self._send(method, params["message"], request_id)
        if self._babbles:
            return _garbage()
        if method == "ListTasks":
            return self._list(params.get("contextId", ""))
        task = self._tasks.get(params["id"])
        if task is None or not task.published:
            return _NOT_FOUND
        if method == "GetTask":
            return task.snapshot()
        if method == "SubscribeToTask":
            return _is_over(task) if task.over else task.open_stream(request_id, whole=True)
        return await self._cancel(task)

    async def _send(self, method: str, message: Answer, request_id: object) -> Answer | Stream:
        task = self._task_of(message)
        if task is None:
            return _NOT_FOUND
        if task.over:
            return _is_over(task)
        work, fresh = task.take(message), not task.published
        self.works.append(work)
        if not self.refuses:
            work.began_at = trio.current_time()
        await self._let_start()
        if self.refuses:
            work.began_at = None
            return _NO_START
        task.published = True
        return await self._reveal(method, task, work, request_id, fresh)

    async def _reveal(
        self, method: str, task: AgentTask, work: Work, request_id: object, fresh: bool
    ) -> Answer | Stream:
        """Answer a message: its work has begun, and may be over where the answer was held."""
        over = task.over or not work.runs
        stream = task.open_stream(request_id, fresh or over) if method != "SendMessage" else None
        answer = {"task": task.snapshot()}
        if not over:
            task.move("WORKING", "working")
        if stream is not None:
            if not work.runs:
                stream.end()
            return stream
        if not self._blocks:
            return answer
        await task.rests.wait()
        return {"task": task.snapshot()}

    def _task_of(self, message: Answer) -> AgentTask | None:
        if "taskId" in message:
            return self._tasks.get(message["taskId"])
        number = next(self._names)
        context = message.get("contextId") or f"context-{number}"
        task = AgentTask(f"task-{number}", context, self._names)
        self._tasks[task.id] = task
        return task

    def _list(self, context_id: str) -> Answer:
        known = [task for task in self._tasks.values() if task.published]
        found = [task.snapshot() for task in known if task.context_id == context_id]
        return {"tasks": found, "pageSize": 50, "totalSize": len(found), "nextPageToken": ""}

    async def _cancel(self, task: AgentTask) -> Answer:
        task.work.told_at.append(trio.current_time())
        if task.over:
            return _NOT_CANCELABLE
        if self.cancels == "refused":
            return _NO_CANCEL
        if self.cancels != "held":
            task.move("CANCELED", "cancelled")
            if self.cancels != "ignored":
                self._end(task, self.ends_after)
        if self.cancels in ("held", "unanswered"):
            await trio.sleep_forever()
        return task.snapshot()

    def _end(self, task: AgentTask, after: float) -> None:
        if after:
            self._nursery.start_soon(_end_later, task, after)
        else:
            task.end()

    # The levers.

    def refuse_starts(self) -> None:
        """Refuse messages from now on, and those that are held."""
        self.refuses = True
        for work in self.works:
            task = self._tasks.get(work.name)
            if task is not None and not task.published:
                work.began_at = None

    def say(self, work: Work, text: str) -> None:
        """Have a work say a piece of its result."""
        if work.runs:
            self._tasks[work.name].add(text)

    def end(self, work: Work, state: str, text: str = "") -> None:
        """Have a work end by itself: COMPLETED, FAILED, or INPUT_REQUIRED."""
        task = self._tasks[work.name]
        if not work.runs:
            return
        if not task.over:
            task.move(state, text)
        task.end()

    def say_end_again(self, work: Work) -> None:
        """Say a task's last state once more, to whoever listens in its conversation."""
        told = self._tasks[work.name]
        for task in self._tasks.values():
            if task.context_id == told.context_id:
                task.say(told.last_word())

    def babble(self) -> None:
        """Send garbage into every stream, and as the answer to every other request."""
        self._babbles = not self._streams
        for task in self._tasks.values():
            task.babble()
        for pending in self._pending:
            if pending.method == "SendMessage":
                pending.answer(_garbage())

    def cut(self) -> None:
        """Break every connection, and work on."""
        for task in self._tasks.values():
            task.break_off()
        for pending in self._pending:
            pending.answer(httpx.ReadError("the cable was pulled"))

    def die(self) -> None:
        """Break every connection and forget all; the next request meets an agent without tasks."""
        self.cut()
        for task in self._tasks.values():
            task.end()
        self._tasks.clear()


async def _end_later(task: AgentTask, seconds: float) -> None:
    await trio.sleep(seconds)
    task.end()


def _is_over(task: AgentTask) -> Answer:
    return refused(-32004, f"Task {task.id} is in terminal state: TASK_STATE_{task.state}")


def _garbage() -> httpx.Response:
    return httpx.Response(200, text="<html>lorem ipsum</html>")
