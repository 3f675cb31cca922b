"""A program that listens on a port, and says on its stdout where.

The order of its end: what it works on is told to stop while it can still be told, then the program
is ended, and last what it has started and left in other sessions, which its signals do not reach.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import final

import trio

from .._errors import BackendError, BackendLost, BackendRefused
from .._service import open_service
from ._lines import LineSplitter
from .offspring import make_mark, open_clearing
from .process import ChildProcess, Grace, open_process

__all__ = ["Listening", "open_listening"]

_FAREWELL = 3.0


@final
class Listening:
    """A program that listens. Made by `open_listening`.

    Attributes:
        process: the program.
        address: where it listens, as it said.
        exited: set when the program has exited.
        mark: the variable that everything it starts carries in its environment, and its value.
    """

    def __init__(self, process: ChildProcess, mark: tuple[str, str]) -> None:
        self.process = process
        self.address = ""
        self.exited = trio.Event()
        self.mark = mark

    async def _watch(self) -> None:
        await self.process.wait()
        self.exited.set()

    async def _await_address(self, ready: re.Pattern[bytes], heard: trio.Event) -> None:
        """Read stdout to its end; set `heard` when the address is known, or can be no more."""
        splitter, known = LineSplitter(), False
        try:
            async for chunk in self.process.stdout:
                for line in () if known else splitter.feed(chunk):
                    if found := ready.search(line):
                        self.address, known = found[1].decode(errors="replace"), True
                        heard.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            heard.set()

    def _unready(self, patience: float, heard: trio.Event) -> BackendError:
        text = self.process.describe()
        if self.process.returncode is not None:
            return BackendLost(text, gone=True)
        told = "closed its stdout and" if heard.is_set() else f"in {patience:g} s it"
        # No loss, which would be made good by another start, and another.
        return BackendRefused(f"{text}; {told} did not say where it listens")


@asynccontextmanager
async def open_listening(
    command: Sequence[str],
    *,
    ready: str,
    mark: str,
    farewell: Callable[[], Awaitable[object]],
    patience: float = 60.0,
    name: str = "",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    install: str = "",
    grace: Grace | None = None,
) -> AsyncGenerator[Listening, None]:
    """Run a program until the body has left; see `open_process`.

    Args:
        command: the program and its arguments.
        ready: a pattern of the line of stdout that says where it listens, as its first group.
        mark: what the name of a variable of its own begins with that is put into its environment.
        farewell: called before a program that still runs is ended; it may take 3 seconds.
        patience: seconds that the line may take.
        name: as the next ones: see `open_process`.
        cwd: where it runs.
        env: laid over this process's environment.
        install: the command that installs the program.
        grace: how long each rung of its end may take.

    Raises:
        BackendRefused: the program is missing, or says no address in time.
        BackendLost: it ended.

    **Cancellation:** ends the program and all that it has started; bounded: the farewell, the
    `grace`, and two and a half seconds more.
    """
    own = make_mark(mark)
    async with (
        open_clearing(own),
        open_process(
            command,
            name=name,
            cwd=cwd,
            env={**(env or {}), **dict([own])},
            install=install,
            grace=grace or Grace(close=0.0, terminate=2.0, kill=1.0),
        ) as process,
    ):
        listening, heard = Listening(process, own), trio.Event()
        async with open_service() as service:
            service.start_soon(listening._watch)
            service.start_soon(listening._await_address, re.compile(ready.encode()), heard)
            with trio.move_on_after(patience):
                await heard.wait()
            if not listening.address:
                # Its exit may be a moment behind the end of its stdout.
                with trio.move_on_after(0.2):
                    await listening.exited.wait()
                raise listening._unready(patience, heard)
            try:
                yield listening
            finally:
                if not listening.exited.is_set():
                    with trio.move_on_after(_FAREWELL, shield=True):
                        await farewell()
