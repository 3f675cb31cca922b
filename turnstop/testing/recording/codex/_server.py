"""The protocol of codex's app server, at the far end of a stream in memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from ..._wire import WireFrame
from .._lines import LineEnd

Frame: TypeAlias = dict[str, Any]
Then: TypeAlias = Callable[[], Awaitable[object]]
Answer: TypeAlias = Frame | tuple[Frame, Then] | None
"""What a request is answered, and what happens as soon as it is; None: no answer comes."""

NO_TURN = {"code": -32600, "message": "no active turn to interrupt"}
"""How codex refuses an interrupt that comes too early, or too late."""


def refusal(text: str) -> Frame:
    """The answer that refuses a request."""
    return {"error": {"code": -32600, "message": text}}


@attrs.define(eq=False, slots=False)
class AppServer(LineEnd):
    """An app server in memory. It keeps what it is told; the levers say how it behaves.

    Attributes:
        wire: all that it was told and has said.
        answers: what its own requests were answered, by their number.
        loaded: the threads that it has in memory.
        on_disk: the threads that it can resume.
        running: the turn that each busy thread works on.
        started: the turns that it can be told to interrupt.
        agents: the sub-agents, by their threads: the thread of each one's parent, and its turn.
        start_takes: seconds before a turn is started, and answered.
        begins: whether a turn can be interrupted as soon as its start is answered.
        refuse_start: why turns are not started.
        deaf: whether interrupts are neither answered nor obeyed.
        nameless: whether the answer to a start names no turn.
        at_start: called with a thread and its turn just before the start is answered.
        handlers: what answers a request, by its method.
    """

    wire: list[WireFrame] = attrs.field(factory=list)
    answers: dict[object, Frame] = attrs.field(factory=dict)
    loaded: set[str] = attrs.field(factory=set)
    on_disk: set[str] = attrs.field(factory=set)
    running: dict[str, str] = attrs.field(factory=dict)
    started: set[str] = attrs.field(factory=set)
    agents: dict[str, Frame] = attrs.field(factory=dict)
    start_takes: float = 0.0
    begins: bool = True
    refuse_start: str | None = None
    deaf: bool = False
    nameless: bool = False
    at_start: Callable[[str, str], Awaitable[object]] | None = None
    handlers: dict[str, Callable[[Frame], Awaitable[Answer]]] = attrs.field(factory=dict)
    _count: Counter[str] = attrs.field(factory=Counter, init=False)

    def told(self, method: str | None = None) -> list[Frame]:
        """The requests and notifications that it was told, of this method, or all."""
        frames = [frame.body for frame in self.wire if frame.direction == "->"]
        return [one for one in frames if "method" in one and method in (None, one["method"])]

    def methods(self) -> list[str]:
        """The methods of what it was told."""
        return [str(frame["method"]) for frame in self.told()]

    def params(self, method: str) -> list[Frame]:
        """The parameters of each request of this method."""
        return [frame["params"] for frame in self.told(method)]

    # The connection.

    def connect(self) -> trio.StapledStream[Any, Any]:
        """Begin anew, as a process does that was just started; return the client's stream."""
        for kept in (self.loaded, self.running, self.started):
            kept.clear()
        return super().connect()

    def _heard(self, nursery: trio.Nursery, frame: Frame) -> None:
        if "method" in frame and "id" in frame:
            nursery.start_soon(self._respond, frame)
        elif "id" in frame:
            self.answers[frame["id"]] = frame
            nursery.start_soon(self._answered, frame)

    async def _answered(self, frame: Frame) -> None:
        """A request of its own was answered."""

    async def write(self, frame: Frame) -> None:
        """Say something; nobody hears it where there is no connection.

        **Cancellation:** it is said all the same.
        """
        line = json.dumps(frame)
        # What it is made of may change after it was said.
        self._keep("<-", json.loads(line))
        self.write_line(line.encode())
        await trio.lowlevel.checkpoint()

    # What it says.

    async def say(self, method: str, **params: Any) -> None:
        """Notify.

        **Cancellation:** as `write`, and so the next ones.
        """
        await self.write({"method": method, "params": params})

    async def item(self, method: str, turn: str, thread: str = "T1", **item: Any) -> None:
        """Tell of an item of a turn: `started` or `completed`.

        **Cancellation:** as `write`.
        """
        await self.say(f"item/{method}", threadId=thread, turnId=turn, item=item)

    async def text(self, turn: str, delta: str, thread: str = "T1", item: str = "m1") -> None:
        """Tell a piece of an answer.

        **Cancellation:** as `write`.
        """
        params = {"threadId": thread, "turnId": turn, "itemId": item, "delta": delta}
        await self.write({"method": "item/agentMessage/delta", "params": params})

    async def complete(self, turn: str, status: str, thread: str = "T1", **more: Any) -> None:
        """Complete a turn.

        **Cancellation:** as `write`.
        """
        self.running.pop(thread, None)
        body = {"id": turn, "status": status, "error": None, **more}
        await self.say("turn/completed", threadId=thread, turn=body)

    async def ask(self, number: object, method: str, **params: Any) -> None:
        """Ask the client.

        **Cancellation:** as `write`.
        """
        await self.write({"method": method, "id": number, "params": {"threadId": "T1", **params}})

    async def begin(self, thread: str, turn: str) -> None:
        """Say that a turn has begun: from now on it can be interrupted.

        **Cancellation:** as `write`.
        """
        self.started.add(turn)
        await self.say("turn/started", threadId=thread, turn={"id": turn, "status": "inProgress"})

    # What it answers.

    def __attrs_post_init__(self) -> None:
        own: dict[str, Callable[[Frame], Awaitable[Answer]]] = {
            "thread/start": self._thread_start,
            "thread/read": self._thread_read,
            "thread/resume": self._thread_resume,
            "thread/list": self._thread_list,
            "thread/turns/list": self._turns_list,
            "turn/start": self._turn_start,
            "turn/interrupt": self._turn_interrupt,
        }
        self.handlers = {**own, **self.handlers}

    async def _respond(self, frame: Frame) -> None:
        if self._outbox is None:
            return  # The connection is closed: nobody asks any more.
        handler = self.handlers.get(frame["method"], _nothing)
        answer = await handler(frame["params"])
        body, then = answer if isinstance(answer, tuple) else (answer, None)
        if body is not None:
            await self.write({"id": frame["id"], **body})
        if then is not None:
            await then()

    async def _thread_start(self, params: Frame) -> Answer:
        thread = self._name("T")
        self.loaded.add(thread)
        self.on_disk.add(thread)
        return {"result": {"thread": {"id": thread}}}

    async def _thread_read(self, params: Frame) -> Answer:
        thread = params["threadId"]
        if thread not in self.on_disk:
            return refusal(f"thread not found: {thread}")
        status = "active" if thread in self.running else "idle"
        status = status if thread in self.loaded else "notLoaded"
        return {"result": {"thread": {"id": thread, "status": {"type": status}}}}

    async def _thread_resume(self, params: Frame) -> Answer:
        thread = params["threadId"]
        if thread not in self.on_disk:
            return refusal(f"no rollout found for thread id {thread}")
        self.loaded.add(thread)
        return {"result": {"thread": {"id": thread}}}

    async def _thread_list(self, params: Frame) -> Answer:
        at = int(params.get("cursor", 0))
        names = sorted(self.agents)
        rows = [
            {"id": name, "parentThreadId": self.agents[name]["parent"], "preview": "look"}
            for name in names[at : at + 1]
        ]
        more = str(at + 1) if at + 1 < len(names) else None
        return {"result": {"data": rows, "nextCursor": more}}

    async def _turns_list(self, params: Frame) -> Answer:
        return {"result": {"data": [self.agents[params["threadId"]]["turn"]]}}

    async def _turn_start(self, params: Frame) -> Answer:
        await trio.sleep(self.start_takes)
        thread = params["threadId"]
        if self.refuse_start:
            return refusal(self.refuse_start)
        if thread not in self.loaded:
            return refusal(f"thread not found: {thread}")
        # One that is busy is steered: the same turn is named once more.
        turn = self.running.setdefault(thread, "") or self._name("U")
        self.running[thread] = turn
        if self.nameless:
            return {"result": {"turn": {}}}
        if self.at_start is not None:
            await self.at_start(thread, turn)
        return turn_result(turn), partial(self._begin_if_told, thread, turn)

    async def _begin_if_told(self, thread: str, turn: str) -> None:
        if self.begins and turn not in self.started:
            await self.begin(thread, turn)

    async def _turn_interrupt(self, params: Frame) -> Answer:
        if self.deaf:
            return None
        thread, turn = params["threadId"], params["turnId"]
        if thread in self.agents:
            self.agents[thread]["turn"]["status"] = "interrupted"
            return {"result": {}}
        if self.running.get(thread) != turn or turn not in self.started:
            return {"error": NO_TURN}
        return {"result": {}}, partial(self.complete, turn, "interrupted", thread)

    def _name(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}{self._count[kind]}"


def turn_result(turn: str) -> Frame:
    """The answer that names a turn."""
    return {"result": {"turn": {"id": turn, "status": "inProgress"}}}


async def _nothing(params: Frame) -> Answer:
    return {"result": {}}
