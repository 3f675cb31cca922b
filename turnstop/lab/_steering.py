"""Work that is steered from outside, while it runs: the executor's half of `A2AServer.order`.

It runs on asyncio, in the server's process. What to do comes over standard input, a JSON object a
line: `{"token": NAME, "do": "say" | "complete" | "fail" | "ask", "text": TEXT}` for one
piece of work, and `{"cancels": "obeyed" | "held" | "ignored" | "unanswered"}`, `{"late": SECONDS}`
and `{"shown": BOOL}` for all of them. A cancel that is held never reaches the SDK; the answer of
one that is obeyed and unanswered is lost on its way: where the executor's own `cancel` hangs, the
SDK keeps the stream open after the work has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from typing import Any, Protocol

from a2a.types.a2a_pb2 import TaskState

_ENDS = {
    "complete": TaskState.TASK_STATE_COMPLETED,
    "fail": TaskState.TASK_STATE_FAILED,
    "ask": TaskState.TASK_STATE_INPUT_REQUIRED,
}


class Steered(Protocol):
    """A message being worked on."""

    @property
    def token(self) -> str:
        """Names it."""
        ...

    async def publish(self) -> None:
        """Show the task."""

    async def artifact(self, text: str) -> None:
        """Publish a piece of the result."""

    async def status(self, state: TaskState, text: str) -> None:
        """Move the task to a state."""


class Steering:
    """What was ordered, and what is done then.

    Attributes:
        cancels: what a cancel is met with.
    """

    def __init__(self) -> None:
        self.cancels = "obeyed"
        self._late = 0.0
        self._shown = asyncio.Event()
        self._shown.set()
        self._orders: dict[str, asyncio.Queue[dict[str, str]]] = defaultdict(asyncio.Queue)

    def hear(self, order: dict[str, Any]) -> None:
        """Take an order."""
        if "token" in order:
            self._orders[order["token"]].put_nowait(order)
        self.cancels = order.get("cancels", self.cancels)
        self._late = order.get("late", self._late)
        if "shown" in order:
            (self._shown.set if order["shown"] else self._shown.clear)()

    async def follow_orders(self, turn: Steered) -> None:
        """Work until ordered to end, or cancelled."""
        await self._shown.wait()
        await turn.publish()
        try:
            await self._obey(turn)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self.cancels == "ignored" else self._late):
                    await self._obey(turn)
            raise

    async def _obey(self, turn: Steered) -> None:
        while True:
            order = await self._orders[turn.token].get()
            if order["do"] != "say":
                return await turn.status(_ENDS[order["do"]], order.get("text", ""))
            await turn.artifact(order["text"])


async def read_orders(pipe: asyncio.StreamReader, steering: Steering) -> None:
    """Hear orders until there can be no more."""
    async for line in pipe:
        steering.hear(json.loads(line))
