"""A real A2A agent to stop: `python -m turnstop.lab.a2a_server --port 0`.

It is the reference server of a2a-sdk with an executor that does what the message says, and it is
the one module here that runs on asyncio: it lives in a process of its own. It prints one JSON
object a line: `{"port": N}` once it listens, then what became of each piece of work, with times
of CLOCK_MONOTONIC. It ends when its standard input does.

A message is `MODE token=NAME [seconds=S] [count=N]`, where MODE is one of

==========  =====================================================================================
answer      one artifact, completed
stream      `count` artifacts, `seconds` apart, completed
park        works until it is cancelled, and ends then
late        the same, but cleaning up takes it `seconds`
swallow     ignores its cancellation for `seconds`: it says CANCELED long before it ends
unpublished publishes no task until it ends by itself after `seconds`
message     answers with a message after `seconds`, and never makes a task
ask         input-required; the next message of the task says how to go on
fail        failed, with a reason
crash       the executor raises
linger      failed, and works on for `seconds`
muddle      breaks the protocol, and ignores its cancellation for `seconds`
steer       does what is written to standard input: see `_steering`
status      (not the executor:) HTTP 500
garbage     (not the executor:) an answer that is not JSON
silence     (not the executor:) no answer at all
==========  =====================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from a2a.helpers import (
    get_message_text,
    new_task_from_user_message,
    new_text_artifact_update_event,
    new_text_message,
    new_text_status_update_event,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    SendMessageRequest,
    Task,
    TaskState,
)
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from ._steering import Steering, read_orders

_ORDER = re.compile(r"(?P<mode>\w+)(?P<rest>(?: \w+=\S+)*)")


def _say(**fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


class _Order:
    """What a message asks for."""

    def __init__(self, text: str) -> None:
        found = _ORDER.match(text.strip())
        words = dict(pair.split("=", 1) for pair in found["rest"].split()) if found else {}
        self.mode = found["mode"] if found else "answer"
        self.token = words.get("token", "")
        self.seconds = float(words.get("seconds", "0"))
        self.count = int(words.get("count", "3"))


class _Turn:
    """One message being worked on: the order, and the queue to publish to."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        assert context.message is not None
        self.message = context.message
        self.continued = context.current_task is not None
        self.order = _Order(get_message_text(context.message))
        self.token = self.order.token
        self._ids = (context.task_id or "", context.context_id or "")
        self._queue = queue

    async def publish(self) -> None:
        """Publish the task, unless this message continues one."""
        if not self.continued:
            task = new_task_from_user_message(self.message)
            task.id, task.context_id = self._ids
            await self._queue.enqueue_event(task)
        await self.status(TaskState.TASK_STATE_WORKING, "working")

    async def status(self, state: TaskState, text: str) -> None:
        """Move the task to a state."""
        await self._queue.enqueue_event(new_text_status_update_event(*self._ids, state, text))

    async def artifact(self, text: str) -> None:
        """Publish a piece of the result."""
        event = new_text_artifact_update_event(*self._ids, name="result", text=text)
        await self._queue.enqueue_event(event)

    async def reply(self, text: str) -> None:
        """Answer with a message, without a task."""
        await self._queue.enqueue_event(new_text_message(text, context_id=self._ids[1]))


