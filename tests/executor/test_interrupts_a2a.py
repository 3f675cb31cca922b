"""Ctrl-C at every step of an A2A executor's that runs in Trio: its caller is told an end."""

from __future__ import annotations

import asyncio
from types import CodeType
from typing import Any

import pytest
import trio
from strikes import default_handler, files_of, sweep_steps

from turnstop.events import Text
from turnstop.executor import Executor, Job, open_executor

pytest.importorskip("a2a.server.agent_execution")

from a2a.types import a2a_pb2 as wire

from turnstop.executor.a2a import A2AExecutor

from .test_a2a import Queue, context_of

__all__ = ["default_handler"]

A2A = files_of("executor/a2a", "executor/_a2a_work")
ENDS = (wire.TASK_STATE_COMPLETED, wire.TASK_STATE_CANCELED)
FIRST = asyncio.FIRST_COMPLETED
WITHIN = 2.0


class Scene:
    """One message that is answered, and one that is cancelled, on a loop in a thread."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self.hung: list[str] = []

    def run(self) -> None:
        trio.run(self.main)

    async def main(self) -> None:
        async with open_executor(self.work) as executor:
            await trio.to_thread.run_sync(asyncio.run, self.serve(executor))

    async def work(self, job: Job) -> str:
        job.emit(Text("x"))
        if job.content == "hang":
            await trio.sleep_forever()
        return "done"

    async def serve(self, executor: Executor) -> None:
        for text in ("answer", "hang"):
            try:
                await asyncio.wait_for(self.send(executor, text), WITHIN)
            except TimeoutError:
                self.hung.append(text)

    async def send(self, executor: Executor, text: str) -> None:
        server, queue, context = A2AExecutor(executor), Queue(), context_of(text)
        sent = asyncio.ensure_future(server.execute(context, queue))
        if text == "hang":
            # Once its function runs.
            queue.full_for = wire.TASK_STATE_WORKING
            await asyncio.wait({sent, asyncio.ensure_future(queue.waits.wait())}, return_when=FIRST)
            queue.drained.set()
            await server.cancel(context, queue)
        await sent
        states = [getattr(one, "status", None) for one in queue.said]
        self.ends.append([one.state for one in states if one is not None and one.state in ENDS])

    def check(self) -> None:
        assert self.hung == []
        assert all(len(ends) == 1 for ends in self.ends), self.ends


def in_trio(code: CodeType) -> bool:
    return code.co_filename in A2A and code.co_name.startswith("_trio")


def test_ctrl_c_at_any_step_in_trio_has_an_a2a_caller_told_an_end() -> None:
    scene = Scene()
    scene.run()
    assert scene.ends == [[wire.TASK_STATE_COMPLETED], [wire.TASK_STATE_CANCELED]]
    steps, wrong = sweep_steps(Scene, in_trio)
    assert steps > 50
    assert wrong == []
