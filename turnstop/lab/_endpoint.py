"""The model endpoint: HTTP/1.1 on loopback, and which wire format answers a request."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from .._service import open_service
from .._unwrap import open_private_nursery
from ._http import Http, RemoteProtocolError, Request
from ._ledger import Connection, Exchange, Lab
from ._play import Play
from ._wire import Asked, Wire
from .behaviours import Behaviour, read_prompt
from .chat import Chat
from .gemini import Gemini
from .messages import Messages
from .responses import Responses

_WIRES: tuple[Wire, ...] = (
    Responses(),
    Chat(),
    Messages(),
    Gemini(streamed=True),
    Gemini(streamed=False),
)
_LISTING = {"object": "list", "data": [{"id": "fake-model", "object": "model"}]}
# What programs ask about a history without asking for an answer: no request of a turn.
_COUNTS = {
    "/messages/count_tokens": {"input_tokens": 1},
    ":countTokens": {"totalTokens": 1},
}


@asynccontextmanager
async def open_lab() -> AsyncGenerator[Lab, None]:
    """Serve models on a free port of 127.0.0.1 until the body has left.

    **Cancellation:** reaches the body first: the lab serves while agents are still being ended
    inside it, and then drops every connection.
    """
    async with open_service() as service:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        lab = Lab(f"http://127.0.0.1:{port}", service)
        service.start_soon(partial(trio.serve_listeners, partial(_serve, lab), listeners))
        yield lab


async def _serve(lab: Lab, stream: trio.SocketStream) -> None:
    """One connection, from its opening to its end."""
    connection = lab._opened()
    http = Http(stream)
    try:
        while (request := await http.next_request()) is not None:
            body = await http.read_body()
            async with open_private_nursery() as nursery:
                # The only way to see a client leave a response that is silent is to read.
                nursery.start_soon(_until_client_leaves, http, nursery.cancel_scope)
                await _answer(lab, connection, http, request, body)
                nursery.cancel_scope.cancel()
            if http.left or not http.start_next_cycle():
                break
    except (trio.BrokenResourceError, RemoteProtocolError):
        pass
    finally:
        lab._dropped(connection)
        await trio.aclose_forcefully(stream)


async def _until_client_leaves(http: Http, scope: trio.CancelScope) -> None:
    await http.wait_left()
    scope.cancel()


async def _answer(
    lab: Lab, connection: Connection, http: Http, request: Request, body: bytes
) -> None:
    method = request.method.decode()
    path = request.target.decode().partition("?")[0]
    wire = next((wire for wire in _WIRES if wire.serves(method, path)), None)
    if wire is None:
        await http.json(*_other(path))
        return
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError
    except ValueError:
        await http.json(400, {"error": {"message": "the body is no JSON object"}})
        return
    asked = wire.read(content)
    exchange = _open_exchange(lab, connection, wire, body, asked)
    try:
        await Play(lab, exchange, http, asked, wire.reply(content)).run()
    except BaseException:
        lab._ended(exchange, dropped=True)
        raise
    lab._ended(exchange, dropped=False)


def _other(path: str) -> tuple[int, Any]:
    """Status and body for what is no model request."""
    if count := next((count for end, count in _COUNTS.items() if path.endswith(end)), None):
        return 200, count
    known = path.endswith("/models") or path == "/"
    return (200, _LISTING) if known else (404, {"error": path})


def _open_exchange(
    lab: Lab, connection: Connection, wire: Wire, body: bytes, asked: Asked
) -> Exchange:
    token, behaviour = read_prompt(asked.history.prompt) or ("", Behaviour())
    if asked.side:
        behaviour = Behaviour()
    elif behaviour.word == "tool" and asked.history.results:
        behaviour = behaviour.after_tool()
    number = len(lab.exchanges) + 1
    now = trio.current_time()
    exchange = Exchange(number, token, wire.name, behaviour, connection, now, body, asked.side)
    lab._asked(exchange, asked.faults)
    return exchange
