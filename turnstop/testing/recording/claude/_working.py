"""A Claude whose turns work: they talk, use tools, ask, and leave tasks behind."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import attrs
import trio

from ..._probe import Work
from ..._wire import WireFrame
from ._cli import Cli, Frame

_COMMAND = "touch a.txt"
_QUESTION = {"question": "Which?", "options": [{"label": "tea"}, {"label": "coffee"}]}
_SYNTHETIC = {
    "is_api_error_message": True,
    "parent_tool_use_id": None,
    "uuid": "b",
    "timestamp": "2026-01-01T00:00:00Z",
}
_REJECTED = "The user doesn't want to proceed with this tool use."


@attrs.define(eq=False)
class Doing:
    """What a work has under way.

    Attributes:
        cli: the process that works on it.
        answers: the message that it was sent.
        message: the id of the model's message that is being told, or None.
        said: what that has said so far.
        calls: the calls of tools that have no result yet, and the request that asks for each.
    """

    cli: Cli
    answers: str
    message: str | None = None
    said: str = ""
    calls: dict[str, str | None] = attrs.field(factory=dict)


@attrs.define(eq=False, slots=False)
class WorkingClaude:
    """What turns of Claude do. The order of what is told is Claude's own.

    Attributes:
        works: the messages that it was sent, oldest first.
        wire: all that its processes were told and have said.
        on_disk: the sessions that can be resumed.
        tasks: the background tasks that run, and the work that started each.
    """

    works: list[Work] = attrs.field(factory=list, init=False)
    wire: list[WireFrame] = attrs.field(factory=list, init=False)
    on_disk: set[str] = attrs.field(factory=set, init=False)
    tasks: dict[str, Work] = attrs.field(factory=dict, init=False)
    _doing: dict[str, Doing] = attrs.field(factory=dict, init=False)
    _asking: dict[str, tuple[Work, str]] = attrs.field(factory=dict, init=False)
    _last: dict[str, tuple[Cli, str]] = attrs.field(factory=dict, init=False)
    _count: Counter[str] = attrs.field(factory=Counter, init=False)

    def _name(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}_{self._count[kind]}"

    # What it says.

    async def answer(self, work: Work, text: str) -> None:
        """Say a piece of its answer, also when it is over.

        **Cancellation:** it is said all the same; so with the next ones.
        """
        doing = self._doing[work.name]
        self._open(doing)
        doing.said += text
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        doing.cli.piece(event, work.name, doing.message)
        await trio.lowlevel.checkpoint()

    def _open(self, doing: Doing) -> None:
        if doing.message is None:
            doing.message = self._name("msg")
            message = {"id": doing.message, "usage": {"input_tokens": 1, "output_tokens": 0}}
            event = {"type": "message_start", "message": message}
            doing.cli.piece(event, doing.answers, doing.message)

    def _close(self, doing: Doing) -> None:
        """Tell the text as a whole, and what the message has cost."""
        if doing.said:
            block = {"type": "text", "text": doing.said}
            doing.cli.block("assistant", block, id=doing.message)
        if doing.message is not None:
            delta = {"stop_reason": None}
            usage = {"output_tokens": 1}
            event = {"type": "message_delta", "delta": delta, "usage": usage}
            doing.cli.piece(event, doing.answers, doing.message)
        doing.message, doing.said = None, ""

    # Tools.

    async def use(self, work: Work, tool: str = "Bash", **given: object) -> str | None:
        """Begin to use a tool; its call. A turn that is over does nothing more.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if not work.runs:
            return None
        doing = self._doing[work.name]
        self._open(doing)
        call = self._name("toolu")
        doing.calls[call] = None
        given = given or {"command": _COMMAND}
        if doing.said:
            doing.cli.block("assistant", {"type": "text", "text": doing.said}, id=doing.message)
            doing.said = ""
        block = {"type": "tool_use", "id": call, "name": tool, "input": given}
        doing.cli.block("assistant", block, id=doing.message)
        self._close(doing)
        return call

    async def want_permission(self, work: Work, tool: str = "Bash") -> None:
        """Ask whether a command may be run, or which drink is wanted.

        **Cancellation:** as `answer`.
        """
        given = {"questions": [_QUESTION]} if tool == "AskUserQuestion" else {"command": _COMMAND}
        call = await self.use(work, tool, **given)
        if call is None:
            return
        doing = self._doing[work.name]
        number = str(UUID(int=len(self._asking) + 1))
        doing.calls[call] = number
        self._asking[number] = (work, call)
        request = {"subtype": "can_use_tool", "tool_name": tool, "input": given}
        doing.cli.write(
            "control_request", request_id=number, request={**request, "tool_use_id": call}
        )

    def _answered(self, response: Frame) -> None:
        """A question was answered: only the first answer to one that is open counts."""
        found = self._asking.get(str(response.get("request_id")))
        if found is None:
            return
        work, call = found
        told = response.get("response", {"error": response.get("error")})
        work.replies.append(told)
        if work.runs and call in self._doing[work.name].calls:
            if told.get("interrupt"):
                self._abort_soon(self._doing[work.name].cli)
            elif told.get("behavior") == "allow":
                self.tell_result(work, call, "done", False)
            else:
                self.tell_result(work, call, told.get("message"), True)

    def _abort_soon(self, cli: Cli) -> None:
        """End what runs, as an answer does that says so: an interrupt that comes along is first."""
        raise NotImplementedError

    def tell_result(self, work: Work, call: str, text: str | None, failed: bool) -> None:
        """End a tool."""
        doing = self._doing[work.name]
        doing.calls.pop(call, None)
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        # Where it says nothing of it, nothing has failed.
        doing.cli.block("user", {**block, "is_error": True} if failed else block)

    async def set_to_work(self, work: Work) -> None:
        """Begin a sub-agent, which ends with the turn.

        **Cancellation:** as `answer`.
        """
        if await self.use(work, "Task", prompt="look"):
            told = {"is_backgrounded": False, "task_type": "local_agent", "description": "look"}
            self._doing[work.name].cli.task("task_started", self._name("a"), **told)

    async def run_behind(self, work: Work) -> None:
        """Begin a background task, which goes on after the turn.

        **Cancellation:** as `answer`.
        """
        call = await self.use(work, "Bash", command="sleep 60", run_in_background=True)
        if call is None:
            return
        number = self._name("b")
        self.tasks[number] = work
        told = {"is_backgrounded": True, "task_type": "local_bash", "description": "wait"}
        self._doing[work.name].cli.task("task_started", number, **told)
        self.tell_result(work, call, "running in the background", False)

    # Ends.

    async def finish(self, work: Work) -> None:
        """Complete it.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if work.runs:
            self._close(self._doing[work.name])
            self._over(work, "completed")

    async def clear(self, work: Work) -> None:
        """Complete it as Claude does `/clear`: the conversation is another one from here on.

        **Cancellation:** as `answer`.
        """
        cli = self._doing[work.name].cli
        cli.write("conversation_reset")
        cli.session = str(UUID(int=len(self.works)))
        cli.init(work.name)
        await self.finish(work)

    async def fail(self, work: Work) -> None:
        """Fail it, as when the model cannot be asked.

        **Cancellation:** as `answer`.
        """
        await trio.lowlevel.checkpoint()
        if work.runs:
            doing = self._doing[work.name]
            self._open(doing)
            doing.message, doing.said = "synthetic", "API Error: no flour left"
            block = {"type": "text", "text": doing.said}
            told = {"id": "synthetic", "role": "assistant", "content": [block]}
            doing.cli.write("assistant", message=told, **_SYNTHETIC)
            self._over(work, "api_error", result=doing.said)

    async def say_end_again(self, work: Work) -> None:
        """Tell its result once more, where it had one.

        **Cancellation:** as `answer`.
        """
        if work.name in self._last:
            cli, reason = self._last[work.name]
            cli.result(work.name, reason)
        await trio.lowlevel.checkpoint()

    def _abort(self, work: Work, reason: str = "aborted_streaming") -> None:
        """End it as an interrupt does."""
        doing = self._doing[work.name]
        for call, number in list(doing.calls.items()):
            reason = "aborted_tools"
            if number is not None and not work.replies:
                doing.cli.write("control_cancel_request", request_id=number)
            self.tell_result(work, call, _REJECTED, True)
        self._close(doing)
        self._over(work, reason)

    def _over(self, work: Work, reason: str, **more: object) -> None:
        cli = self._doing[work.name].cli
        work.ended_at = trio.current_time()
        self.on_disk.add(cli.session)
        self._last[work.name] = (cli, reason)
        cli.result(work.name, reason, **more)
        cli.lifecycle(work.name, "completed" if reason == "completed" else "cancelled")
