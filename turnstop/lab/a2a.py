"""Start a real A2A agent in a process of its own, and ask it when its work began and ended."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import final

import attrs
import trio

from .._service import open_service
from ._processes import start_time
from .programs import MissingProgram

A2A_INSTALL = "python -m pip install 'turnstop[bench]'"
_END_GRACE = 3.0
_START_GRACE = 30.0


@attrs.define(eq=False)
class Work:
    """One run of the executor.

    Attributes:
        began_at: when it began, on Trio's clock, as the next one.
        context: the conversation.
        ended_at: None while it works.
    """

    began_at: float
    context: str = ""
    ended_at: float | None = None


@final
class A2AServer:
    """A running agent. Made by `open_a2a_server`.

    Attributes:
        url: where it listens.
        pid: its process, and the leader of its process group.
        started: when that started, in clock ticks since boot: with the pid, its identity.
    """

    def __init__(self, process: trio.Process) -> None:
        self.url = ""
        self.pid = process.pid
        self.started = start_time(process.pid)
        self._process = process
        self._work: dict[str, list[Work]] = defaultdict(list)
        self._told: dict[str, list[float]] = defaultdict(list)
        self._changed = trio.lowlevel.ParkingLot()
        self._offset = trio.current_time() - time.monotonic()
        self._stderr = b""

    def work(self, token: str) -> tuple[Work, ...]:
        """What the executor did and does for this token, oldest first."""
        return tuple(self._work.get(token, ()))

    def told(self, token: str) -> tuple[float, ...]:
        """When the executor was told to cancel it, on Trio's clock."""
        return tuple(self._told.get(token, ()))

    def alive(self, token: str) -> bool:
        """Whether any work of this token has not ended."""
        return any(work.ended_at is None for work in self.work(token))

    async def began(self, token: str) -> Work:
        """Wait until work of this token has begun, and return the first.

        **Cancellation:** leaves nothing behind.
        """
        while not self.work(token):
            await self._changed.park()
        return self.work(token)[0]

    async def gone(self, token: str) -> None:
        """Wait until all work of this token has ended; at once where there is none.

        **Cancellation:** leaves nothing behind.
        """
        await trio.lowlevel.checkpoint()
        while self.alive(token):
            await self._changed.park()

    async def changed(self) -> None:
        """Wait until it has told something more.

        **Cancellation:** leaves nothing behind.
        """
        await self._changed.park()

    def order(self, **order: object) -> None:
        """Steer work whose message has the mode `steer`: see `turnstop.lab._steering`.

        It is there before anything that is sent to the agent later.
        """
        assert isinstance(self._process.stdin, trio.lowlevel.FdStream)
        os.write(self._process.stdin.fileno(), json.dumps(order).encode() + b"\n")

    async def kill(self) -> None:
        """End the process by force, and wait for it.

        **Cancellation:** the process is being killed all the same.
        """
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def freeze(self) -> None:
        """Stop the process where it is: it accepts connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        # Until it is waited for, the pid and its group are this process's and nobody else's.
        if self._process.returncode is None and start_time(self.pid) == self.started:
            os.killpg(self.pid, number)

    async def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        buffer = b""
        async for chunk in self._process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
            self._changed.unpark_all()

    def _hear(self, fact: dict[str, object]) -> None:
        at = self._offset + float(str(fact.get("at", 0)))
        if "port" in fact:
            self.url = f"http://127.0.0.1:{fact['port']}/"
        elif "began" in fact:
            self._work[str(fact["began"])].append(Work(at, str(fact["context"])))
        elif "told" in fact:
            self._told[str(fact["told"])].append(at)
        elif "ended" in fact:
            open_work = [work for work in self._work[str(fact["ended"])] if work.ended_at is None]
            open_work[0].ended_at = at

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        async for chunk in self._process.stderr:
            self._stderr = (self._stderr + chunk)[-8192:]

    async def _listening(self) -> None:
        with trio.move_on_after(_START_GRACE):
            while not self.url and self._process.poll() is None:
                with trio.move_on_after(0.2):
                    await self._changed.park()
        if not self.url:
            tail = self._stderr.decode(errors="replace")[-2000:]
            raise MissingProgram(f"the A2A server did not start: {tail}")

    async def _end(self) -> None:
        with trio.CancelScope(shield=True):
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            with trio.move_on_after(_END_GRACE):
                await self._process.wait()
            self._signal(signal.SIGKILL)
            with trio.move_on_after(_END_GRACE):
                await self._process.wait()


@asynccontextmanager
async def open_a2a_server(
    *, streaming: bool = True, blocking: bool = False, port: int = 0
) -> AsyncGenerator[A2AServer, None]:
    """Run `turnstop.lab.a2a_server`, which says what messages make it do.

    Args:
        streaming: whether its card offers streams.
        blocking: whether it ignores `return_immediately` and answers a message at the end only.
        port: where on loopback it listens; 0 is any free one.

    Raises:
        MissingProgram: it is not installed, or does not start; the text says what to do.

    **Cancellation:** the process is ended, within 6 s, when the body has left.
    """
    if not all(map(importlib.util.find_spec, ("a2a", "uvicorn", "sse_starlette"))):
        raise MissingProgram(f"the A2A server is not installed; install it: {A2A_INSTALL}")
    command = [sys.executable, "-m", "turnstop.lab.a2a_server", f"--port={port}"]
    command += [] if streaming else ["--no-streaming"]
    command += ["--blocking"] if blocking else []
    async with open_service() as service:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        server = A2AServer(process)
        try:
            service.start_soon(server._read_stdout)
            service.start_soon(server._read_stderr)
            await server._listening()
            yield server
        finally:
            await server._end()
