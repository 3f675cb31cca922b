"""A Letta server that keeps runs, records what it is told, and does what its levers say.

It answers as letta 0.16.8 does. As there, `cancelled` is what a cancel is answered whatever the run
does; the stream ends when the model's next chunk would have come; and the model call ends later.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Final, Literal, TypeAlias

import attrs
import httpx
import trio

from ..._probe import Work
from .._far_http import HeldStarts
from ._frames import Answer, event, ping
from ._run import Run, messages_of, run_of, runs_in, steps_of, trace_of

__all__ = ["RecordingLetta"]

_ASKED: Final = "CONFLICT: Cannot send a new message: The agent is waiting for approval"
_NOT_ASKED: Final = "Cannot process approval response: No tool call is currently awaiting approval."
Cancels: TypeAlias = Literal["obeyed", "held", "refused", "ignored", "unanswered"]


@attrs.define(eq=False)
class _Pending:
    """A request that is not answered yet, and may be broken off."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class RecordingLetta(HeldStarts, httpx.AsyncBaseTransport):
    """A server with levers. Give it to `open_letta` as its transport, and have it `die` in the end.

    Args:
        nursery: for what it does by itself.

    Attributes:
        works: every message that it was sent, refused ones included.
        cancels: what becomes of a cancel.
        ends_after: how many seconds after a cancel that is obeyed the run's stream ends.
        drops_after: how many seconds after that its model call is over; None: never.
        arrives_after: how many seconds a message is on its way.
        refuses: whether messages are refused.
        locks: whether a conversation takes one message at a time, as it does with Redis.
        approvals_wait_for: what has to be set before an approval is answered.
        instead: what requests are answered by, or fail by, by the last part of their path.
        calls: the requests, as (method, path, body).
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.works: list[Work] = []
        self.cancels: Cancels = "obeyed"
        self.ends_after = 0.0
        self.drops_after: float | None = 0.0
        self.arrives_after = 0.0
        self.refuses = False
        self.locks = True
        self.approvals_wait_for: trio.Event | None = None
        self.instead: dict[str, httpx.Response | Exception] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self._nursery = nursery
        self._numbers, self._fresh = itertools.count(1), itertools.count(1)
        self._runs: dict[str, Run] = {}
        self._newest: dict[str, Run] = {}
        self._conversations: dict[str, str] = {}
        self._answered: dict[str, set[str]] = {}
        self._pending: list[_Pending] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Take a request.

        **Cancellation:** what was begun goes on.
        """
        await trio.lowlevel.checkpoint()
        body = json.loads(request.content) if request.content else None
        path = request.url.path.rstrip("/")
        self.calls.append((request.method, path, body))
        if "trace" in request.extensions:
            await request.extensions["trace"]("http11.send_request_body.complete", {})
        instead = self.instead.get(path.rpartition("/")[2])
        if isinstance(instead, Exception):
            raise instead
        if instead is not None:
            return instead
        pending = _Pending()
        self._pending.append(pending)
        try:
            with pending.scope:
                return await self._answer(request, path.split("/")[2:], body)
        finally:
            self._pending.remove(pending)
        raise httpx.ReadError("the cable was pulled")

    async def _answer(self, request: httpx.Request, path: list[str], body: Any) -> httpx.Response:
        match (request.method, *path):
            case ("GET", "health"):
                return httpx.Response(200, json={"version": "0.16.8", "status": "ok"})
            case ("POST", "conversations"):
                return self._converse(request.url.params["agent_id"])
            case ("POST", "conversations", source, "fork"):
                return self._fork(source, request.url.params.get("agent_id"))
            case ("DELETE", "conversations", conversation):
                return self._drop(conversation)
            case ("POST", "conversations", conversation, "messages"):
                await trio.sleep(self.arrives_after)
                agent = self._conversations.get(conversation)
                if agent is None:
                    return _no(404, f"Conversation not found with id='{conversation}'")
                return await self._send(request, agent, conversation, body)
            case ("POST", "agents", agent, "messages"):
                await trio.sleep(self.arrives_after)
                return await self._send(request, agent, None, body)
            case ("POST", "agents", _, "messages", "cancel"):
                return await self._cancel(body["run_ids"])
            case ("GET", "runs"):
                return httpx.Response(200, json=runs_in(self._runs.values(), request.url.params))
            case ("GET", "runs", run_id, *what) if run_id in self._runs:
                tell = {"": run_of, "steps": steps_of, "messages": messages_of}["".join(what)]
                return httpx.Response(200, json=tell(self._runs[run_id]))
            case ("GET", "steps", step_id, "trace"):
                found = next(run for run in self._runs.values() if run.step_id == step_id)
                return _value(trace_of(found))
        return _no(404, "Not Found")

    def _converse(self, agent: str) -> httpx.Response:
        number = f"conv-{next(self._fresh)}"
        self._conversations[number] = agent
        return httpx.Response(200, json={"id": number, "agent_id": agent})

    def _drop(self, conversation: str) -> httpx.Response:
        if self._conversations.pop(conversation, None) is None:
            return _no(404, f"Conversation not found with id='{conversation}'")
        return _value(None)

    def _fork(self, source: str, agent: str | None) -> httpx.Response:
        found = agent or self._conversations.get(source)
        if found is None:
            return _no(404, f"Conversation not found with id='{source}'")
        made = self._converse(found)
        # What was said is in both, a question that waits too; what works in one is not.
        before = self._newest.get(agent or source)
        number = made.json()["id"]
        if before is not None and before.waits:
            self._newest[number] = before
        self._answered[number] = {*self._answered.get(agent or source, ())}
        return made

    async def _send(
        self, request: httpx.Request, agent: str, conversation: str | None, body: Any
    ) -> httpx.Response:
        # The server streams for clients only that it knows to understand it.
        if "x-stainless-package-version" not in request.headers:
            return _no(422, "streaming=true is only supported for SDK v1.0+ clients.")
        messages, mark = list(body["messages"]), request.headers.get("x-api-request-log-id")
        before = self._newest.get(conversation or agent)
        if messages[0].get("type") == "approval":
            replies = messages.pop(0)["approvals"]
            answered = self._answered.setdefault(conversation or agent, set())
            calls = {one["tool_call_id"] for one in replies}
            if before is not None and before.waits:
                answered |= calls
                before.answer(replies)
                if not messages:
                    return await self._go_on(self._begin(agent, conversation, before.work, mark))
                self._over(before.work)
            elif not messages or not calls <= answered:
                run = Run(next(self._numbers), agent, conversation, Work("", "", None, 0.0))
                return self._refuse_in_a_stream(run, _NOT_ASKED)
        (said,) = messages
        work = Work("", _text_of(said["content"]), conversation or agent, trio.current_time())
        self.works.append(work)
        if (why := self._busy(before, conversation)) is not None:
            return why
        if before is not None and before.waits:
            run = Run(next(self._numbers), agent, conversation, work)
            return self._refuse_in_a_stream(run, _ASKED)
        if not self.refuses:
            work.began_at = trio.current_time()
        return await self._start(self._begin(agent, conversation, work, mark))

    async def _go_on(self, run: Run) -> httpx.Response:
        if self.approvals_wait_for is not None:
            await self.approvals_wait_for.wait()
        return self._stream(run)

    def _refuse_in_a_stream(self, run: Run, why: str) -> httpx.Response:
        run.work.name = run.id
        run.stream.say_raw(event(ping(run.number, run.id)))
        run.end("error", why)
        return self._stream(run)

    async def _start(self, run: Run) -> httpx.Response:
        await self._let_start()
        if not self.refuses:
            return self._stream(run)
        run.work.began_at = None
        self._newest.pop(run.where)
        return _no(404, f"Agent with ID {run.agent_id} not found")

    def _busy(self, before: Run | None, conversation: str | None) -> httpx.Response | None:
        if before is None or before.reason or not (self.locks and conversation):
            return None
        text = f"Cannot send a new message: Another request (run_id={before.id}) is processed."
        return httpx.Response(409, json={"detail": text, "run_id": before.id})

    def _begin(self, agent: str, conversation: str | None, work: Work, mark: str | None) -> Run:
        run = Run(next(self._numbers), agent, conversation, work, mark=mark)
        work.name = work.name or run.id
        self._runs[run.id] = self._newest[run.where] = run
        run.stream.say_raw(event(ping(run.number, run.id)))
        return run

    def _stream(self, run: Run) -> httpx.Response:
        run.answered = True
        headers = {"content-type": "text/event-stream; charset=utf-8"}
        return httpx.Response(200, headers=headers, stream=run.stream)

    async def _cancel(self, run_ids: list[str]) -> httpx.Response:
        answers: Answer = {}
        for run_id in run_ids:
            run = self._runs.get(run_id)
            answers[run_id] = "failed" if run is None else "cancelled"
            if run is None:
                continue
            run.told = True
            run.work.told_at.append(trio.current_time())
            if run.waits:
                # Nothing runs, and nobody goes on with it; but the question stays.
                self._over(run.work)
            if self.cancels == "refused":
                return _no(500, "An unknown error occurred")
            if self.cancels in ("obeyed", "unanswered") and run.reason is None:
                self._nursery.start_soon(self._wind_up, run)
        if self.cancels in ("held", "unanswered"):
            await trio.sleep_forever()
        return httpx.Response(200, json=answers)

    async def _wind_up(self, run: Run) -> None:
        if self.ends_after:
            await trio.sleep(self.ends_after)
        if run.reason is None:
            run.end("cancelled")
        if self.drops_after is None or run.reason != "cancelled":
            return
        if self.drops_after:
            await trio.sleep(self.drops_after)
        self.drop(run.work)

    # The levers.

    def run_of(self, work: Work) -> Run:
        """The run that works on it now, or did so last."""
        return [run for run in self._runs.values() if run.work is work][-1]

    def drop(self, work: Work) -> None:
        """End the model call of a run that was cancelled."""
        self.run_of(work).traced = True
        self._over(work)

    def _over(self, work: Work) -> None:
        if work.runs:
            work.ended_at = trio.current_time()

    def refuse_starts(self) -> None:
        """Refuse messages from now on, and those that are held."""
        self.refuses = True
        for run in self._runs.values():
            if not run.answered:
                run.work.began_at = None

    def say(self, work: Work, text: str) -> None:
        """Have the model say a piece of its answer."""
        if work.runs:
            self.run_of(work).say("assistant_message", content=text)

    def ask(self, work: Work, tool: str = "bake") -> None:
        """Have the model call a tool that needs an approval: that ends the run.

        And the work, where it was told to stop: nobody will ask for another run of it.
        """
        run = self.run_of(work)
        if not work.runs or run.reason is not None:
            return
        run.asked = f"call-{run.number}"
        call = {"name": tool, "arguments": '{"what": "a cake"}', "tool_call_id": run.asked}
        run.say("approval_request_message", tool_call=call, tool_calls=call)
        run.end("requires_approval")
        if work.told_at:
            self._over(work)

    def return_tool(self, work: Work, text: str) -> None:
        """Have the tool that was approved return."""
        asked = [run.asked for run in self._runs.values() if run.work is work and run.asked]
        said = {"tool_return": text, "status": "success", "tool_call_id": asked[-1]}
        self.run_of(work).say("tool_return_message", **said)

    def end(self, work: Work, reason: str = "end_turn", detail: str = "") -> None:
        """Have a work end by itself, for this reason."""
        if work.runs and self.run_of(work).reason is None:
            self.run_of(work).end(reason, detail)
            self._over(work)

    def babble(self) -> None:
        """Send garbage into every stream."""
        for run in self._runs.values():
            run.stream.say_raw("data: lorem ipsum\n\n")

    def cut(self) -> None:
        """Break every connection, and work on."""
        for run in self._runs.values():
            run.stream.break_off()
        for pending in self._pending:
            pending.scope.cancel()

    def die(self) -> None:
        """Break every connection and end all work; the next request meets a server again.

        It has its agents and conversations still, and lets in whoever comes.
        """
        self.cut()
        for work in self.works:
            self._over(work)
        for run in self._runs.values():
            run.reason = run.reason or "error"


def _value(value: Answer | None) -> httpx.Response:
    # HTTPX would leave the body of null out.
    headers = {"content-type": "application/json"}
    return httpx.Response(200, headers=headers, text=json.dumps(value))


def _no(status: int, detail: str) -> httpx.Response:
    return httpx.Response(status, json={"detail": detail})


def _text_of(content: Any) -> str:
    parts = [{"text": content}] if isinstance(content, str) else content
    return "".join(str(part.get("text", "")) for part in parts)
