"""An app server whose turns work: they talk, run commands, ask, and set others to work."""

from __future__ import annotations

import attrs
import trio

from ..._probe import Work
from ._server import Answer, AppServer, Frame

_APPROVAL = "item/commandExecution/requestApproval"
_TOKENS = {"inputTokens": 1, "outputTokens": 1}
_COMMAND = "sleep 60"


@attrs.define(eq=False, slots=False)
class WorkingServer(AppServer):
    """What the turns of an app server do. The order of what is told is codex's own.

    Attributes:
        works: the turns that it was asked for, oldest first.
    """

    works: list[Work] = attrs.field(factory=list, init=False)
    _mute: set[str] = attrs.field(factory=set, init=False)
    _said: dict[str, str] = attrs.field(factory=dict, init=False)
    _spent: set[str] = attrs.field(factory=set, init=False)
    _ends: dict[str, Frame] = attrs.field(factory=dict, init=False)
    _asked: dict[int, tuple[Work, str]] = attrs.field(factory=dict, init=False)
    _open: set[int] = attrs.field(factory=set, init=False)
    _terminals: dict[str, Work] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.handlers["thread/backgroundTerminals/list"] = self._terminals_list
        self.handlers["thread/backgroundTerminals/terminate"] = self._terminate

    async def answer(self, work: Work, text: str) -> None:
        """Say a piece of its answer, also when it is over.

        **Cancellation:** it is said all the same; so with the next ones.
        """
        if work.name not in self._mute:
            self._said[work.name] = self._said.get(work.name, "") + text
            await self.text(work.name, text, str(work.session), f"m-{work.name}")

    # Commands and approvals.

    async def run_command(self, work: Work) -> None:
        """Begin a shell command, which an interrupt of the turn does not end.

        A turn that is over does nothing more; so with the next ones.

        **Cancellation:** as `answer`.
        """
        if work.runs:
            self._terminals[await self._propose(work)] = work

    async def want_approval(self, work: Work) -> None:
        """Ask whether a command may be run; it is over as soon as it is allowed.

        **Cancellation:** as `answer`.
        """
        if not work.runs:
            return
        call, number = await self._propose(work), len(self._asked)
        self._asked[number] = (work, call)
        self._open.add(number)
        params = {"threadId": work.session, "turnId": work.name, "itemId": call}
        decisions = ["accept", "decline", "cancel"]
        await self.ask(number, _APPROVAL, **params, command=_COMMAND, availableDecisions=decisions)

    async def _propose(self, work: Work) -> str:
        call = self._name("c")
        self._spent.add(work.name)
        await self._tell_command("started", work, call, "inProgress", None)
        return call

    async def _tell_command(
        self, method: str, work: Work, call: str, status: str, output: str | None
    ) -> None:
        item = {"type": "commandExecution", "id": call, "command": _COMMAND, "status": status}
        await self.item(method, work.name, str(work.session), **item, aggregatedOutput=output)

    async def _answered(self, frame: Frame) -> None:
        number = frame["id"]
        if number in self._asked:
            work, _ = self._asked[number]
            decision = frame.get("result", {}).get("decision", frame.get("error"))
            work.replies.append(decision)
            await self._resolve(number, "completed" if decision == "accept" else "declined")

    async def _resolve(self, number: int, status: str) -> None:
        if number in self._open:
            self._open.discard(number)
            work, call = self._asked[number]
            await self.say("serverRequest/resolved", threadId=work.session, requestId=number)
            output = "a.txt" if status == "completed" else None
            await self._tell_command("completed", work, call, status, output)

    async def _terminals_list(self, params: Frame) -> Answer:
        rows = [
            {"itemId": call, "processId": call.removeprefix("c"), "command": _COMMAND}
            for call, work in self._terminals.items()
            if work.session == params["threadId"]
        ]
        return {"result": {"data": rows, "nextCursor": None}}

    async def _terminate(self, params: Frame) -> Answer:
        call = f"c{params['processId']}"
        work = self._terminals.pop(call, None)
        if work is None:
            return {"result": {"terminated": False}}
        await self._tell_command("completed", work, call, "failed", None)
        return {"result": {"terminated": True}}

    # Ends.

    async def finish(self, work: Work) -> None:
        """Complete it.

        **Cancellation:** as `answer`.
        """
        if said := self._said.get(work.name):
            item = {"type": "agentMessage", "id": f"m-{work.name}", "text": said}
            await self._unless_mute(work, "item/completed", turnId=work.name, item=item)
        await self._tell_usage(work)
        await self._over(work, "completed")

    async def fail(self, work: Work) -> None:
        """Fail it, as when the model cannot be asked.

        **Cancellation:** as `answer`.
        """
        error = {"message": "the model was not reached", "additionalDetails": None}
        await self._unless_mute(work, "error", turnId=work.name, error=error, willRetry=False)
        await self._over(work, "failed", error)

    async def say_end_again(self, work: Work) -> None:
        """Tell its completion once more.

        **Cancellation:** as `answer`.
        """
        await self._unless_mute(work, "turn/completed", turn=self._ends[work.name])

    async def _tell_usage(self, work: Work) -> None:
        usage = {"total": _TOKENS, "last": _TOKENS}
        method = "thread/tokenUsage/updated"
        await self._unless_mute(work, method, turnId=work.name, tokenUsage=usage)

    async def _abort(self, work: Work) -> None:
        """What comes before an interrupt is answered."""
        for number in sorted(one for one in self._open if self._asked[one][0] is work):
            await self._resolve(number, "declined")
        if work.name in self._spent:
            await self._tell_usage(work)

    async def _over(self, work: Work, status: str, error: Frame | None = None) -> None:
        if work.runs:
            self._close(work)
            self._ends[work.name] = {"id": work.name, "status": status, "error": error}
            await self._unless_mute(work, "turn/completed", turn=self._ends[work.name])

    def _close(self, work: Work) -> None:
        """It is over, and so is whatever was steered into it."""
        for one in self.works:
            if one.name == work.name:
                one.ended_at = trio.current_time()
        if self.running.get(str(work.session)) == work.name:
            del self.running[str(work.session)]

    async def _unless_mute(self, work: Work, method: str, **params: object) -> None:
        """Notify of it, unless its process is another one than that which is connected."""
        if work.name not in self._mute:
            await self.say(method, threadId=work.session, **params)

    # Sub-agents.

    async def set_to_work(self, work: Work) -> None:
        """Begin a sub-agent, which an interrupt of the turn does not reach.

        **Cancellation:** as `answer`.
        """
        if not work.runs:
            return
        thread, turn = self._name("A"), self._name("V")
        body = {"id": turn, "rootTurnId": work.name, "status": "inProgress"}
        self.agents[thread] = {"parent": work.session, "turn": body}
        self._spent.add(work.name)
        item = {"type": "collabAgentToolCall", "id": f"s-{thread}", "tool": "spawnAgent"}
        named = {"receiverThreadIds": [thread], "status": "completed"}
        await self.item("completed", work.name, str(work.session), **item, **named)

    @property
    def alive(self) -> list[str]:
        """What works and does not end with its turn: sub-agents and commands."""
        agents = [
            f"sub-agent {thread}"
            for thread, agent in self.agents.items()
            if agent["turn"]["status"] == "inProgress"
        ]
        return agents + [f"command {call}" for call in self._terminals]

    def _descendants(self, thread: str) -> list[str]:
        children = [name for name, agent in self.agents.items() if agent["parent"] == thread]
        return children + [one for child in children for one in self._descendants(child)]

    async def _thread_list(self, params: Frame) -> Answer:
        rows = [
            {"id": name, "parentThreadId": self.agents[name]["parent"], "preview": "look"}
            for name in self._descendants(params["ancestorThreadId"])
        ]
        return {"result": {"data": rows, "nextCursor": None}}
