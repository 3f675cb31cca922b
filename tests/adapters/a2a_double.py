"""An A2A agent as a transport of httpx: it records what it is asked, and does what it is told."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import trio

Answer = dict[str, Any]
Handler = Callable[[Answer], Awaitable[Answer]]
URL = "http://agent.test/"


def card(streaming: bool, **more: object) -> Answer:
    interface = {"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {
        "name": "double",
        "description": "a double",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": streaming},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


def parts(text: str) -> list[Answer]:
    return [{"text": text}] if text else []


def status(state: str, text: str = "") -> Answer:
    said: Answer = {"state": f"TASK_STATE_{state.upper()}"}
    if text:
        said["message"] = {"messageId": f"m-{text}", "role": "ROLE_AGENT", "parts": parts(text)}
    return said


def task(state: str, *artifacts: str, history: str = "", task_id: str = "t1") -> Answer:
    return {
        "id": task_id,
        "contextId": "",
        "status": status(state),
        "artifacts": [
            {"artifactId": str(number), "parts": parts(text)}
            for number, text in enumerate(artifacts)
        ],
        "history": [{"messageId": history, "role": "ROLE_USER", "parts": parts("x")}],
    }


def moved(state: str, text: str = "", task_id: str = "t1") -> Answer:
    return {"statusUpdate": {"taskId": task_id, "contextId": "", "status": status(state, text)}}


def piece(text: str, *, append: bool = False, artifact: str = "0", task_id: str = "t1") -> Answer:
    made = {"artifactId": artifact, "parts": parts(text)}
    return {"artifactUpdate": {"taskId": task_id, "artifact": made, "append": append}}


def refused(code: object, text: str = "no") -> Answer:
    return {"error": {"code": code, "message": text}}


class Stream(httpx.AsyncByteStream):
    """A stream of events that a test sends into, ends, or breaks."""

    def __init__(self, request_id: object) -> None:
        self._id = request_id
        self._send, self._receive = trio.open_memory_channel[Answer | str | Exception](math.inf)
        self.closed = False

    def say(self, *results: Answer) -> None:
        for result in results:
            whole = {} if "error" in result else {"result": result}
            self._send.send_nowait({"jsonrpc": "2.0", "id": self._id, **(whole or result)})

    def say_raw(self, text: str) -> None:
        self._send.send_nowait(text)

    def end(self) -> None:
        self._send.close()

    def break_off(self) -> None:
        self._send.send_nowait(httpx.ReadError("the cable was pulled"))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            item = await self._receive.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(item, Exception):
            raise item
        text = item if isinstance(item, str) else f"data: {json.dumps(item)}\r\n\r\n"
        return text.encode()

    async def aclose(self) -> None:
        self.closed = True


class Agent(httpx.AsyncBaseTransport):
    """The double. `calls` holds (method, params); `on` maps a method to what answers it."""

    def __init__(self, *, streaming: bool = True) -> None:
        self.card: httpx.Response | Answer = card(streaming)
        self.calls: list[tuple[str, Answer]] = []
        self.times: list[float] = []
        self.headers: list[httpx.Headers] = []
        self.streams: list[Stream] = []
        self.on: dict[str, Handler] = {}
        self.instead: httpx.Response | Exception | None = None
        self._changed = trio.lowlevel.ParkingLot()

    def made(self, method: str) -> list[Answer]:
        return [params for called, params in self.calls if called == method]

    async def called(self, method: str, times: int = 1) -> Answer:
        while len(self.made(method)) < times:
            await self._changed.park()
        return self.made(method)[times - 1]

    async def stream(self, number: int = 0) -> Stream:
        while len(self.streams) <= number:
            await self._changed.park()
        return self.streams[number]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        self.headers.append(request.headers)
        if request.method == "GET":
            found = self.card
            return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)
        asked = json.loads(request.content)
        self.calls.append((asked["method"], asked["params"]))
        self.times.append(trio.current_time())
        self._changed.unpark_all()
        if "trace" in request.extensions:
            await request.extensions["trace"]("http11.send_request_body.complete", {})
        if isinstance(self.instead, Exception):
            raise self.instead
        if self.instead is not None:
            return self.instead
        if asked["method"] in ("SendStreamingMessage", "SubscribeToTask"):
            handler = self.on.get(asked["method"])
            if handler is None or (answer := await handler(asked["params"])) == {}:
                return self._open_stream(asked["id"])
        else:
            answer = await self.on[asked["method"]](asked["params"])
        whole = {} if "error" in answer else {"result": answer}
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": asked["id"], **(whole or answer)})

    def _open_stream(self, request_id: object) -> httpx.Response:
        stream = Stream(request_id)
        self.streams.append(stream)
        self._changed.unpark_all()
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)


def always(answer: Answer) -> Handler:
    async def handle(params: Answer) -> Answer:
        return answer

    return handle


def in_turn(*answers: Answer) -> Handler:
    """One answer after another; the last one again and again."""
    left = list(answers)

    async def handle(params: Answer) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    return handle


async def never(params: Answer) -> Answer:
    await trio.sleep_forever()
    raise AssertionError("unreachable")
