"""A transport of httpx that takes JSON-RPC requests and answers them in memory."""

from __future__ import annotations

import abc
import json

import httpx
import trio

from .._far_http import FedStream
from ._frames import Answer, card


class Stream(FedStream, httpx.AsyncByteStream):
    """A stream of events that somebody sends into, ends, or breaks."""

    broken = httpx.ReadError

    def __init__(self, request_id: object) -> None:
        super().__init__()
        self._id = request_id

    def say(self, *results: Answer) -> None:
        """Send events, or errors."""
        for result in results:
            whole = {} if "error" in result else {"result": result}
            event = {"jsonrpc": "2.0", "id": self._id, **(whole or result)}
            self.say_raw(f"data: {json.dumps(event)}\r\n\r\n")


class AgentTransport(httpx.AsyncBaseTransport, abc.ABC):
    """What every agent here does with a request; a subclass answers it.

    Attributes:
        card: what is answered to a GET.
        calls: the requests, as (method, params).
        times: when each of them arrived, on Trio's clock.
        headers: those of every request, the GET included.
    """

    def __init__(self, *, streaming: bool = True) -> None:
        self.card: httpx.Response | Answer = card(streaming)
        self.calls: list[tuple[str, Answer]] = []
        self.times: list[float] = []
        self.headers: list[httpx.Headers] = []

    @abc.abstractmethod
    async def answer(
        self, method: str, params: Answer, request_id: object
    ) -> Answer | Stream | httpx.Response:
        """Answer a request: with a result or an error, with a stream, or with what is neither.

        **Cancellation:** the client has let go of it.
        """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Take a request.

        **Cancellation:** the request stays recorded.
        """
        await trio.lowlevel.checkpoint()
        self.headers.append(request.headers)
        if request.method == "GET":
            found = self.card
            return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)
        asked = json.loads(request.content)
        self.calls.append((asked["method"], asked["params"]))
        self.times.append(trio.current_time())
        if "trace" in request.extensions:
            await request.extensions["trace"]("http11.send_request_body.complete", {})
        answer = await self.answer(asked["method"], asked["params"], asked["id"])
        if isinstance(answer, httpx.Response):
            return answer
        if isinstance(answer, Stream):
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=headers, stream=answer)
        whole = {} if "error" in answer else {"result": answer}
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": asked["id"], **(whole or answer)})
