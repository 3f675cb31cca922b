"""h11 on a stream of Trio's."""

from __future__ import annotations

import json
from typing import Any

import trio

try:
    import h11
    from h11 import RemoteProtocolError, Request
except ImportError:
    install = "python -m pip install 'turnstop[lab]'"
    raise ImportError(f"turnstop.lab needs h11: {install}") from None

__all__ = ["Http", "RemoteProtocolError", "Request"]


class Http:
    """h11 on a stream. Reading is split: request bytes by one task, then the end by another."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._machine = h11.Connection(h11.SERVER)
        self._head_only = False
        self.left = False

    async def next_request(self) -> Request | None:
        """The next request's head; None at the end of the connection."""
        event = await self._next_event()
        self._head_only = isinstance(event, Request) and event.method == b"HEAD"
        return event if isinstance(event, Request) else None

    async def read_body(self) -> bytes:
        """The request's body, whole."""
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
        """Send the response's head."""
        await self._send(h11.Response(status_code=status, headers=headers))

    async def data(self, data: bytes) -> None:
        """Send a piece of the body."""
        await self._send(h11.Data(data=data))

    async def end(self, last: bytes = b"") -> None:
        """Send the last piece and that the response is complete.

        In one write: a client that has read to the end of its protocol may leave before it reads to
        the end of the message, and would seem to have left too early.
        """
        await self._send(h11.Data(data=last), h11.EndOfMessage())

    async def json(self, status: int, content: object) -> None:
        """Send a whole response."""
        data = json.dumps(content).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
        head = h11.Response(status_code=status, headers=headers)
        body = h11.Data(data=b"" if self._head_only else data)
        await self._send(head, body, h11.EndOfMessage())

    async def _send(self, *events: Any) -> None:
        await self._stream.send_all(b"".join(self._machine.send(event) or b"" for event in events))

    def start_next_cycle(self) -> bool:
        """Whether the connection can carry another request, which is then awaited."""
        if self._machine.our_state is h11.DONE and self._machine.their_state is h11.DONE:
            self._machine.start_next_cycle()
            return True
        return False
