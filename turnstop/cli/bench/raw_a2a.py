"""A2A by the SDK's own client: a cancel once the task is known, and the stream's end.

The SDK does not tell when a request has left, so there is no `sent_at`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import trio
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import CancelTaskRequest, Role, SendMessageRequest
from a2a.types.a2a_pb2 import TASK_STATE_CANCELED, StreamResponse
from a2a.utils.errors import A2AError

from ..._ending import Ending
from ..._unwrap import open_private_nursery
from .raw import RawRun, RawRunner


class _RawA2A:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._contexts: defaultdict[str, str] = defaultdict(lambda: str(uuid.uuid4()))

    async def work(self, run: RawRun, room: str, content: str) -> None:
        message = new_text_message(content, role=Role.ROLE_USER, context_id=self._contexts[room])
        ending = Ending.FINISHED
        async with open_private_nursery() as nursery:
            told = False
            run.left.set()
            async for event in self._client.send_message(SendMessageRequest(message=message)):
                if not told:
                    nursery.start_soon(self._cancel, run, _task_of(event))
                    told = True
                if event.status_update.status.state == TASK_STATE_CANCELED:
                    ending = Ending.STOPPED
            nursery.cancel_scope.cancel()
        run.note_end(ending, trio.current_time())

    async def _cancel(self, run: RawRun, task: str) -> None:
        await run.asked.wait()
        try:
            await self._client.cancel_task(CancelTaskRequest(id=task))
            run.acked_at = trio.current_time()
        except A2AError:
            pass  # It ended meanwhile: so does its stream.


def _task_of(event: StreamResponse) -> str:
    return event.task.id or event.status_update.task_id or event.artifact_update.task_id


@asynccontextmanager
async def open_raw_a2a(url: str) -> AsyncGenerator[RawRunner, None]:
    """Run turns of an agent by the SDK's client."""
    timeout = httpx.Timeout(10, read=300)
    async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
        config = ClientConfig(streaming=True, polling=False, httpx_client=http)
        client = await ClientFactory(config).create_from_url(url)
        async with open_private_nursery() as nursery:
            yield RawRunner(_RawA2A(client).work, nursery)
            nursery.cancel_scope.cancel()
