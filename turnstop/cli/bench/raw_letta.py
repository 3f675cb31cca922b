"""Letta by its own HTTP interface: a message, a cancel of its run, and the stream's end.

What the SDK would say is said here by hand, since its streams are not read to their end. As of
version 0.16.8.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

import httpx
import trio

from ..._ending import Ending
from ..._unwrap import open_private_nursery
from .raw import RawRun, RawRunner, Refused

_ENDINGS = {"end_turn": Ending.FINISHED, "cancelled": Ending.STOPPED}


class _RawLetta:
    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self._http = http
        self._agent = agent
        self._conversations: dict[str, str] = {}

    async def work(self, run: RawRun, room: str, content: str) -> None:
        if room not in self._conversations:
            made = await self._http.post(
                "/v1/conversations/", params={"agent_id": self._agent}, json={}
            )
            if made.is_error:
                raise Refused(made.text)
            self._conversations[room] = made.json()["id"]
        path = f"/v1/conversations/{self._conversations[room]}/messages"
        body = {
            "messages": [{"role": "user", "content": content}],
            "streaming": True,
            "stream_tokens": True,
        }
        run.left.set()
        ending, told = Ending.FAILED, False
        async with open_private_nursery() as nursery:
            async with self._http.stream("POST", path, json=body) as response:
                async for line in response.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    said = json.loads(line.removeprefix("data: "))
                    if not told and (name := said.get("run_id")):
                        nursery.start_soon(self._cancel, run, name)
                        told = True
                    ending = _ENDINGS.get(said.get("stop_reason"), ending)
            run.note_end(ending, trio.current_time())
            nursery.cancel_scope.cancel()

    async def _cancel(self, run: RawRun, name: str) -> None:
        await run.asked.wait()
        run.note_sent()
        path = f"/v1/agents/{self._agent}/messages/cancel"
        await self._http.post(path, json={"run_ids": [name]})
        run.note_acked()


@asynccontextmanager
async def open_raw_letta(url: str, agent: str) -> AsyncGenerator[RawRunner, None]:
    """Run turns of an agent by the bare interface."""
    # It streams for nobody who does not say that he is an SDK.
    headers = {"X-Stainless-Package-Version": version("letta-client")}
    # One that has answered 500 resets the connection under the next request.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, limits=limits, timeout=300, trust_env=False
    ) as http:
        async with open_private_nursery() as nursery:
            yield RawRunner(_RawLetta(http, agent).work, nursery)
            nursery.cancel_scope.cancel()
