"""Processes that belong to a turn: those with its token in their environment (Linux only)."""

from __future__ import annotations

import os
import shlex
import signal

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
    for pid in _pids():
        try:
            if needle not in _read(f"/proc/{pid}/environ"):
                continue
            command = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command and (started := start_time(pid)) is not None:
            found.append(ToolProcess(pid, started, token, command.strip(), now))
    return found


def _pids() -> list[int]:
    if not os.path.isdir("/proc/self"):
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path: str) -> bytes:
    # Unbuffered and without pathlib: this is done for every process, while stops are timed.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def start_time(pid: int) -> int | None:
    """When it started, in clock ticks since boot: with the pid, its identity. None: it is gone."""
    try:
        text = _read(f"/proc/{pid}/stat").decode(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
