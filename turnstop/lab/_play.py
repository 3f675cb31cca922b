"""What each behaviour does to a response."""

from __future__ import annotations

import json

import attrs
import trio

from ._http import Http
from ._ledger import Exchange, Lab
from ._processes import mark
from ._tools import example, shell_call
from ._wire import Asked, Reply

_PIECES = 3
_DRIP_MS = 20
_ERRORS = {400: ("invalid_request_error", "INVALID_ARGUMENT"), 500: ("api_error", "INTERNAL")}
_EVENT_STREAM = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]


@attrs.define(eq=False)
class Play:
    """One response. Asked for no stream, it sends nothing until it is complete."""

    lab: Lab
    exchange: Exchange
    http: Http
    asked: Asked
    reply: Reply

    async def run(self) -> None:
        """Do what the prompt asked for."""
        behaviour = self.exchange.behaviour
        if behaviour.word == "refuse":
            await self._refuse(500, "the lab was asked to refuse")
            return
        if self.exchange.token in self.lab._failed:
            await self._refuse(400, "the lab was asked to fail, and stays with it")
            return
        if behaviour.word == "hold":
            self.lab._parked(self.exchange)
            await self.exchange.released.wait()
        if self.asked.streamed:
            await self.http.head(200, _EVENT_STREAM)
        await self._send(self.reply.begin())
        last = b"" if behaviour.word == "fail" else await self._speak()
        if not last:
            self.lab._failed.add(self.exchange.token)
        if self.asked.streamed:
            await self.http.end(last or self.reply.fail())
        elif last:
            await self.http.json(200, self.reply.whole())
        else:
            await self._refuse(500, "the lab was asked to fail")

    async def _send(self, frames: bytes) -> None:
        if self.asked.streamed:
            await self.http.data(frames)

    async def _refuse(self, status: int, message: str) -> None:
        # Each program finds its own format's fields in it.
        kind, name = _ERRORS[status]
        error = {"type": kind, "code": status, "status": name, "message": message}
        await self.http.json(status, {"type": "error", "error": error})

    async def _speak(self) -> bytes:
        """Say all of the response but its last frames, which are returned; none: it fails."""
        behaviour, reply = self.exchange.behaviour, self.reply
        word, number = behaviour.word, behaviour.number
        if word == "tool":
            return self._tool(behaviour.command) + reply.end()
        if word == "park":
            for index in range(_PIECES if number is None else number):
                await self._send(reply.piece(f"piece {index} "))
        if word in ("park", "headers") and (last := await self._obey()) is not None:
            return last
        if word == "drip":
            await self._drip((_DRIP_MS if number is None else number) / 1000)
        return reply.piece(self._answer()) + reply.end()

    def _answer(self) -> str:
        if self.asked.schema is not None:
            return json.dumps(example(self.asked.schema))
        return f"answer to {self.exchange.token}"

    async def _drip(self, every: float) -> None:
        self.lab._parked(self.exchange)
        while not self.exchange.released.is_set():
            await self._send(self.reply.piece("drop "))
            with trio.move_on_after(every):
                await self.exchange.released.wait()

    async def _obey(self) -> bytes | None:
        """Park, and do what is ordered; the last frames, where that was the end of it."""
        exchange, reply = self.exchange, self.reply
        self.lab._parked(exchange)
        while True:
            while exchange.orders:
                order, text, arguments = exchange.orders.popleft()
                if order == "say":
                    await self._send(reply.piece(text))
                    continue
                exchange.ending_at = trio.current_time()
                if order == "fail":
                    return b""
                if order == "tool":
                    return self._tool(text) + reply.end()
                return (reply.call(text, arguments) if order == "call" else b"") + reply.end()
            if exchange.released.is_set():
                return None
            exchange.ordered = trio.Event()
            await exchange.ordered.wait()

    def _tool(self, command: str) -> bytes:
        return self.reply.call(*shell_call(self.asked.tools, mark(self.exchange.token, command)))
