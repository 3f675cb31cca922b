"""A Copilot whose turns work: they talk, run commands, ask, and leave tasks behind."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import attrs
import trio

from ..._probe import Work
from ..._wire import WireFrame
from ._cli import FarCli, Message

COMMAND = "touch a.txt"
_REJECTED = "The user rejected this tool call."
_USAGE = {"model": "fake-model", "inputTokens": 1, "outputTokens": 1}


@attrs.define(eq=False)
class Doing:
    """What a work has under way.

    Attributes:
        cli: the process that works on it.
        message: the id of the model's message that is being told, or None.
        said: what that has said so far.
        calls: the calls of tools that have no result yet, and the request that asks for each.
        rounds: how often the model was asked.
    """

    cli: FarCli
    message: str | None = None
    said: str = ""
    calls: dict[str, str | None] = attrs.field(factory=dict)
    rounds: int = 0


@attrs.define(eq=False, slots=False)
class WorkingCopilot:
    """What turns of Copilot do. The order of what is told is Copilot's own.

    Attributes:
        works: the messages that it was sent, oldest first.
        wire: all that its processes were told and have said.
        on_disk: the sessions that can be resumed.
        tasks: the background tasks that run: the work that started each, and since when.
    """

    works: list[Work] = attrs.field(factory=list, init=False)
    wire: list[WireFrame] = attrs.field(factory=list, init=False)
    on_disk: set[str] = attrs.field(factory=set, init=False)
    tasks: dict[str, tuple[Work, str]] = attrs.field(factory=dict, init=False)
    _doing: dict[str, Doing] = attrs.field(factory=dict, init=False)
    _asking: dict[str, tuple[Work, str]] = attrs.field(factory=dict, init=False)
    _endless: set[str] = attrs.field(factory=set, init=False)
    _ends: dict[str, Message] = attrs.field(factory=dict, init=False)
    _count: Counter[str] = attrs.field(factory=Counter, init=False)

    def name(self, kind: int) -> str:
        """A new id: of a message, a call, a request."""
        self._count[str(kind)] += 1
        return str(uuid.UUID(int=kind << 64 | self._count[str(kind)]))

    def _say(self, work: Work, kind: str, **data: Any) -> Message:
        return self._doing[work.name].cli.event(str(work.session), kind, **data)

    def _begin(self, work: Work) -> None:
        """Begin to work on a message."""
        work.began_at = trio.current_time()
        doing = self._doing[work.name]
        self.on_disk.add(str(work.session))
        named = {} if doing.cli.old else {"messageId": work.name}
        self._say(work, "user.message", content=work.text, **named)
        self._ask_model(work)

    def _ask_model(self, work: Work) -> None:
        doing = self._doing[work.name]
        self._say(work, "assistant.turn_start", turnId=str(doing.rounds))
        doing.rounds += 1

    # What it says.

    async def answer(self, work: Work, text: str) -> None:
        """Say a piece of its answer, also when it is over.

        **Cancellation:** it is said all the same; so with the next ones.
        """
        doing = self._doing[work.name]
        if doing.message is None:
            doing.message = self.name(2)
            self._say(work, "assistant.message_start", messageId=doing.message)
        doing.said += text
        self._say(work, "assistant.message_delta", messageId=doing.message, deltaContent=text)
        await trio.lowlevel.checkpoint()

    def _close(self, work: Work, *calls: Message) -> None:
        """Tell the model's message as a whole, and what it has cost."""
        doing = self._doing[work.name]
        self._say(work, "assistant.usage", **_USAGE)
        self._say(
            work,
            "assistant.message",
            messageId=doing.message or self.name(2),
            originatingMessageId=work.name,
            content=doing.said,
            toolRequests=list(calls),
        )
        doing.message, doing.said = None, ""

    # Tools.

    async def use(self, work: Work, command: str = COMMAND) -> str | None:
        """Begin to use the shell; the call. A turn that is over does nothing more.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if not work.runs:
            return None
        call, given = self.name(3), {"command": command}
        self._close(work, {"toolCallId": call, "name": "bash", "arguments": given})
        self._doing[work.name].calls[call] = None
        self._say(work, "tool.execution_start", toolCallId=call, toolName="bash", arguments=given)
        return call

    async def use_to_end(self, work: Work, command: str = COMMAND) -> None:
        """Use the shell; the model is asked again.

        **Cancellation:** as `answer`.
        """
        call = await self.use(work, command)
        if call is not None:
            self._returned(work, call, done=True)

    async def want_permission(self, work: Work, *, to_end: bool = True) -> None:
        """Ask whether the shell may be used; without `to_end`, what is allowed runs on.

        **Cancellation:** as `answer`.
        """
        call = await self.use(work)
        if call is None:
            return
        number = self._doing[work.name].calls[call] = self.name(4)
        if not to_end:
            self._endless.add(call)
        self._asking[number] = (work, call)
        asked = {
            "kind": "shell",
            "toolCallId": call,
            "fullCommandText": COMMAND,
            "intention": "make a file",
            "commands": [{"identifier": "touch", "readOnly": False}],
            "possiblePaths": [],
            "possibleUrls": [],
            "canOfferSessionApproval": False,
            "hasWriteFileRedirection": False,
        }
        self._say(work, "permission.requested", requestId=number, permissionRequest=asked)

    def _decided(self, cli: FarCli, request: Message) -> None:
        number, result = request["params"]["requestId"], request["params"]["result"]
        work, call = self._asking.get(number, (None, ""))
        if work is None:
            cli.answer(request, {"success": False})
            return
        work.replies.append(result)
        doing = self._doing[work.name]
        is_open = doing.calls.get(call) == number
        cli.answer(request, {"success": is_open})
        if not is_open:
            return
        allowed = result["kind"] == "approve-once"
        kind = "approved" if allowed else "denied-interactively-by-user"
        self._say(work, "permission.completed", requestId=number, result={"kind": kind})
        if allowed and call in self._endless:
            doing.calls[call] = None  # It is asked for no more.
            return
        feedback = result.get("feedback")
        self._returned(work, call, done=allowed, feedback=feedback)
        if not allowed and feedback is None:
            # It takes that for the person's wish to stop.
            self._say(work, "abort", reason="user_initiated")
            self._over(work)

    def _returned(self, work: Work, call: str, *, done: bool, feedback: str | None = None) -> None:
        doing = self._doing[work.name]
        del doing.calls[call]
        why = _REJECTED if feedback is None else f"{_REJECTED} User feedback: {feedback}"
        told: Message = {"result": {"content": "a.txt"}} if done else {"error": {"message": why}}
        self._say(work, "tool.execution_complete", toolCallId=call, success=done, **told)
        self._say(work, "assistant.turn_end", turnId=str(doing.rounds - 1))
        if done or feedback is not None:
            self._ask_model(work)

    # Background tasks.

    async def run_behind(self, work: Work) -> None:
        """Begin a command that outlives the turn.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if work.runs:
            self.tasks[self.name(5)] = (work, datetime.now(UTC).isoformat())
            self._say(work, "session.background_tasks_changed")

    def _list_tasks(self, session: str) -> list[Message]:
        return [
            {
                "type": "shell",
                "id": number,
                "command": "sleep 300",
                "description": "a long sleep",
                "attachmentMode": "detached",
                "executionMode": "background",
                "status": "running",
                "startedAt": since,
            }
            for number, (work, since) in self.tasks.items()
            if work.session == session
        ]

    # Ends.

    async def finish(self, work: Work) -> None:
        """Complete it.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if work.runs:
            self._close(work)
            self._turn_end(work)
            self._over(work)

    async def fail(self, work: Work) -> None:
        """Fail it, as when the model cannot be asked.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if work.runs:
            self._turn_end(work)
            why = "the model was not reached"
            self._say(work, "session.error", errorType="query", message=why)
            self._over(work)

    async def say_end_again(self, work: Work) -> None:
        """Tell its idle once more.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        self._doing[work.name].cli.write(self._ends[work.name])

    def _turn_end(self, work: Work) -> None:
        self._say(work, "assistant.turn_end", turnId=str(self._doing[work.name].rounds - 1))

    def _over(self, work: Work, **how: Any) -> None:
        if work.ended_at is None:
            work.ended_at = trio.current_time() if work.began_at is not None else None
            self._say(work, "assistant.idle", **how)
            self._ends[work.name] = self._say(work, "session.idle", **how, mode="interactive")

    def _interrupt(self, work: Work) -> None:
        """What an abort does to what has begun, before it is answered."""
        for number, (asking, call) in self._asking.items():
            if asking is work and self._doing[work.name].calls.pop(call, None) == number:
                result = {"kind": "cancelled"}
                self._say(work, "permission.completed", requestId=number, result=result)
        self._turn_end(work)
