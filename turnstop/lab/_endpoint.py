"""The model endpoint: HTTP/1.1 on loopback, and what each behaviour does to a response."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

try:
    import h11
except ImportError:
    install = "python -m pip install 'turnstop[lab]'"
    raise ImportError(f"turnstop.lab needs h11: {install}") from None

from .._service import open_service
from .._unwrap import open_private_nursery
from ._ledger import Connection, Exchange, Lab
from ._processes import mark
from ._wire import Reply, Wire
from .behaviours import Behaviour, read_prompt
from .responses import Responses

_WIRES: tuple[Wire, ...] = (Responses(),)
_MODEL = "fake-model"
_PIECES = 3
_DRIP_MS = 20
_EVENT_STREAM = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]


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
    http = _Http(stream)
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
    except (trio.BrokenResourceError, h11.RemoteProtocolError):
        pass
    finally:
        lab._dropped(connection)
        await trio.aclose_forcefully(stream)


async def _until_client_leaves(http: _Http, scope: trio.CancelScope) -> None:
    await http.wait_left()
    scope.cancel()


class _Http:
    """h11 on a stream. Reading is split: request bytes by one task, then the end by another."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._machine = h11.Connection(h11.SERVER)
        self.left = False

    async def next_request(self) -> h11.Request | None:
        """The next request's head; None at the end of the connection."""
        event = await self._next_event()
        return event if isinstance(event, h11.Request) else None

    async def read_body(self) -> bytes:
        parts = []
        while isinstance(event := await self._next_event(), h11.Data):
            parts.append(bytes(event.data))
        return b"".join(parts)

    async def _next_event(self) -> object:
        while (event := self._machine.next_event()) is h11.NEED_DATA:
            if self._machine.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._machine.receive_data(await self._stream.receive_some())
        return event

    async def wait_left(self) -> None:
        """Return when the client has closed or reset; a pipelined request is kept for later."""
        try:
            while data := await self._stream.receive_some():
                self._machine.receive_data(data)
        except trio.BrokenResourceError:
            pass
        self.left = True

    async def head(self, status: int, headers: list[tuple[str, str]]) -> None:
        await self._send(h11.Response(status_code=status, headers=headers))

    async def data(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: Any) -> None:
        await self._stream.send_all(self._machine.send(event) or b"")

    def start_next_cycle(self) -> bool:
        if self._machine.our_state is h11.DONE and self._machine.their_state is h11.DONE:
            self._machine.start_next_cycle()
            return True
        return False


async def _answer(
    lab: Lab, connection: Connection, http: _Http, request: h11.Request, body: bytes
) -> None:
    method = request.method.decode()
    path = request.target.decode().partition("?")[0]
    wire = next((wire for wire in _WIRES if wire.serves(method, path)), None)
    if wire is None:
        known = path.endswith("/models") or path == "/"
        listing = {"object": "list", "data": [{"id": _MODEL, "object": "model"}]}
        await _send_json(http, 200 if known else 404, listing if known else {"error": path})
        return
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError
    except ValueError:
        await _send_json(http, 400, {"error": {"message": "the body is no JSON object"}})
        return
    exchange = _open_exchange(lab, connection, wire, body, content)
    try:
        await _play(lab, exchange, http, wire.reply(content))
    except BaseException:
        lab._ended(exchange, dropped=True)
        raise
    lab._ended(exchange, dropped=False)


def _open_exchange(
    lab: Lab, connection: Connection, wire: Wire, body: bytes, content: dict[str, Any]
) -> Exchange:
    asked = wire.read(content)
    token, behaviour = read_prompt(asked.prompt) or ("", Behaviour())
    if behaviour.word == "tool" and asked.results:
        behaviour = behaviour.after_tool()
    number = len(lab.exchanges) + 1
    now = trio.current_time()
    exchange = Exchange(number, token, wire.name, behaviour, connection, now, body)
    lab._asked(exchange, asked.faults)
    return exchange


async def _send_json(http: _Http, status: int, content: object) -> None:
    data = json.dumps(content).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    await http.head(status, headers)
    await http.data(data)
    await http.end()


async def _play(lab: Lab, exchange: Exchange, http: _Http, reply: Reply) -> None:
    """Do what the prompt asked for."""
    behaviour = exchange.behaviour
    if behaviour.word == "refuse":
        await _send_json(http, 500, {"error": {"message": "the lab was asked to refuse"}})
        return
    if behaviour.word == "hold":
        await _park(lab, exchange)
    await http.head(200, _EVENT_STREAM)
    await http.data(reply.begin())
    if behaviour.word == "fail":
        await http.data(reply.fail())
    elif behaviour.word == "tool":
        await http.data(reply.tool(mark(exchange.token, behaviour.command)) + reply.end())
    else:
        await http.data(await _speak(lab, exchange, http, reply))
    await http.end()


async def _speak(lab: Lab, exchange: Exchange, http: _Http, reply: Reply) -> bytes:
    """Say all of the response but its last frames, which are returned."""
    word, number = exchange.behaviour.word, exchange.behaviour.number
    if word == "park":
        for index in range(_PIECES if number is None else number):
            await http.data(reply.piece(f"piece {index} "))
    if word in ("park", "headers") and (last := await _obey(lab, exchange, http, reply)):
        return last
    if word == "drip":
        lab._parked(exchange)
        while not exchange.released.is_set():
            await http.data(reply.piece("drop "))
            with trio.move_on_after((_DRIP_MS if number is None else number) / 1000):
                await exchange.released.wait()
    return reply.piece(f"answer to {exchange.token}") + reply.end()


async def _obey(lab: Lab, exchange: Exchange, http: _Http, reply: Reply) -> bytes:
    """Park, and do what is ordered; the last frames, where that was the end of it."""
    lab._parked(exchange)
    while True:
        while exchange.orders:
            order, text = exchange.orders.popleft()
            if order == "say":
                await http.data(reply.piece(text))
                continue
            exchange.ending_at = trio.current_time()
            if order == "fail":
                return reply.fail()
            if order == "tool":
                return reply.tool(mark(exchange.token, text)) + reply.end()
            return (reply.call(text, {}) if order == "call" else b"") + reply.end()
        if exchange.released.is_set():
            return b""
        exchange.ordered = trio.Event()
        await exchange.ordered.wait()


async def _park(lab: Lab, exchange: Exchange) -> None:
    lab._parked(exchange)
    await exchange.released.wait()
