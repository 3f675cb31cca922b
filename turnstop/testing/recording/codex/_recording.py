"""An app server with the truth of each turn that it was asked for, and the levers of a probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio

from ..._probe import Work
from ._server import NO_TURN, Answer, AppServer, Frame, refusal, turn_result

_APPROVAL = "item/commandExecution/requestApproval"
_TOKENS = {"inputTokens": 1, "outputTokens": 1}


@attrs.define(eq=False, slots=False)
class RecordingCodex(AppServer):
    """All of codex: its threads outlive the process, its turns end with it.

    Attributes:
        works: the turns that it was asked for, oldest first.
        ended: whether the process that was connected last has ended.
    """

    works: list[Work] = attrs.field(factory=list, init=False)
    ended: bool = attrs.field(default=True, init=False)
    _clings: bool = attrs.field(default=False, init=False)
    _mute: set[str] = attrs.field(factory=set, init=False)
    _refuses: bool = attrs.field(default=False, init=False)
    _released: trio.Event | None = attrs.field(default=None, init=False)
    _kept_back: list[Work] = attrs.field(factory=list, init=False)
    _obey: Callable[[Work], Awaitable[Answer]] = attrs.field(init=False)
    _said: dict[str, str] = attrs.field(factory=dict, init=False)
    _ends: dict[str, Frame] = attrs.field(factory=dict, init=False)
    _asked: dict[object, Work] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.end_late(0.0)

    # The process.

    def connect(self) -> trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]:
        """Begin a process, and connect to it."""
        self.ended = self._clings = False
        self._mute = {work.name for work in self.works}
        return super().connect()

    def end(self) -> None:
        """End the process, with everything that it works on."""
        self.hang_up()
        self.ended = True
        for work in self.works:
            if work.name in self.running.values():
                self._close(work)
        for agent in self.agents.values():
            agent["turn"]["status"] = "interrupted"

    def put_down(self) -> None:
        """End the process, as far as it can be ended."""
        if not self._clings:
            self.end()

    def cut(self) -> None:
        """Close the connection; the process cannot be ended, and works on."""
        self.hang_up()
        self._clings = True

    def end_all(self) -> None:
        """End whatever works, in whichever process."""
        self.end()
        for work in self.works:
            if work.runs:
                self._close(work)

    def babble(self) -> None:
        """Write what is no JSON."""
        self.write_line(b"thread 'main' panicked: not yet implemented")

    # The levers of starts.

    def hold_starts(self) -> None:
        """Begin the next turns, and keep the answers back."""
        self._released = trio.Event()

    def release_starts(self) -> None:
        """Send the answers that were kept back."""
        if self._released is not None:
            self._released.set()
            self._released = None
        self._kept_back.clear()

    def refuse_starts(self) -> None:
        """Begin no turn from now on; what is kept back has not begun either."""
        self._refuses = True
        for work in self._kept_back:
            self.running.pop(str(work.session), None)
            work.began_at = None

    async def _turn_start(self, params: Frame) -> Answer:
        thread = params["threadId"]
        text = " ".join(str(item.get("text", "")) for item in params["input"])
        # One that is busy is steered: the same turn is named once more.
        name = self.running.get(thread) or self._name("U")
        work = Work(name, text, thread, trio.current_time())
        self.works.append(work)
        if thread in self.loaded and not self._refuses:
            work.began_at = work.asked_at
            self.running[thread] = name
        if self._released is not None:
            self._kept_back.append(work)
            await self._released.wait()
        if work.began_at is None:
            return refusal("the turn was refused")
        return turn_result(name), partial(self._begin_if_told, thread, name)

    # The levers of cancels.

    def hold_cancels(self) -> None:
        """Neither answer interrupts nor obey them."""

        async def hold(work: Work) -> Answer:
            return None

        self._obey = hold

    def refuse_cancels(self) -> None:
        """Answer interrupts by an error that does not say that they come too early."""

        async def refuse(work: Work) -> Answer:
            return refusal("the turn cannot be interrupted")

        self._obey = refuse

    def ignore_cancels(self) -> None:
        """Acknowledge interrupts, and go on."""

        async def ignore(work: Work) -> Answer:
            return {"result": {}}

        self._obey = ignore

    def hold_acknowledgements(self) -> None:
        """Obey interrupts, and do not answer them."""

        async def obey(work: Work) -> Answer:
            await self._over(work, "interrupted")
            return None

        self._obey = obey

    def end_late(self, seconds: float) -> None:
        """Acknowledge interrupts at once, and obey them later."""

        async def acknowledge(work: Work) -> Answer:
            return {"result": {}}, partial(self._interrupt, work, seconds)

        self._obey = acknowledge

    async def _interrupt(self, work: Work, seconds: float) -> None:
        if seconds:
            await trio.sleep(seconds)
        await self._over(work, "interrupted")

    async def _turn_interrupt(self, params: Frame) -> Answer:
        thread, turn = params["threadId"], params["turnId"]
        if thread in self.agents:
            return await super()._turn_interrupt(params)
        if self.running.get(thread) != turn or turn not in self.started:
            return {"error": NO_TURN}
        work = next(one for one in self.works if one.name == turn)
        work.told_at.append(trio.current_time())
        return await self._obey(work)

    # What a turn does.

    async def answer(self, work: Work, text: str) -> None:
        """Say a piece of its answer, also when it is over.

        **Cancellation:** it is said all the same; so with the next ones.
        """
        if work.name in self._mute:
            return  # Its process is not the one that is connected.
        self._said[work.name] = self._said.get(work.name, "") + text
        await self.text(work.name, text, str(work.session), f"m-{work.name}")

    async def want_approval(self, work: Work) -> None:
        """Ask whether a command may be run.

        **Cancellation:** as `answer`.
        """
        number = len(self._asked)
        self._asked[number] = work
        params = {"threadId": work.session, "turnId": work.name, "itemId": f"c-{work.name}"}
        decisions = ["accept", "decline", "cancel"]
        await self.ask(number, _APPROVAL, **params, command="ls", availableDecisions=decisions)

    def _answered(self, frame: Frame) -> None:
        work = self._asked.get(frame["id"])
        if work is not None:
            result = frame.get("result") or {}
            work.replies.append(result.get("decision", frame.get("error")))

    async def finish(self, work: Work) -> None:
        """Complete it.

        **Cancellation:** as `answer`.
        """
        turn, thread = work.name, str(work.session)
        if turn in self._mute:
            self._close(work)
            return
        if said := self._said.get(turn):
            item = {"type": "agentMessage", "id": f"m-{turn}", "text": said}
            await self.item("completed", turn, thread, **item)
        usage = {"total": _TOKENS, "last": _TOKENS}
        await self.say("thread/tokenUsage/updated", threadId=thread, turnId=turn, tokenUsage=usage)
        await self._over(work, "completed")

    async def fail(self, work: Work) -> None:
        """Fail it, as when the model cannot be asked.

        **Cancellation:** as `answer`.
        """
        error = {"message": "the model was not reached", "additionalDetails": None}
        params = {"threadId": work.session, "turnId": work.name, "willRetry": False}
        await self.say("error", error=error, **params)
        await self._over(work, "failed", error=error)

    async def say_end_again(self, work: Work) -> None:
        """Tell its completion once more.

        **Cancellation:** as `answer`.
        """
        if work.name not in self._mute:
            await self.write(self._ends[work.name])

    async def _over(self, work: Work, status: str, error: Frame | None = None) -> None:
        if not work.runs:
            return
        for one in self.works:
            if one.name == work.name:
                self._close(one)
        body = {"id": work.name, "status": status, "error": error}
        params = {"threadId": work.session, "turn": body}
        self._ends[work.name] = {"method": "turn/completed", "params": params}
        await self.write(self._ends[work.name])

    def _close(self, work: Work) -> None:
        work.ended_at = trio.current_time()
        if self.running.get(str(work.session)) == work.name:
            del self.running[str(work.session)]

    # Sub-agents.

    async def leave(self, work: Work) -> None:
        """Set a sub-agent to work, which an interrupt of the turn does not reach.

        **Cancellation:** as `answer`.
        """
        thread, turn = self._name("A"), self._name("V")
        body = {"id": turn, "rootTurnId": work.name, "status": "inProgress"}
        self.agents[thread] = {"parent": work.session, "turn": body}
        item = {"type": "collabAgentToolCall", "id": f"s-{thread}", "tool": "spawnAgent"}
        named = {"receiverThreadIds": [thread], "status": "completed"}
        await self.item("completed", work.name, str(work.session), **item, **named)

    @property
    def alive(self) -> list[str]:
        """The sub-agents that work."""
        return [
            f"sub-agent {thread}"
            for thread, agent in self.agents.items()
            if agent["turn"]["status"] == "inProgress"
        ]

    def _descendants(self, thread: str) -> list[str]:
        children = [name for name, agent in self.agents.items() if agent["parent"] == thread]
        return children + [one for child in children for one in self._descendants(child)]

    async def _thread_list(self, params: Frame) -> Answer:
        rows = [
            {"id": name, "parentThreadId": self.agents[name]["parent"], "preview": "look"}
            for name in self._descendants(params["ancestorThreadId"])
        ]
        return {"result": {"data": rows, "nextCursor": None}}