class _Executor(AgentExecutor):
    """Does what the message says, and tells when the work began and ended."""

    def __init__(self, steering: Steering) -> None:
        self._tokens: dict[str, str] = {}
        self._steer = steering.follow_orders

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        turn = _Turn(context, event_queue)
        self._tokens[context.task_id or ""] = turn.order.token
        _say(began=turn.token, at=time.monotonic(), context=context.context_id)
        try:
            await getattr(self, f"_{turn.order.mode}", self._answer)(turn)
        finally:
            _say(ended=turn.order.token, at=time.monotonic())

    def tell(self, task_id: str) -> None:
        """Say that work was told to stop."""
        _say(told=self._tokens.get(task_id, ""), at=time.monotonic())

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id = context.task_id or ""
        self.tell(task_id)
        state = TaskState.TASK_STATE_CANCELED
        said = new_text_status_update_event(task_id, context.context_id or "", state, "cancelled")
        await event_queue.enqueue_event(said)

    async def _answer(self, turn: _Turn) -> None:
        await turn.publish()
        await turn.artifact(f"answer to {turn.order.token}")
        await turn.status(TaskState.TASK_STATE_COMPLETED, "")

    async def _stream(self, turn: _Turn) -> None:
        await turn.publish()
        for number in range(turn.order.count):
            await turn.artifact(f"piece {number} ")
            await asyncio.sleep(turn.order.seconds)
        await turn.status(TaskState.TASK_STATE_COMPLETED, "")

    async def _park(self, turn: _Turn) -> None:
        await turn.publish()
        await asyncio.Event().wait()

    async def _late(self, turn: _Turn) -> None:
        await turn.publish()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(turn.order.seconds)

    async def _swallow(self, turn: _Turn) -> None:
        await turn.publish()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(turn.order.seconds)

    async def _unpublished(self, turn: _Turn) -> None:
        await asyncio.sleep(turn.order.seconds)
        await self._answer(turn)

    async def _message(self, turn: _Turn) -> None:
        await asyncio.sleep(turn.order.seconds)
        await turn.reply(f"answer to {turn.order.token}")

    async def _ask(self, turn: _Turn) -> None:
        await turn.publish()
        await turn.status(TaskState.TASK_STATE_INPUT_REQUIRED, "which one?")

    async def _fail(self, turn: _Turn) -> None:
        await turn.publish()
        await turn.status(TaskState.TASK_STATE_FAILED, "no flour left")

    async def _crash(self, turn: _Turn) -> None:
        await turn.publish()
        raise RuntimeError("the oven exploded")

    async def _linger(self, turn: _Turn) -> None:
        await self._fail(turn)
        await asyncio.sleep(turn.order.seconds)

    async def _muddle(self, turn: _Turn) -> None:
        await turn.publish()
        await turn.reply("a message, where a task was begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(turn.order.seconds)


class _Blocking(DefaultRequestHandler):
    """An agent that answers a message only when the work is over, whatever it was asked."""

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Message | Task:
        params.configuration.return_immediately = False
        answer: Message | Task = await super().on_message_send(params, context)
        return answer


class _Misbehaving:
    """Answers some messages itself, as no A2A agent should."""

    def __init__(self, app: ASGIApp, executor: _Executor, steering: Steering) -> None:
        self._app = app
        self._executor = executor
        self._steering = steering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        body = await _whole_body(receive)
        if b'"silence ' in body:
            await asyncio.Event().wait()
        if b'"status ' in body:
            return await _respond(send, 500, b"the kitchen is on fire")
        if b'"garbage ' in body:
            return await _respond(send, 200, b"<html>lorem ipsum</html>")
        if self._steering.cancels in ("held", "unanswered") and b'"CancelTask"' in body:
            if self._steering.cancels == "held":
                self._executor.tell(json.loads(body)["params"]["id"])
            else:
                await self._app(scope, _replay(body, receive), _unsent)
            await asyncio.Event().wait()
        return await self._app(scope, _replay(body, receive), send)


async def _unsent(message: object) -> None:
    """An answer that nobody gets."""


async def _whole_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def _replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Any]]:
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Any:
        return parts.pop() if parts else await receive()

    return replayed


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _card(url: str, streaming: bool) -> AgentCard:
    return AgentCard(
        name="turnstop lab agent",
        description="Does what the message says.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="work", name="work", description="Works.", tags=["lab"])],
    )


async def _end_with_stdin(server: uvicorn.Server, steering: Steering) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await read_orders(reader, steering)
    server.should_exit = True


async def _serve(port: int, streaming: bool, blocking: bool) -> None:
    # By its protocol asyncio knows TCP, and without that it leaves Nagle on: 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    port = listener.getsockname()[1]
    card = _card(f"http://127.0.0.1:{port}/", streaming)
    kind = _Blocking if blocking else DefaultRequestHandler
    steering = Steering()
    executor = _Executor(steering)
    handler = kind(executor, InMemoryTaskStore(), card)
    app = Starlette(
        routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")],
    )
    config = uvicorn.Config(
        _Misbehaving(app, executor, steering),
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    watch = asyncio.ensure_future(_end_with_stdin(server, steering))
    _say(port=port)
    await server.serve(sockets=[listener])
    await handler.aclose()
    watch.cancel()


def main() -> None:
    """Serve until standard input ends, or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m turnstop.lab.a2a_server")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--no-streaming", action="store_true", help="the card offers no streams")
    parser.add_argument(
        "--blocking", action="store_true", help="ignore return_immediately: answer at the end"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(options.port, not options.no_streaming, options.blocking))


if __name__ == "__main__":
    main()
