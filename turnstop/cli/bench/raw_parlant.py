"""Parlant by its own calls: what runs its tasks is told to cancel one, and that one is joined.

Then the preamble that it leaves is looked for among all tasks, and ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from ..._ending import Ending
from ..._unwrap import open_private_nursery
from ...transports.aio import Aio
from .raw import RawRun, RawRunner

_PREAMBLE = "AlphaEngine._get_preamble_task.<locals>.preamble_task"


class _RawParlant:
    def __init__(self, aio: Aio, server: Any, agent: str) -> None:
        from parlant.core.application import Application
        from parlant.core.background_tasks import BackgroundTaskService
        from parlant.core.customers import CustomerStore

        self._aio = aio
        self._agent = agent
        self._guest = CustomerStore.GUEST_ID
        self._sessions = server.container[Application].sessions
        self._tasks = server.container[BackgroundTaskService]
        self._rooms: dict[str, str] = {}

    async def work(self, run: RawRun, room: str, content: str) -> None:
        if room not in self._rooms:
            self._rooms[room] = await self._aio.call_unowned(self._open_session)
        session = self._rooms[room]
        run.left.set()
        root = await self._aio.call_unowned(self._post, session, content)
        over = trio.Event()

        def end(_: object) -> None:
            self._aio.post(over.set)

        root.add_done_callback(end)
        async with open_private_nursery() as nursery:
            nursery.start_soon(self._cancel, run, session, root, over)
            await over.wait()
            ending = Ending.FINISHED
            if run.sent_at is not None:
                await self._aio.call_unowned(self._end_preamble, session)
                ending = await self._aio.call_unowned(self._ending, session, root)
            run.note_end(ending, trio.current_time())
            nursery.cancel_scope.cancel()

    async def _cancel(self, run: RawRun, session: str, root: Any, over: trio.Event) -> None:
        await run.asked.wait()
        if not over.is_set():
            run.note_sent()
            await self._aio.call_unowned(self._tell, session)
            run.note_acked()

    # Asyncio-flavoured.

    async def _open_session(self) -> str:
        made = await self._sessions.create(customer_id=self._guest, agent_id=self._agent)
        return str(made.id)

    async def _post(self, session: str, content: str) -> Any:
        from parlant.core.app_modules.sessions import Moderation
        from parlant.core.sessions import EventSource

        await self._sessions.create_customer_message(
            session_id=session,
            moderation=Moderation.NONE,
            message=content,
            source=EventSource.CUSTOMER,
            trigger_processing=True,
            metadata=None,
        )
        return self._tasks._tasks[f"process-session({session})"]

    async def _tell(self, session: str) -> None:
        await self._tasks.cancel(tag=f"process-session({session})", reason="stop")

    async def _end_preamble(self, session: str) -> None:
        left = {task for task in asyncio.all_tasks() if _is_preamble(task, session)}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _ending(self, session: str, root: asyncio.Task[None]) -> Ending:
        if root.cancelled():  # before it had begun
            return Ending.STOPPED
        events = await self._sessions.find_events(
            session_id=session, min_offset=0, source=None, kinds=[], trace_id=None
        )
        statuses = [one.data.get("status") for one in events if one.kind.value == "status"]
        return Ending.STOPPED if "cancelled" in statuses[-2:] else Ending.FINISHED


def _is_preamble(task: asyncio.Task[Any], session: str) -> bool:
    coroutine: Any = task.get_coro()
    if getattr(coroutine, "__qualname__", "") != _PREAMBLE or coroutine.cr_frame is None:
        return False
    return bool(coroutine.cr_frame.f_locals["context"].session.id == session)


@asynccontextmanager
async def open_raw_parlant(aio: Aio, server: Any, agent: str) -> AsyncGenerator[RawRunner, None]:
    """Run turns of an engine by its own calls."""
    async with open_private_nursery() as nursery:
        yield RawRunner(_RawParlant(aio, server, agent).work, nursery)
        nursery.cancel_scope.cancel()
