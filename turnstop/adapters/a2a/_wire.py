"""What is said to an A2A agent, and what its answers mean when they are no answers.

Calls go through the SDK's client. Streams do not: an async generator of the SDK that raises, or
returns at a message, drops the generators below it half-read, and Trio rightly complains. Here a
stream is read by one loop, which is ended by its end or by its scope.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import attrs
import httpx
from a2a.client import (
    A2ACardResolver,
    A2AClientError,
    ClientCallContext,
    ClientConfig,
    ClientFactory,
)
from a2a.client.client import Client
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf import json_format

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...transports.httpcalls import Departures, bare_url, read_events
from ...transports.sse import ServerEvent

Answer = TypeVar("Answer")

NOT_FOUND: Final = -32001
NOT_CANCELABLE: Final = -32002
UNSUPPORTED: Final = -32004
INVALID_RESPONSE: Final = -32006
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
TASK_IS_OVER: Final = (NOT_FOUND, UNSUPPORTED, INVALID_PARAMS)
"""How a message to a finished task is refused: the versions of the SDK differ."""
REFUSALS: Final = {
    *(NOT_FOUND, UNSUPPORTED, METHOD_NOT_FOUND),
    *(-32700, -32600, INVALID_PARAMS),  # not understood
    *(-32005, -32007, -32008, -32009),  # content type, card, extension, version
}


class AgentError(Exception):
    """The agent answered with an error of the protocol; `code` is None where it has no name."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code


@attrs.define(eq=False)
class Wire:
    """One agent: where it is, what it can do, and the calls.

    Attributes:
        url: where it is, as people and journals are told.
        streams: whether it answers a message with a stream.
    """

    url: str
    streams: bool
    _interface: pb.AgentInterface
    _http: httpx.AsyncClient
    _client: Client
    _departures: Departures

    async def send(self, request: pb.SendMessageRequest) -> pb.Task | str:
        """Send a message and return the task, or what the agent said instead of one.

        **Cancellation:** the agent may have begun.
        """

        async def call(context: ClientCallContext) -> pb.Task | str:
            answer: pb.Task | str = ""
            async for event in self._client.send_message(request, context=context):
                answer = event.task if event.HasField("task") else text_of(event.message.parts)
            return answer

        return await self._calling(call)

    async def get(self, task_id: str) -> pb.Task:
        """What the task is now.

        **Cancellation:** changes nothing.
        """
        request = pb.GetTaskRequest(id=task_id)
        return await self._calling(lambda c: self._client.get_task(request, context=c))

    async def cancel(self, task_id: str, left: Callable[[], None]) -> pb.Task:
        """Tell the agent to cancel the task.

        **Cancellation:** the agent may have been told.
        """
        request = pb.CancelTaskRequest(id=task_id)
        return await self._calling(lambda c: self._client.cancel_task(request, context=c), left)

    async def find(self, context_id: str, message_id: str) -> str | None:
        """The id of the task that our message began, if the agent has published it.

        **Cancellation:** changes nothing.
        """
        request = pb.ListTasksRequest(context_id=context_id)
        found = await self._calling(lambda c: self._client.list_tasks(request, context=c))
        for task in found.tasks:
            if any(message.message_id == message_id for message in task.history):
                return str(task.id)
        return None

    async def stream(
        self,
        method: str,
        request: pb.SendMessageRequest | pb.SubscribeToTaskRequest,
        hear: Callable[[pb.StreamResponse], None],
    ) -> None:
        """Make a call that answers with a stream, and read it to its end.

        **Cancellation:** lets go of the stream; the agent goes on.
        """
        if self._interface.tenant:
            request.tenant = self._interface.tenant
        params = json_format.MessageToDict(request)
        body = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        post = self._http.build_request("POST", self._interface.url, json=body, headers=headers)
        try:
            response = await self._http.send(post, stream=True)
            try:
                await _read(response, hear)
            finally:
                await response.aclose()
        except Exception as error:
            raise explain(error, self.url) from error

    async def _calling(
        self,
        call: Callable[[ClientCallContext], Awaitable[Answer]],
        left: Callable[[], None] | None = None,
    ) -> Answer:
        try:
            with self._departures.awaited(left or (lambda: None)) as mark:
                return await call(ClientCallContext(service_parameters=mark))
        except Exception as error:
            raise explain(error, self.url) from error


