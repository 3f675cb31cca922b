"""The probe of the real reference server of a2a-sdk, in a process of its own.

Needs the extra `bench`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

import httpx
import trio

from ...abc import Backend
from ...adapters.a2a import A2AContent, open_a2a
from ...lab.a2a import A2AServer, open_a2a_server
from .._probe import Probe, Work
from ..recording.a2a.cable import Cable
from .a2a import A2AProbe

__all__ = ["RealA2AProbe"]


class RealA2AProbe(Probe):
    """`open_a2a` of the real server: its executor is steered, and its log is the truth."""

    name = "a2a, the real server"
    clock = "real"
    unable: ClassVar[Mapping[str, str]] = {
        **A2AProbe.unable,
        "refuse_starts": "the SDK's server refuses no message that is A2A",
        "refuse_cancels": "the SDK's server ends work whose cancel raises, and says that it failed",
        "say_end_again": "the SDK's server says nothing after the end of a task",
        "babble": "the SDK's server writes nothing that is not A2A",
    }

    def __init__(self) -> None:
        self._cable = Cable()
        self._texts: dict[str, str] = {}
        self._works: dict[object, Work] = {}
        self._server: A2AServer | None = None

    def open(self) -> AbstractAsyncContextManager[Backend[A2AContent]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[A2AContent], None]:
        await self.far_end.start(self._serve, 0)
        assert self._server is not None
        async with open_a2a(self._server.url, transport=self._cable) as backend:
            yield backend

    def open_again(self) -> AbstractAsyncContextManager[Backend[A2AContent]]:
        """Open another client of the same server."""
        return open_a2a(self.server.url)

    async def _serve(self, port: int, task_status: trio.TaskStatus[None]) -> None:
        async with open_a2a_server(port=port) as server:
            self._server = server
            task_status.started()
            while True:
                await server.changed()
                self._note(server)

    def content(self, text: str) -> str:
        """A message that has the executor wait for orders."""
        token = f"work-{len(self._texts) + 1}"
        self._texts[token] = text
        return f"steer token={token} text={'-'.join(text.split())}"

    @property
    def works(self) -> Sequence[Work]:
        """Each run of the executor."""
        if self._server is not None:
            self._note(self._server)
        return sorted(self._works.values(), key=lambda work: work.asked_at)

    def _note(self, server: A2AServer) -> None:
        for token, text in self._texts.items():
            for run in server.work(token):
                work = self._works.get(run)
                if work is None:
                    began = run.began_at
                    work = self._works[run] = Work(token, text, run.context, began, began)
                work.ended_at = work.ended_at or run.ended_at
                work.told_at[:] = server.told(token) or work.told_at

    @property
    def server(self) -> A2AServer:
        """The far end, from the opening on; a new one after each death."""
        assert self._server is not None
        return self._server

    def hold_starts(self) -> None:
        """Work, and show no task."""
        self.server.order(shown=False)

    def release_starts(self) -> None:
        """Show it."""
        self.server.order(shown=True)

    def hold_cancels(self) -> None:
        """Have the executor's cancel wait for ever."""
        self.server.order(cancels="held")

    def ignore_cancels(self) -> None:
        """Have it say CANCELED, and the executor go on."""
        self.server.order(cancels="ignored")

    def hold_acknowledgements(self) -> None:
        """Have the executor end, and its cancel wait for ever."""
        self.server.order(cancels="unanswered")

    def end_late(self, seconds: float) -> None:
        """Have the executor's clean-up take some time."""
        self.server.order(late=seconds)

    async def say(self, work: Work, text: str) -> None:
        """Publish an artifact."""
        self.server.order(token=work.name, do="say", text=text)

    async def finish(self, work: Work) -> None:
        """Say COMPLETED, and return."""
        self.server.order(token=work.name, do="complete")

    async def fail(self, work: Work) -> None:
        """Say FAILED, and return."""
        self.server.order(token=work.name, do="fail", text="no flour left")

    async def die(self) -> None:
        """Kill the process, and start another one where it was."""
        port = httpx.URL(self.server.url).port
        assert port is not None
        await self.server.kill()
        for work in self._works.values():
            work.ended_at = work.ended_at or trio.current_time()
        await self.far_end.start(self._serve, port)

    async def cut(self) -> None:
        """Break the connections, at this end."""
        self._cable.cut()
