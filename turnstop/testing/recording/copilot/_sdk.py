"""The SDK's client, with a cable in memory in the place of a socket and its reading threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import copilot.client
from copilot import CopilotClient, RuntimeConnection
from copilot._jsonrpc import JsonRpcClient, ProcessExitedError

__all__ = ["MemoryRpc", "connect"]

Message: TypeAlias = dict[str, Any]


class _NoSocket:
    """What stands for the SDK's connection; it has no stderr, and does not say that it ended."""

    stdin = stdout = stderr = None

    def terminate(self) -> None:
        """There is nothing to close."""


class MemoryRpc(JsonRpcClient):
    """The SDK's side of the cable: its own but for reading and writing.

    Attributes:
        tell: called with each message that the SDK writes.
        lost: whether the cable is cut.
    """

    def __init__(self, tell: Callable[[Message], object]) -> None:
        super().__init__(_NoSocket())  # type: ignore[no-untyped-call]
        self.tell = tell
        self.lost = False

    def start(self, loop: Any = None) -> None:
        """Begin to listen."""
        self._running = True
        self._loop = loop

    async def stop(self) -> None:
        """Listen no more."""
        self._running = False

    async def _send_message(self, message: Message, **_: Any) -> None:
        if self.lost:
            raise ProcessExitedError("the cable is cut")
        # As the SDK writes it: what JSON has no words for is not sent.
        self.tell(json.loads(json.dumps(message)))

    def hear(self, message: Message) -> None:
        """Have the SDK read a message."""
        if self._running and not self.lost:
            self._handle_message(message)

    def lose(self) -> None:
        """Have it read the end."""
        if self._running and not self.lost:
            self.lost = True
            self._fail_pending_requests()  # type: ignore[no-untyped-call]
            if self.on_close is not None:
                self.on_close()


class _Client(CopilotClient):
    def __init__(self, rpc: MemoryRpc) -> None:
        super().__init__(connection=RuntimeConnection.for_uri("127.0.0.1:1"))
        self._rpc_in_memory = rpc

    async def _connect_to_server(self) -> None:
        self._process = _NoSocket()
        module: Any = copilot.client
        original = module.JsonRpcClient
        module.JsonRpcClient = lambda process: self._rpc_in_memory
        try:
            # It does not wait: nobody else finds the class changed.
            await self._connect_via_stdio()
        finally:
            module.JsonRpcClient = original


async def connect(rpc: MemoryRpc) -> CopilotClient:
    """A client at this end of the cable. Asyncio-flavoured."""
    client = _Client(rpc)
    await client.start()
    return client