async def open_wire(url: str, http: httpx.AsyncClient) -> Wire:
    """Fetch the agent's card, and choose how to talk to it."""
    place = bare_url(url)
    departures = Departures(http)
    factory = ClientFactory(ClientConfig(streaming=False, polling=True, httpx_client=http))
    try:
        card = await A2ACardResolver(http, url).get_agent_card()
        interface = _choose(card)
        del card.supported_interfaces[:]
        card.supported_interfaces.append(interface)
        client = factory.create(card)
    except Exception as error:
        raise explain(error, place) from error
    streams = card.capabilities.streaming and not interface.protocol_version.startswith("0.")
    return Wire(place, streams, interface, http, client, departures)


def _choose(card: pb.AgentCard) -> pb.AgentInterface:
    offers = [one for one in card.supported_interfaces if one.protocol_binding == "JSONRPC"]
    if not offers:
        kinds = ", ".join(one.protocol_binding for one in card.supported_interfaces) or "none"
        raise BackendMisbehaved(f"the agent's card offers {kinds}: turnstop speaks JSONRPC only")
    best = max(offers, key=lambda one: one.protocol_version.startswith("1."))
    chosen = pb.AgentInterface()
    chosen.CopyFrom(best)
    return chosen


async def _read(response: httpx.Response, hear: Callable[[pb.StreamResponse], None]) -> None:
    is_stream = "text/event-stream" in response.headers.get("content-type", "")
    if response.status_code >= 400 or not is_stream:
        body = (await response.aread()).decode(errors="replace")
        response.raise_for_status()
        _understand(ServerEvent(body), hear)
        return
    await read_events(response, lambda event: _understand(event, hear))


def _understand(event: ServerEvent, hear: Callable[[pb.StreamResponse], None]) -> None:
    answer = json.loads(event.data)
    if not isinstance(answer, dict) or not ("error" in answer or "result" in answer):
        raise BackendMisbehaved(f"the agent sent no JSON-RPC: {event.data[:200]!r}")
    if error := answer.get("error"):
        code = error.get("code") if isinstance(error, dict) else None
        text = error.get("message") if isinstance(error, dict) else error
        raise AgentError(code if isinstance(code, int) else None, f"{text} ({code})")
    hear(json_format.ParseDict(answer["result"], pb.StreamResponse(), ignore_unknown_fields=True))


def explain(error: Exception, url: str) -> Exception:
    """The contract's error, or `AgentError`, for what the SDK or the HTTP client raised."""
    if isinstance(error, (BackendError, AgentError)):
        return error
    if isinstance(error, NotImplementedError):
        return AgentError(METHOD_NOT_FOUND, "the agent's version of A2A has no such call")
    if isinstance(error, A2AClientError) or not isinstance(error, A2AError):
        cause = error.__cause__ if isinstance(error.__cause__, httpx.HTTPError) else error
        if isinstance(error, A2AClientError) and str(error).startswith("JSON-RPC Error"):
            return AgentError(None, str(error))
        return _explain_http(cause, url)
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error))
    return AgentError(code, f"{error} ({code})")


def _explain_http(error: BaseException, url: str) -> BackendError:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return BackendRefused(f"nothing answers at {url}: start the agent, or correct the url")
    if isinstance(error, httpx.TimeoutException):
        text = f"the agent at {url} said nothing for too long"
        return BackendLost(f"{text}: look at the agent, or raise read_gap")
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        text = f"the agent at {url} answered HTTP {status}: {error.response.text[-500:]}"
        if status < 500:
            return BackendRefused(f"{text}; check the url, and the headers that it wants")
        return BackendMisbehaved(f"{text}; look at the agent's log")
    if isinstance(error, httpx.RequestError):
        return BackendLost(f"the connection to {url} broke ({error!r}): look at the agent")
    return BackendMisbehaved(f"no A2A agent answers at {url} ({error}): look at what listens there")


def text_of(parts: Any) -> str:
    """The text of a message's or an artifact's parts."""
    return "".join(part.text for part in parts if part.HasField("text"))
