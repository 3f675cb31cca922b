"""A client of the endpoint in a few lines, and how each wire format says what the tests say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import h11
import trio

from turnstop.lab import Lab

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
Json = dict[str, Any]


class Client:
    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.machine = h11.Connection(h11.CLIENT)

    async def ask(self, body: object, path: str = "/v1/responses", method: str = "POST") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [("Host", "lab"), ("Content-Length", str(len(data)))]
        head = h11.Request(method=method, target=path, headers=headers)
        for event in (head, h11.Data(data=data), h11.EndOfMessage()):
            await self.stream.send_all(self.machine.send(event) or b"")

    async def next(self) -> object:
        while (event := self.machine.next_event()) is h11.NEED_DATA:
            self.machine.receive_data(await self.stream.receive_some())
        return event

    async def answer(self) -> tuple[int, bytes]:
        head = await self.next()
        assert isinstance(head, h11.Response)
        data = b""
        while isinstance(event := await self.next(), h11.Data):
            data += event.data
        assert isinstance(event, h11.EndOfMessage), event
        self.machine.start_next_cycle()
        return head.status_code, data


@asynccontextmanager
async def connect(lab: Lab) -> AsyncIterator[Client]:
    port = int(lab.url.rpartition(":")[2])
    with trio.fail_after(20):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            yield Client(stream)


def events(data: bytes) -> list[Json]:
    lines = data.decode().splitlines()
    texts = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(text) for text in texts if text != "[DONE]"]


@attrs.define
class Said:
    """What a response came to."""

    text: str = ""
    calls: list[tuple[str, Json]] = attrs.field(factory=list)
    is_complete: bool = False
    has_failed: bool = False


class Responses:
    name = "responses"
    shell = "exec_command"

    def path(self, *, stream: bool) -> str:
        return "/v1/responses"

    def body(self, *items: Json, stream: bool = True, tools: bool = True) -> Json:
        tool = {"type": "function", "name": "exec_command", "parameters": SCHEMA}
        return {"stream": stream, "tools": [tool] if tools else [], "input": list(items)}

    def user(self, *texts: str) -> Json:
        content = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "role": "user", "content": content}

    def model(self, text: str) -> Json:
        content = [{"type": "output_text", "text": text}]
        return {"type": "message", "role": "assistant", "content": content}

    def call(self, key: str) -> Json:
        return {"type": "function_call", "call_id": key, "name": "exec_command", "arguments": "{}"}

    def result(self, key: str) -> Json:
        return {"type": "function_call_output", "call_id": key, "output": "x"}

    def read(self, data: bytes) -> Said:
        said = Said()
        for event in events(data):
            said.text += event.get("delta", "")
            if event["type"] == "response.output_item.done":
                self._take(said, [event["item"]])
            said.is_complete |= event["type"] == "response.completed"
            said.has_failed |= event["type"] == "response.failed"
        return said

    def read_whole(self, data: bytes) -> Said:
        answer = json.loads(data)
        said = Said(is_complete=answer["status"] == "completed")
        self._take(said, answer["output"])
        said.text = "".join(
            part["text"] for item in answer["output"] for part in item.get("content", ())
        )
        return said

    def _take(self, said: Said, items: list[Json]) -> None:
        for item in items:
            if item["type"] == "function_call":
                said.calls.append((item["name"], json.loads(item["arguments"])))


class Chat:
    name = "chat"
    shell = "bash"

    def path(self, *, stream: bool) -> str:
        return "/v1/chat/completions"

    def body(self, *items: Json, stream: bool = True, tools: bool = True) -> Json:
        tool = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
        body = {"model": "m", "messages": [{"role": "system", "content": "You are."}, *items]}
        return body | ({"stream": True} if stream else {}) | ({"tools": [tool]} if tools else {})

    def user(self, *texts: str) -> Json:
        return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}

    def model(self, text: str) -> Json:
        return {"role": "assistant", "content": text}

    def call(self, key: str) -> Json:
        function = {"name": "bash", "arguments": "{}"}
        call = {"id": key, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def result(self, key: str) -> Json:
        return {"role": "tool", "tool_call_id": key, "content": "x"}

    def read(self, data: bytes) -> Said:
        said = Said(is_complete=data.endswith(b"data: [DONE]\n\n"))
        for event in events(data):
            said.has_failed |= "error" in event
            for choice in event.get("choices", ()):
                self._take(said, choice["delta"])
        return said

    def read_whole(self, data: bytes) -> Said:
        choice = json.loads(data)["choices"][0]
        said = Said(is_complete=choice["finish_reason"] in ("stop", "tool_calls"))
        self._take(said, choice["message"])
        return said

    def _take(self, said: Said, message: Json) -> None:
        said.text += message.get("content") or ""
        for call in message.get("tool_calls", ()):
            function = call["function"]
            said.calls.append((function["name"], json.loads(function["arguments"])))


class Messages:
    name = "messages"
    shell = "Bash"

    def path(self, *, stream: bool) -> str:
        return "/v1/messages?beta=true"

    def body(self, *items: Json, stream: bool = True, tools: bool = True) -> Json:
        body = {"model": "m", "max_tokens": 9, "stream": stream, "messages": list(items)}
        return body | ({"tools": [{"name": "Bash", "input_schema": SCHEMA}]} if tools else {})

    def user(self, *texts: str) -> Json:
        return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}

    def model(self, text: str) -> Json:
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def call(self, key: str) -> Json:
        block = {"type": "tool_use", "id": key, "name": "Bash", "input": {}}
        return {"role": "assistant", "content": [block]}

    def result(self, key: str) -> Json:
        block = {"type": "tool_result", "tool_use_id": key, "content": "x"}
        return {"role": "user", "content": [block]}

    def read(self, data: bytes) -> Said:
        said, open_blocks = Said(), 0
        for event in events(data):
            kind, delta = event["type"], event.get("delta", {})
            open_blocks += {"content_block_start": 1, "content_block_stop": -1}.get(kind, 0)
            if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
                said.calls.append((event["content_block"]["name"], {}))
            said.text += delta.get("text", "")
            if "partial_json" in delta:
                said.calls[-1] = (said.calls[-1][0], json.loads(delta["partial_json"]))
            said.is_complete |= kind == "message_stop" and open_blocks == 0
            said.has_failed |= kind == "error"
        return said

    def read_whole(self, data: bytes) -> Said:
        answer = json.loads(data)
        said = Said(is_complete=answer["stop_reason"] in ("end_turn", "tool_use"))
        for block in answer["content"]:
            said.text += block.get("text", "")
            if block["type"] == "tool_use":
                said.calls.append((block["name"], block["input"]))
        return said


class Gemini:
    name = "gemini"
    shell = "run_shell_command"

    def path(self, *, stream: bool) -> str:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/gemini-2.5-flash:{verb}"

    def body(self, *items: Json, stream: bool = True, tools: bool = True) -> Json:
        function = {"name": "run_shell_command", "parametersJsonSchema": SCHEMA}
        group = {"functionDeclarations": [function]}
        return {"contents": list(items)} | ({"tools": [group]} if tools else {})

    def user(self, *texts: str) -> Json:
        return {"role": "user", "parts": [{"text": text} for text in texts]}

    def model(self, text: str) -> Json:
        return {"role": "model", "parts": [{"text": text}]}

    def call(self, key: str) -> Json:
        call = {"id": key, "name": "run_shell_command", "args": {}}
        return {"role": "model", "parts": [{"functionCall": call}]}

    def result(self, key: str) -> Json:
        result = {"id": key, "name": "run_shell_command", "response": {"output": "x"}}
        return {"role": "user", "parts": [{"functionResponse": result}]}

    def read(self, data: bytes) -> Said:
        said = Said()
        for event in events(data):
            said.has_failed |= "error" in event
            self._take(said, event)
        return said

    def read_whole(self, data: bytes) -> Said:
        said = Said()
        self._take(said, json.loads(data))
        return said

    def _take(self, said: Said, response: Json) -> None:
        for candidate in response.get("candidates", ()):
            for part in candidate["content"]["parts"]:
                said.text += part.get("text", "")
                if call := part.get("functionCall"):
                    said.calls.append((call["name"], call["args"]))
            said.is_complete |= candidate.get("finishReason") == "STOP"


Dialect = Responses | Chat | Messages | Gemini
DIALECTS = (Responses(), Chat(), Messages(), Gemini())
