"""The probes of the real Letta server, whose agents ask the lab. Needs the extras `lab`, `letta`.

One server serves them all: it takes a quarter of a minute to start. Each has an agent of its own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import httpx
import trio

from ..._budget import StopBudget
from ...abc import Backend
from ...adapters.letta import LettaContent, open_letta
from ...lab.letta import make_agent, start_letta
from ...transports.sse import EventParser
from .._probe import Probe, Work
from ..recording.a2a.cable import Cable
from ._lab import ITSELF, LabProbe, token_of
from .letta import LettaProbe

__all__ = ["RealLettaAgentProbe", "RealLettaProbe"]


class RealLettaProbe(LabProbe):
    """`open_letta` of an agent, each room with a conversation, and a model that is silent.

    Letta cannot end the call of such a model, and says `cancelled` all the same.
    """

    name = "letta, the real server"
    unable: ClassVar[Mapping[str, str]] = {
        **LettaProbe.unable,
        **{name: why for name, why in ITSELF.items() if name != "ignore_cancels"},
        "die": "the server serves all that is probed in this process: it is only cut off",
        "end_seen": "Letta does not end the call of a model that is silent",
    }
    budget = StopBudget(cancel_within=2.0, kill_within=1.0)
    opening = 240.0
    conversations: ClassVar[bool] = True

    leave = Probe.leave
    alive = Probe.alive

    def __init__(self) -> None:
        super().__init__()
        self._tap = _Tap(self.look)

    def open(self) -> AbstractAsyncContextManager[Backend[LettaContent]]:
        """Open a lab, and make agents that ask it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[LettaContent], None]:
        url = await start_letta()
        async with self.open_home():

            async def agent_of(room: str) -> str:
                return await make_agent(url, self.lab.url, asks=True)

            async with open_letta(
                url,
                agent_id=await agent_of("all") if self.conversations else agent_of,
                conversations=self.conversations,
                transport=self._tap,
            ) as backend:
                yield backend

    @property
    def works(self) -> Sequence[Work]:
        """Each message that went out."""
        return list(self._tap.works)

    def over(self, work: Work) -> float | None:
        """The end of its stream."""
        return self._tap.over.get(work)

    def carries(self, answer: object, reply: str) -> bool:
        """Whether the approval says so."""
        return isinstance(answer, Mapping) and answer["approve"] is (reply in ("approve", "yes"))

    def ignore_cancels(self) -> None:
        """Nothing: it says `cancelled`, and a call that is silent goes on."""

    async def ask(self, work: Work) -> None:
        """Have the model call a tool that needs an approval."""
        await self.lab.parked(token_of(work))
        self.order(work, "call", "ring_bell", {"times": 2})

    def release(self) -> None:
        """Let the model answer."""
        for work in self.works:
            self.lab.release(token_of(work))

    async def cut(self) -> None:
        """Break the connections, at this end."""
        self._tap.cable.cut()
        await trio.lowlevel.checkpoint()


class RealLettaAgentProbe(RealLettaProbe):
    """`open_letta` with an agent a room, which speaks in its own history."""

    name = "letta-agent, the real server"
    conversations = False


class _Tap(httpx.AsyncBaseTransport):
    """Passes everything on, and learns who is asked what, and who is told to stop.

    Attributes:
        works: each message that went out.
        over: when the stream of a work's newest run ended.
        cable: what is below.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self.works: list[Work] = []
        self.over: dict[Work, float | None] = {}
        self.cable = Cable()
        self._look = look
        self._runs: dict[str, Work] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.strip("/").split("/")
        body = json.loads(request.content) if request.content else {}
        if path[-1] == "cancel":
            for run in body["run_ids"]:
                self._runs[run].told_at.append(trio.current_time())
        if request.method != "POST" or path[-1] != "messages":
            return await self.cable.handle_async_request(request)
        work = self._asked(path[2], body["messages"])
        response = await self.cable.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Tapped(response.stream, lambda said: self._hear(work, said))
        return response

    def _asked(self, session: str, messages: Sequence[Mapping[str, Any]]) -> Work:
        work = next((one for one in reversed(self.works) if one.session == session), None)
        if (replies := messages[0].get("approvals")) and work is not None:
            work.replies.append(replies[0])
        if "content" in messages[-1] or work is None:
            work = Work(f"message {len(self.works) + 1}", "", session, trio.current_time())
            work.text = str(messages[-1].get("content"))
            self.works.append(work)
        self.over[work] = None
        return work

    def _hear(self, work: Work, said: Mapping[str, Any] | None) -> None:
        if said is None:
            self.over[work] = trio.current_time()
        elif run := said.get("run_id"):
            self._runs[run] = work
        self._look()

    async def aclose(self) -> None:
        await self.cable.aclose()


class _Tapped(httpx.AsyncByteStream):
    def __init__(
        self, inner: httpx.AsyncByteStream, hear: Callable[[Mapping[str, Any] | None], None]
    ) -> None:
        self._inner = inner
        self._chunks = aiter(inner)
        self._hear = hear
        self._parser = EventParser()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._hear(None)
            raise
        for event in self._parser.feed(chunk):
            if event.data.startswith("{"):
                self._hear(json.loads(event.data))
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
