"""Processes that belong to a turn: those with its token in their environment (Linux only)."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import attrs
import trio

VARIABLE = "TURNSTOP_LAB_TURN"


def mark(token: str, command: str) -> str:
    """The command, so that everything it starts carries the token, wherever it moves."""
    return f"export {VARIABLE}={shlex.quote(token)}; {command}"


@attrs.define(eq=False)
class ToolProcess:
    """A process of a turn.

    Attributes:
        started: in clock ticks since boot: with the pid, its identity.
        seen_at: when the lab first saw it, on Trio's clock.
        gone_at: when its end was seen, on Trio's clock; None while it lives.
    """

    pid: int
    started: int
    token: str
    command: str
    seen_at: float
    gone_at: float | None = None

    def __str__(self) -> str:
        return f"{self.pid} {self.command}"

    def kill(self) -> None:
        """End it by force, unless it is gone."""
        if start_time(self.pid) == self.started:
            os.kill(self.pid, signal.SIGKILL)

    async def watch(self) -> None:
        """Return when the process has ended, reaped or not, with `gone_at` set.

        **Cancellation:** leaves the process as it is.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            await trio.lowlevel.checkpoint()
        else:
            try:
                # Opened by number: what was found may be gone, and its number another's.
                if start_time(self.pid) == self.started:
                    await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
        if self.gone_at is None:
            self.gone_at = trio.current_time()


def find_processes(token: str, now: float) -> list[ToolProcess]:
    """What lives with this token, seen `now`; zombies do not."""
    needle = f"{VARIABLE}={token}\0".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle not in (entry / "environ").read_bytes():
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        pid = int(entry.name)
        if command and (started := start_time(pid)) is not None:
            found.append(ToolProcess(pid, started, token, command.strip(), now))
    return found


def start_time(pid: int) -> int | None:
    """When it started, in clock ticks since boot: with the pid, its identity. None: it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
