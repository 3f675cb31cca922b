"""Child processes in a session of their own, and how they end.

The order of an end: stdin is closed, then SIGTERM and at last SIGKILL go to the whole group, each
after a grace period. No rung waits for ever, and whatever is left of the child's session after
its death is killed one by one, named by pid and start time.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import final

import attrs
import trio

from .._errors import BackendLost, BackendRefused
from .._service import open_service
from .._unwrap import open_private_nursery
from . import proctable
from .orphans import ProcessAddress, new_mark

__all__ = ["ChildProcess", "Grace", "open_process"]

_TAIL_BYTES = 8192


@attrs.frozen
class Grace:
    """How long each rung of an end may take, in seconds."""

    close: float = 1.0
    terminate: float = 1.0
    kill: float = 1.0


@final
@attrs.define(eq=False, repr=False)
class ChildProcess:
    """A running child, talked to over its pipes. Made by `open_process`.

    Attributes:
        name: what error texts call it.
        pid: also the id of its session and group.
        stdin: what it reads.
        stdout: what it writes.
        address: what another process finds it by, should this one die.
        signalled: whether it was sent a signal from here, since it did not exit by itself.
        hastened: whether that was asked for.
    """

    name: str
    pid: int
    stdin: trio.abc.SendStream
    stdout: trio.abc.ReceiveStream
    address: ProcessAddress
    _process: trio.Process
    _started: int
    _tail: bytearray = attrs.field(factory=bytearray)
    signalled: bool = attrs.field(default=False, init=False)
    hastened: bool = attrs.field(default=False, init=False)
    _closing: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __repr__(self) -> str:
        return f"<ChildProcess {self.describe()}>"

    @property
    def returncode(self) -> int | None:
        """The exit status; negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to stderr: at most 8 KiB."""
        return self._tail.decode(errors="replace").strip()

    def describe(self) -> str:
        """Say what became of it: whether it runs, its exit status, the end of its stderr."""
        text = f"{self.name} (pid {self.pid}) {self._fate()}"
        tail = self.stderr_tail
        return f"{text}; its stderr ends: {tail}" if tail else text

    def _fate(self) -> str:
        status = self.returncode
        if status is None:
            return "is still running"
        if status < 0:
            return f"was ended by signal {-status} ({signal.strsignal(-status)})"
        return f"exited with status {status}"

    async def wait(self) -> int:
        """Wait until it has exited; return its status.

        **Cancellation:** leaves it running.
        """
        return await self._process.wait()

    def hasten(self) -> None:
        """Send SIGTERM to its group now; its end then waits no more for what a closed stdin does.

        A second SIGTERM, which some programs take for more than the first, is not sent.
        """
        self.hastened = True
        self._closing.cancel()
        self._signal_group(signal.SIGTERM)

    async def _drain_stderr(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        async with stream:
            async for chunk in stream:
                self._tail += chunk
                del self._tail[:-_TAIL_BYTES]

    async def _end(self, grace: Grace) -> None:
        """Take the child down. Called in a shield: takes at most the sum of `grace`, and 1 s."""
        await self.stdin.aclose()
        async with open_private_nursery() as nursery:
            # A child that still talks would wait for ever at a full pipe.
            nursery.start_soon(self._discard_stdout)
            await self._climb(grace)
            nursery.cancel_scope.cancel()
        await self.stdout.aclose()
        with trio.move_on_after(1.0), suppress(BackendLost):
            await proctable.end_processes(self._left, grace=0.2, patience=0.5)

    async def _climb(self, grace: Grace) -> None:
        self._closing.deadline = trio.current_time() + grace.close
        with self._closing:
            await self._process.wait()
            return
        if not self.hastened:
            self._signal_group(signal.SIGTERM)
        with trio.move_on_after(grace.terminate):
            await self._process.wait()
            return
        self._signal_group(signal.SIGKILL)
        with trio.move_on_after(grace.kill):
            await self._process.wait()

    async def _left(self) -> list[proctable.TableEntry]:
        found = await proctable.find_session(self.pid, since=self._started)
        # The system gives a pid away when nothing of its session is left. One that runs again
        # after the child was reaped is another's, and so is its session.
        recycled = self.returncode is not None and any(one.pid == self.pid for one in found)
        return [] if recycled else found

    async def _discard_stdout(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for _ in self.stdout:
                pass

    def _signal_group(self, number: signal.Signals) -> None:
        # The pid is ours until the child is reaped, which only `poll` and `wait` do.
        if self._process.poll() is None:
            self.signalled = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


@asynccontextmanager
async def open_process(
    command: Sequence[str],
    *,
    name: str = "",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    install: str = "",
    grace: Grace | None = None,
) -> AsyncGenerator[ChildProcess, None]:
    """Run a child in its own session while the block is open; end it when the block is left.

    It is begun with a mark in its environment, by which it is found should this process die.

    Args:
        command: the program and its arguments.
        name: what error texts call it; the program's name by default.
        cwd: where it runs.
        env: laid over this process's environment; None takes a variable away.
        install: the command that installs the program, for the error text.
        grace: how long each rung of its end may take.

    Raises:
        BackendRefused: the program, or `cwd`, is missing or may not be run.
        BackendLost: the system could not start it.

    **Cancellation:** ends the child, in at most the sum of `grace` and one second more, whatever
    the child does.
    """
    name = name or os.path.basename(command[0])
    started = proctable.ticks_now()
    mark = new_mark()
    process = await _spawn(command, name, cwd, {**(env or {}), **dict([mark])}, install)
    assert process.stdin is not None
    assert process.stdout is not None
    pid, pipes = process.pid, (process.stdin, process.stdout)
    child = ChildProcess(name, pid, *pipes, ProcessAddress.of(pid, mark), process, started)
    async with open_service() as service:
        service.start_soon(child._drain_stderr)
        try:
            yield child
        finally:
            with trio.CancelScope(shield=True):  # each rung of `_end` is bounded
                await child._end(grace or Grace())


async def _spawn(
    command: Sequence[str],
    name: str,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str | None],
    install: str,
) -> trio.Process:
    merged = {**os.environ, **env}
    try:
        return await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={key: value for key, value in merged.items() if value is not None},
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise BackendRefused(_missing(command, cwd, install, error)) from error
    except OSError as error:
        text = f"{name} could not be started: {error}: {shlex.join(command)}"
        raise BackendLost(text, gone=True) from error


def _missing(
    command: Sequence[str], cwd: str | os.PathLike[str] | None, install: str, error: OSError
) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"cannot run {command[0]} in {os.fspath(cwd)}: no such directory"
    text = f"cannot run {command[0]}: {error.strerror}"
    return f"{text}; install it with: {install}" if install else text
